import { defineConfig } from "tsup";
import { library } from "../../tsup.base.ts";

export default defineConfig(library(["src/main.ts"]));
