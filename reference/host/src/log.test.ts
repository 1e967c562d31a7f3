import { describe, expect, it } from "vitest";
import { createLog } from "./log.ts";

describe("the log", () => {
  it("writes one JSON object a line, and masks what must not be in it", () => {
    const lines: string[] = [];
    const log = createLog("iop-test", { write: (line: string) => void lines.push(line) });
    const secret = "s3cr3t";
    const foreign = Object.assign(new Error("broken", { cause: new Error("below") }), {
      code: "E_BROKEN",
      headers: { authorization: secret },
    });
    log.info({ token: secret, headers: { authorization: secret }, a: { b: { "x-api-key": secret } } }, "one");
    log.error({ err: foreign, node: "gpu-1" }, "two");
    expect(lines.join("")).not.toContain(secret);
    const [one, two] = lines.map((line): unknown => JSON.parse(line));
    expect(lines.every((line) => line.indexOf("\n") === line.length - 1)).toBe(true);
    expect(one).toMatchObject({
      level: "info",
      name: "iop-test",
      msg: "one",
      token: "[secret]",
      time: expect.stringMatching(/Z$/),
    });
    expect(two).toMatchObject({
      level: "error",
      node: "gpu-1",
      err: { code: "E_BROKEN", message: "broken", cause: { message: "below" } },
    });
  });
});
