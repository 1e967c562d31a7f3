import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { createAdminSurface } from "./admin-surface.ts";
import { serveAdmin } from "./testing/admin-client.ts";
import { FakeAdminEdge } from "./testing/fake-admin-edge.ts";

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
const bearer = (key: string) => ({ host: "anywhere", authorization: `Bearer ${key}` });

describe("the admin surface", () => {
  it("serves health, the snapshot and metrics", async () => {
    const { ask, edge } = await serveAdmin({ metrics: () => ({ contentType: "text/plain", text: "a 1\n" }) });
    expect(await ask("/healthz")).toMatchObject({ status: 200, body: '{"status":"ok"}\n' });
    const { status, headers, body } = await ask("/api/snapshot?x=1");
    expect([status, JSON.parse(body)]).toEqual([200, edge.snapshot()]);
    expect(headers).toMatchObject({ "content-type": "application/json", "cache-control": "no-store" });
    expect(await ask("/metrics")).toMatchObject({
      status: 200,
      body: "a 1\n",
      headers: { "content-type": "text/plain" },
    });
  });

  it("has no /metrics where none are given, and hides why they fail", async () => {
    expect((await (await serveAdmin()).ask("/metrics")).status).toBe(404);
    const { ask } = await serveAdmin({ metrics: () => Promise.reject(new Error("s3cr3t")) });
    const { status, body } = await ask("/metrics");
    expect([status, JSON.parse(body)]).toEqual([
      500,
      { error: expect.objectContaining({ code: "internal", message: "Internal error." }) },
    ]);
  });

  it.each(["/", "/healthz", "/api/snapshot", "/api/events", "/metrics"])(
    "answers HEAD %s without a body",
    async (path) => {
      const { ask } = await serveAdmin({ metrics: () => ({ contentType: "text/plain", text: "a 1\n" }) });
      const { status, body, headers } = await ask(path, {}, "HEAD");
      expect([status, body]).toEqual([200, ""]);
      if (path !== "/api/events") expect(Number(headers["content-length"])).toBeGreaterThan(3);
    },
  );

  it("says what it does not serve in JSON", async () => {
    const { ask } = await serveAdmin();
    const missing = await ask("/nothing");
    expect([missing.status, JSON.parse(missing.body).error.code]).toEqual([404, "not_found"]);
    for (const method of ["POST", "DELETE", "OPTIONS"]) {
      const wrong = await ask("/api/snapshot", {}, method);
      expect([wrong.status, wrong.headers.allow, JSON.parse(wrong.body).error.code]).toEqual([
        405,
        "GET, HEAD",
        "method_not_allowed",
      ]);
    }
  });
});

const unready = (reason: string) => [503, { status: "unready", reason }];

describe("readiness", () => {
  it("comes and goes with a model that is served", async () => {
    let draining = false;
    const { ask, edge } = await serveAdmin({ draining: () => draining });
    const state = async (): Promise<unknown> => {
      const { status, body } = await ask("/readyz");
      return [status, JSON.parse(body)];
    };
    expect(await state()).toEqual(unready("no model is configured"));
    edge.modelInfos = [
      { key: "a", candidates: 1, live: 0 },
      { key: "b", candidates: 1, live: 0 },
    ];
    edge.nodes = [{ name: "n", connected: false, providers: [] }];
    expect(await state()).toEqual(unready("no node is connected"));
    edge.nodes = [{ name: "n", connected: true, providers: [] }];
    expect(await state()).toEqual(unready("no provider of any model is available"));
    edge.modelInfos = [
      { key: "a", candidates: 1, live: 0 },
      { key: "b", candidates: 1, live: 1 },
    ];
    expect(await state()).toEqual([200, { status: "ready" }]);
    draining = true;
    expect(await state()).toEqual(unready("the Edge is shutting down"));
  });
});

describe("who is served", () => {
  it.each([
    [{ host: "evil.example" }],
    [{ host: "127.0.0.1.evil.example:80" }],
    [{ host: "127.0.0.1", origin: "https://127.0.0.1.evil.example" }],
    [{ origin: "http://evil.example" }],
    [{ origin: "null" }],
    [{ origin: "http://localhost:1" }],
    [{ "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" }],
    [{ "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image" }],
    [{ "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe" }],
  ])("not a page of elsewhere: %o", async (headers) => {
    const { ask } = await serveAdmin();
    for (const path of ["/", "/healthz", "/api/snapshot", "/api/events"])
      expect((await ask(path, headers)).status).toBe(403);
  });

  it("any loopback name, its own page, and who follows a link", async () => {
    const { ask, port } = await serveAdmin();
    for (const host of ["localhost:1", "[::1]:2", "127.0.0.1", "LOCALHOST"])
      expect((await ask("/api/snapshot", { host })).status).toBe(200);
    const host = `localhost:${port}`;
    expect((await ask("/api/snapshot", { host, origin: `http://${host}` })).status).toBe(200);
    expect(
      (await ask("/api/snapshot", { "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors" })).status,
    ).toBe(200);
    const link = {
      "sec-fetch-site": "cross-site",
      "sec-fetch-mode": "navigate",
      "sec-fetch-dest": "document",
    };
    expect((await ask("/", link)).status).toBe(200);
  });

  it("with a key, whoever has it; everybody for health, readiness and the page without data", async () => {
    const { ask } = await serveAdmin({
      keySha256: sha256("k"),
      metrics: () => ({ contentType: "text/plain", text: "" }),
    });
    for (const path of ["/healthz", "/"]) expect((await ask(path)).status).toBe(200);
    expect((await ask("/readyz")).status).toBe(503);
    for (const path of ["/api/snapshot", "/api/events", "/metrics"]) {
      expect((await ask(path)).status).toBe(401);
      const wrong = await ask(path, bearer("x"));
      expect([wrong.status, wrong.headers["www-authenticate"]]).toEqual([401, 'Bearer realm="iop"']);
    }
    expect((await ask("/api/snapshot", bearer("k"))).status).toBe(200);
    expect((await ask("/metrics", bearer("k"))).status).toBe(200);
  });

  it("a wrong option is named", () => {
    expect(() => createAdminSurface({ edge: new FakeAdminEdge(), keySha256: "x" })).toThrow(
      expect.objectContaining({ code: "invalid_config" }),
    );
  });
});

describe("the status page", () => {
  it("allows exactly the script and the style that it has", async () => {
    const { ask } = await serveAdmin();
    const { headers, body } = await ask("/");
    expect(headers["content-type"]).toBe("text/html; charset=utf-8");
    const policy = String(headers["content-security-policy"]);
    expect(policy).toContain("default-src 'none'");
    expect(policy).not.toContain("unsafe");
    for (const tag of ["script", "style"]) {
      const [, text = ""] = new RegExp(`<${tag}>([^]*?)</${tag}>`).exec(body) ?? [];
      expect(text.length).toBeGreaterThan(100);
      const digest = createHash("sha256").update(text).digest("base64");
      expect(policy).toContain(`${tag}-src 'sha256-${digest}';`);
    }
    expect(body).not.toMatch(/\son[a-z]+=|innerHTML|https?:\/\/(?!www\.w3\.org\/2000\/svg)/);
  });
});
