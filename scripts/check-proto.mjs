// Lints the protobuf source and fails when the generated code is not what it generates.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const generated = "packages/wire/src/gen/iop/runtime_pb.ts";
const before = readFileSync(generated, "utf8");
execFileSync("buf", ["lint"], { stdio: "inherit" });
execFileSync("buf", ["generate"], { stdio: "inherit" });
if (readFileSync(generated, "utf8") !== before) {
  console.error(`${generated} was not current; it has been regenerated: commit it`);
  process.exit(1);
}
