// Sends one chat request with a prompt of that many bytes, and prints the status once the answer is complete.
// Usage: upload.ts URL API_KEY MODEL BYTES
const [url = "", apiKey = "", model = "", bytes = "0"] = process.argv.slice(2);
const response = await fetch(url, {
  method: "POST",
  headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
  body: JSON.stringify({
    model,
    messages: [{ role: "user", content: "y".repeat(Number(bytes)) }],
    iop_test: { tokens: 5 },
  }),
});
await response.arrayBuffer();
process.stdout.write(String(response.status));
