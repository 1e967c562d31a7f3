import { execa } from "execa";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect as connectPlain } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "node:tls";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { type Authority, createAuthority } from "../support/certificates.ts";
import { jsonHeaders, rawRequest } from "../support/raw-http.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

const NODE = fileURLToPath(new URL("../../reference/node/bin/iop-node.js", import.meta.url));

let folder: string;
let authority: Authority;
let stack: Stack;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "iop-tls-"));
  authority = await createAuthority();
  const identity = await authority.issue({ names: ["edge.example"] });
  await writeFile(join(folder, "edge.crt"), identity.cert);
  await writeFile(join(folder, "edge.key"), identity.key);
  await writeFile(join(folder, "ca.crt"), authority.ca);
  await writeFile(join(folder, "other-ca.crt"), (await createAuthority("Other CA")).ca);
  stack = await startStack({
    proxied: true,
    edge: { tls: { cert: join(folder, "edge.crt"), key: join(folder, "edge.key") } },
    nodeEdge: { tls: { ca: join(folder, "ca.crt"), server_name: "edge.example" } },
  });
});
afterAll(async () => {
  await stack[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

function chat(behaviour: Readonly<Record<string, unknown>>): ReturnType<typeof rawRequest> {
  return rawRequest(`${stack.http}/v1/chat/completions`, {
    headers: jsonHeaders(stack.apiKey),
    body: JSON.stringify({
      model: MODEL,
      messages: [{ role: "user", content: "x".repeat(300_000) }],
      iop_test: behaviour,
    }),
  });
}

/** A Node of its own until it ends; what it is told of the Edge is `edge`. */
async function runNode(edge: Readonly<Record<string, unknown>>): Promise<{ code: unknown; log: string }> {
  const file = join(folder, "node.yaml");
  const node = {
    name: "node-1",
    edge: { host: "127.0.0.1", port: stack.nodesPort, ...edge },
    token: { env: "IOP_TEST_TOKEN" },
    reconnect: { max_attempts: 1 },
  };
  await writeFile(file, JSON.stringify({ node }));
  const { exitCode, stderr } = await execa(process.execPath, [NODE, "--config", file], {
    env: { IOP_TEST_TOKEN: "s3cr3t" },
    reject: false,
    timeout: 20_000,
  });
  return { code: exitCode, log: stderr };
}

describe("over TLS", () => {
  test("the Node port shows its certificate and speaks TLS 1.3", async () => {
    const socket = connect({
      host: "127.0.0.1",
      port: stack.nodesPort,
      ca: authority.ca,
      servername: "edge.example",
    });
    await once(socket, "secureConnect");
    expect(socket.getProtocol()).toBe("TLSv1.3");
    socket.destroy();
  });

  test("a request and its answer cross whole, in whatever pieces the network makes of them", async () => {
    const whole = await chat({ body_bytes: 2_000_000 });
    stack.link?.slice(1_000);
    const cut = await chat({ body_bytes: 2_000_000 });
    stack.link?.slice(undefined);
    expect([whole.status, cut.status]).toEqual([200, 200]);
    expect(whole.body.length).toBeGreaterThanOrEqual(2_000_000);
    expect(cut.body.equals(whole.body)).toBe(true);
    await stack.idle();
  });

  test("the Node comes back after a cut", async () => {
    stack.link?.reset();
    await expect.poll(async () => (await chat({})).status, { timeout: 10_000, interval: 50 }).toBe(200);
    await stack.idle();
  });

  test("a peer that speaks no TLS is closed and logged; the others go on", async () => {
    const socket = connectPlain({ host: "127.0.0.1", port: stack.nodesPort });
    socket.on("error", () => {});
    await once(socket, "connect");
    const remote = `127.0.0.1:${socket.localPort}`;
    socket.resume().write("GET / HTTP/1.1\r\n\r\n");
    await once(socket, "close");
    await expect.poll(() => stack.edge.log()).toContain(`"remote":"${remote}","reason":"TLS: `);
    expect((await chat({})).status).toBe(200);
  });

  test("a Node that does not accept the certificate ends with 3 and has said nothing", async () => {
    const untrusted = await runNode({ tls: { ca: "other-ca.crt", server_name: "edge.example" } });
    expect([untrusted.code, untrusted.log]).toEqual([3, expect.stringContaining("is not trusted")]);
    const misnamed = await runNode({ tls: { ca: "ca.crt" } });
    expect([misnamed.code, misnamed.log]).toEqual([3, expect.stringContaining("is not for 127.0.0.1")]);
    for (const { log } of [untrusted, misnamed]) {
      expect(log).toContain('"code":"certificate_rejected"');
      expect(log).not.toContain("s3cr3t");
    }
    expect((await chat({})).status).toBe(200);
  });

  test("a Node without TLS gets nowhere, and tries again", async () => {
    expect((await runNode({})).code).toBe(4);
    expect((await chat({})).status).toBe(200);
  });
});
