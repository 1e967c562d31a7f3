import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type BrowserContext, type Page, chromium } from "playwright-core";

/** Where Debian and others put it. */
const USUAL = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** The browser of this machine; undefined where there is none. `IOP_CHROMIUM` names another. */
export const chromiumPath: string | undefined = [process.env["IOP_CHROMIUM"] ?? "", ...USUAL].find((path) =>
  existsSync(path),
);

export interface Browser extends AsyncDisposable {
  readonly context: BrowserContext;
  readonly page: Page;
  /** What the page threw or the browser refused to run, in order. */
  readonly faults: readonly string[];
}

/** A headless browser with a profile of its own. */
export async function startBrowser(): Promise<Browser> {
  if (chromiumPath === undefined) throw new Error("there is no Chromium here");
  const profile = await mkdtemp(join(tmpdir(), "iop-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: chromiumPath,
    headless: true,
    viewport: { width: 1280, height: 900 },
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => void faults.push(String(error)));
  page.on("console", (message) => {
    if (/Content Security Policy/i.test(message.text())) faults.push(message.text());
  });
  return {
    context,
    page,
    faults,
    [Symbol.asyncDispose]: async () => {
      await context.close();
      await rm(profile, { recursive: true, force: true });
    },
  };
}
