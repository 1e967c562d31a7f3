import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** The status page, and what its browser is told to refuse. */
export interface StatusPage {
  readonly html: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * The page that `assets/` holds. Its policy allows the one script and the one style that it has, by their
 * digests, and requests to where it came from: whatever a value on it may hold, nothing else runs.
 */
export function readStatusPage(): StatusPage {
  // The same place from src/ and from dist/.
  const html = readFileSync(new URL("../assets/status-page.html", import.meta.url), "utf8");
  return {
    html: Buffer.from(html),
    headers: {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": [
        "default-src 'none'",
        `script-src ${digestsOf(html, "script")}`,
        `style-src ${digestsOf(html, "style")}`,
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
      ].join("; "),
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "referrer-policy": "no-referrer",
      "x-frame-options": "DENY",
    },
  };
}

/** https://www.w3.org/TR/CSP3/#grammardef-hash-source of each inline block. */
function digestsOf(html: string, tag: "script" | "style"): string {
  return [...html.matchAll(new RegExp(`<${tag}>([^]*?)</${tag}>`, "g"))]
    .map((match) => `'sha256-${createHash("sha256").update(String(match[1])).digest("base64")}'`)
    .join(" ");
}
