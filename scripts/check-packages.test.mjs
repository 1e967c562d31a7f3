import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { checkPackages } from "./check-packages.mjs";

let root;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "iop-check-"));
  mkdirSync(join(root, "reference"));
  write("packages/wire/package.json", '{ "name": "@iop/wire" }');
});
afterEach(() => rmSync(root, { recursive: true }));

function write(file, text) {
  mkdirSync(join(root, dirname(file)), { recursive: true });
  writeFileSync(join(root, file), text);
}

it("lets pass what the table allows", () => {
  write(
    "packages/wire/src/tcp.ts",
    'import { connect } from "node:net";\nimport { x } from "@bufbuild/protobuf/wire";\nexport * from "./a.ts";\n',
  );
  write("packages/wire/src/a.test.ts", 'import fc from "fast-check";\n');
  write("packages/wire/src/gen/x_pb.ts", `import "anything";\n${"\n".repeat(1000)}`);
  write(
    "packages/wire/src/b.ts",
    '// from "undici"\n/* import "undici" */\nexport const u = "http://x"; // "',
  );
  expect(checkPackages(root)).toEqual([]);
});

it.each([
  ["a package of ours", '\nimport type { E } from "@iop/edge-core";', ":2: may not import @iop/edge-core"],
  ["a subpath", 'import { E } from "@iop/edge-core/x";', ":1: may not import @iop/edge-core/x"],
  ["a package of others", "import {\n  request,\n} from 'undici';", ":3: may not import undici"],
  ["a re-export", 'export * from "zod";', ":1: may not import zod"],
  ["an import for its effect", 'import "zod";', ":1: may not import zod"],
  ["a dynamic import", 'const x = await import("zod");', ":1: may not import zod"],
  ["a type import", 'type X = import("zod").Y;', ":1: may not import zod"],
  ["an import after a comment", '/* "x */ import "zod";', ":1: may not import zod"],
  ["Node itself", 'import { x } from "node:fs";', ":1: may not import node:fs: it is to run without Node"],
  ["Node by its short name", 'import { x } from "fs";', ":1: write node:fs"],
  [
    "itself by name",
    'import { x } from "@iop/wire";',
    ":1: imports itself as @iop/wire; use a relative path",
  ],
  [
    "another folder",
    'import { x } from "../../../edge-core/src/x.ts";',
    ":1: ../../../edge-core/src/x.ts leaves the package's src",
  ],
  ["too many lines", "\n".repeat(401), ":401: has 401 lines; at most 400"],
])("catches %s", (_name, text, expected) => {
  write("packages/wire/src/sub/bad.ts", text);
  expect(checkPackages(root)).toEqual([`packages/wire/src/sub/bad.ts${expected}`]);
});

it("catches a dependency, a long index and a package without a row", () => {
  write("packages/wire/package.json", '{\n  "name": "@iop/wire",\n  "dependencies": { "zod": "1" }\n}');
  write("packages/wire/src/index.ts", "\n".repeat(101));
  write("packages/other/package.json", "{}");
  expect(checkPackages(root)).toEqual([
    "packages/other/package.json:1: the package has no row in scripts/package-rules.mjs",
    "packages/wire/package.json:3: may not depend on zod",
    "packages/wire/src/index.ts:101: has 101 lines; at most 100",
  ]);
});
