import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { promisify } from "node:util";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { findProgram } from "./server-programs.ts";

const programs = ["chromium", "chromium-browser", "google-chrome"];

const args = [
  "--headless",
  "--no-sandbox", // its sandbox refuses root, and the tests open nothing but their own pages
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const choices = `The browser tests need Chromium. Any one of these will do:
  - ${programs.join(" or ")} in PATH (Debian: apt-get install chromium)
  - a run as root on Debian with a package archive in reach, which installs it`;

/** Time for a hook that may have to install Chromium first. */
export const installTimeoutMs = 600_000;

/**
 * Starts a headless Chromium. Where it is missing and this is root on Debian, it is installed first.
 * @throws Error that names the choices, when it is missing and cannot be installed
 */
export async function startChromium(): Promise<Browser> {
  const executablePath = findProgram(programs) ?? (await install());
  return chromium.launch({ executablePath, args });
}

export interface OpenPage {
  readonly page: Page;
  /** Errors and warnings of the console, including policy violations, exceptions, and failed requests. */
  readonly faults: readonly string[];
  readonly requested: readonly string[];
}

/** Opens an address in a context of its own, without storage of others, and notes what happens there. */
export async function openPage(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<OpenPage> {
  const page = await browser.newPage(options);
  const faults: string[] = [];
  const requested: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("requestfailed", (failed) => faults.push(`failed: ${failed.url()} ${failed.failure()?.errorText}`));
  page.on("request", (sent) => requested.push(sent.url()));
  page.on("response", (response) => {
    if (response.status() >= 400) faults.push(`${response.status()}: ${response.url()}`);
  });
  await page.goto(url, { waitUntil: "networkidle" });
  return { page, faults, requested };
}

/** What axe-core finds on a page: the rule, and the elements that break it. */
export async function axeViolations(page: Page): Promise<[rule: string, elements: string[]][]> {
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
  const { violations } = (await page.evaluate("axe.run()")) as {
    violations: { id: string; nodes: { html: string }[] }[];
  };
  return violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]);
}

async function install(): Promise<string> {
  const aptGet = findProgram(["apt-get"]);
  if (process.getuid?.() !== 0 || aptGet === undefined) throw new Error(choices);
  console.warn("The tests need chromium: installing from Debian's archive, which takes a minute.");
  const run = (...command: string[]) =>
    promisify(execFile)(aptGet, ["-o", "DPkg::Lock::Timeout=300", ...command], {
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
      maxBuffer: 64 * 1024 * 1024,
    });
  // A failed update is ignored: the lists on this machine may suffice, and otherwise the installation fails.
  await run("update").catch(() => {});
  await run("install", "-y", "--no-install-recommends", "--no-remove", "chromium").catch((cause) => {
    throw new Error(choices, { cause });
  });
  const program = findProgram(programs);
  if (program === undefined) throw new Error(choices);
  return program;
}
