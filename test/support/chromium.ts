import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { type Browser, chromium } from "playwright-core";
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
