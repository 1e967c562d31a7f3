import { expect, it } from "vitest";
import { ConfigError } from "./config-problem.ts";
import { createLog } from "./log.ts";
import { ignoreHangup, watchReload } from "./reload.ts";

/** A log, and the level and message of each line of it. */
function recorded(): { readonly log: ReturnType<typeof createLog>; readonly lines: string[] } {
  const lines: string[] = [];
  const log = createLog("test", {
    write: (line) => {
      const { level, msg }: { level: string; msg: string } = JSON.parse(line);
      lines.push(`${level}: ${msg}`);
    },
  });
  return { log, lines };
}

const problem = (line: number) => ({
  line,
  column: 3,
  path: ["a"],
  message: "is wrong",
  severity: "error" as const,
});
const { signal } = new AbortController();

it("hands on what the file says each time, its warnings to the log", () => {
  const { log, lines } = recorded();
  let version = 0;
  const load = () => ({
    config: ++version,
    warnings: version === 2 ? [{ ...problem(1), severity: "warning" as const }] : [],
  });
  const taken: number[] = [];
  using watch = watchReload({ file: "f.yaml", load, log, signal });
  watch.onReload((config) => taken.push(config));
  process.emit("SIGHUP");
  process.emit("SIGHUP");
  expect(taken).toEqual([1, 2]);
  expect(lines).toEqual(["warn: f.yaml:1:3: a: warning: is wrong"]);
});

it("one that came before there was anybody to take it counts, once", () => {
  const { log } = recorded();
  const taken: string[] = [];
  using watch = watchReload({
    file: "f.yaml",
    load: () => ({ config: "config", warnings: [] }),
    log,
    signal,
  });
  process.emit("SIGHUP");
  process.emit("SIGHUP");
  watch.onReload((config) => taken.push(config));
  expect(taken).toEqual(["config"]);
});

it.each([
  [
    "a file with problems, each with its place",
    () => {
      throw new ConfigError("f.yaml", [problem(2), problem(7)]);
    },
    () => {},
    ["error: f.yaml:2:3: a: is wrong", "error: f.yaml:7:3: a: is wrong", "f.yaml has problems"],
  ],
  [
    "one that is not taken",
    () => ({ config: 1, warnings: [] }),
    () => {
      throw new Error("not like this");
    },
    ["not like this"],
  ],
])("%s: the log says so, and nothing ends", (_name, load, apply, said) => {
  const { log, lines } = recorded();
  using watch = watchReload<number>({ file: "f.yaml", load, log, signal });
  watch.onReload(apply);
  process.emit("SIGHUP");
  const why = said.pop();
  expect(lines).toEqual([...said, `error: not reloaded, the configuration stays as it was: ${why}`]);
});

it("is over with a shutdown, and stops to watch when it is disposed of", () => {
  const { log, lines } = recorded();
  const shutdown = new AbortController();
  const before = process.listenerCount("SIGHUP");
  const taken: string[] = [];
  {
    using watch = watchReload({
      file: "f.yaml",
      load: () => ({ config: "config", warnings: [] }),
      log,
      signal: shutdown.signal,
    });
    watch.onReload((config) => taken.push(config));
    using ignored = ignoreHangup(log);
    ignored.onReload(() => taken.push("never"));
    shutdown.abort();
    process.emit("SIGHUP");
  }
  expect(taken).toEqual([]);
  expect(lines).toEqual(["warn: SIGHUP ignored: this program reads its configuration only when it starts"]);
  expect(process.listenerCount("SIGHUP")).toBe(before);
});
