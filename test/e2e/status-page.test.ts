import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { type Browser, chromiumPath, startBrowser } from "../support/chromium.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

if (chromiumPath === undefined)
  console.info(
    "SKIPPED: no Chromium on this machine, so nobody looks at the status page. `apt-get install chromium`",
  );

let stack: Stack;
let browser: Browser;

/** A string that would be markup, if anybody took it for that. */
const EVIL = "<img src=x onerror=alert(1)>";
const ADMIN_KEY = "the-admin-key";

async function start(admin: Readonly<Record<string, unknown>> = {}): Promise<string> {
  stack = await startStack({
    capacity: 4,
    models: { gone: "http://127.0.0.1:1" },
    edge: { listen: { nodes: { port: 0 }, http: { port: 0 }, admin: { port: 0, ...admin } } },
    edgeEnv: { IOP_TEST_ADMIN_KEY: ADMIN_KEY },
  });
  return stack.edge.ready["admin"] ?? "";
}

function ask(behaviour: Readonly<Record<string, unknown>>, signal?: AbortSignal): Promise<Response> {
  return fetch(`${stack.http}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${stack.apiKey}` },
    body: JSON.stringify({
      model: MODEL,
      stream: true,
      messages: [{ role: "user", content: "the prompt" }],
      stream_options: { include_usage: true },
      iop_test: behaviour,
    }),
    ...(signal === undefined ? {} : { signal }),
  });
}

/** Resolves once the text of what `selector` names matches. */
async function shows(selector: string, pattern: RegExp): Promise<void> {
  const { page } = browser;
  await page
    .locator(selector)
    .filter({ hasText: pattern })
    .first()
    .waitFor({ timeout: 10_000 })
    .catch(async () => {
      throw new Error(`${selector} does not show ${pattern}: ${await page.locator("body").innerText()}`);
    });
}

describe.skipIf(chromiumPath === undefined)("the status page in Chromium", () => {
  beforeEach(async () => {
    browser = await startBrowser();
  });
  afterEach(async () => {
    await browser[Symbol.asyncDispose]();
    await stack[Symbol.asyncDispose]();
  });

  test("shows nodes, what is in flight, runs and their latency as they change, and what goes away", async () => {
    const address = await start();
    const { page, faults } = browser;
    const requested: string[] = [];
    page.on("request", (request) => void requested.push(new URL(request.url()).origin));
    await page.goto(address);
    await shows("#link", /^live$/);
    await shows('[data-node="node-1"]', /connected/);
    await shows('[data-provider="p1"]', /ok.*0 of 4 in use/);
    await shows('[data-provider="gone"]', /offline[^]*cannot connect/);
    await shows(`[data-model="${MODEL}"]`, /served.*1 of 1/);
    await shows("#runs", /No run has ended/);

    const leave = new AbortController();
    const streaming = await ask({ tokens: 10_000, tokens_per_second: 50 }, leave.signal);
    await shows('[data-provider="p1"]', /1 of 4 in use/);
    expect(await page.locator('[data-provider="p1"] [role="meter"]').getAttribute("aria-valuenow")).toBe("1");
    leave.abort();
    await streaming.text().catch(() => "");
    await shows('tr[data-outcome="cancelled"]', /cancelled/);
    await shows('[data-provider="p1"]', /0 of 4 in use/);

    await (await ask({ text: EVIL, tokens_per_second: 0 })).text();
    await shows('tr[data-outcome="completed"]', /completed.*[\d.]+ m?s.*[\d.]+ m?s.*\d+ → \d+/);
    expect(await page.locator("#chart svg rect").count()).toBeGreaterThan(1);
    const text = await page.locator("body").innerText();
    expect(text).not.toContain("the prompt");
    expect(text).not.toContain("onerror");

    stack.node.signal("SIGKILL");
    await shows('[data-node="node-1"]', /offline/);
    await shows('[data-provider="p1"]', /offline[^]*the node is not connected/);
    expect(await page.locator("#banner").isVisible()).toBe(false);

    stack.edge.signal("SIGKILL");
    await shows("#banner", /does not answer.*Last seen at/);
    await shows("#link", /unreachable/);
    expect(faults).toEqual([]);
    expect(new Set(requested)).toEqual(new Set([address]));
  });

  test("fits a narrow window, and every value on it is text", async () => {
    const address = await start();
    const { page, faults } = browser;
    await page.setViewportSize({ width: 390, height: 800 });
    // The Edge itself accepts no such names; a later one, or a reason of a Node, may hold anything.
    await page.route("**/api/snapshot", (route) =>
      route.fulfill({
        json: {
          edge: { name: EVIL, mode: EVIL, uptime_sec: 90_061 },
          nodes: [
            {
              name: EVIL.repeat(3),
              connected: true,
              providers: [
                {
                  id: "p".repeat(64),
                  adapter: EVIL,
                  status: "unavailable",
                  health: "offline",
                  reason: EVIL.repeat(5),
                  capacity: { configured: 2, effective: 0 },
                  in_flight: { normal: 0, long: 0 },
                  quarantined: 1,
                },
              ],
            },
          ],
          models: [{ key: "m".repeat(256), waiting: 3, candidates: 1, live: 0 }],
          streams: 0,
        },
      }),
    );
    await page.route("**/api/events", (route) =>
      route.fulfill({
        contentType: "text/event-stream",
        body: `id: 1\nevent: run\ndata: ${JSON.stringify({
          model: EVIL,
          node: EVIL,
          provider: "p",
          outcome: "error",
          code: `c${"o".repeat(300)}de`,
          duration_ms: 83_000,
          at: "2026-12-01T00:00:00Z",
        })}\n\n`,
      }),
    );
    await page.goto(address);
    await shows("h1", /<img src=x/);
    await shows("#about", /up 1 d 1 h/);
    await shows('[data-outcome="error"]', /83\.0 s/);
    expect(await page.locator("img").count()).toBe(0);
    const width = await page.evaluate("document.documentElement.scrollWidth");
    expect(width).toBe(390);
    expect(faults).toEqual([]);
  });

  test("asks for the admin key, once, and forgets a wrong one", async () => {
    const address = await start({ key: { env: "IOP_TEST_ADMIN_KEY" } });
    const { page, faults } = browser;
    await page.goto(address);
    await shows("#link", /locked/);
    expect(await page.locator("#content").isVisible()).toBe(false);
    await page.getByLabel("Admin key").fill("wrong");
    await page.keyboard.press("Enter");
    await shows("#key-help", /not the Edge/);
    await page.getByLabel("Admin key").fill(ADMIN_KEY);
    await page.keyboard.press("Enter");
    await shows('[data-node="node-1"]', /connected/);
    await shows("#link", /live/);
    await page.reload();
    await shows("#link", /live/);
    expect(await page.content()).not.toContain(ADMIN_KEY);
    expect(faults).toEqual([]);
  });
});
