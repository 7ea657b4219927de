/** A complete program in each language, as readers copy it: the files of the folder `programs`. */
import { readFileSync } from "node:fs";
import type { CodeSample } from "./code-samples.ts";
import { localServer } from "./document.ts";

const files = { curl: "stock.sh", JavaScript: "stock.mjs", Python: "stock.py", Go: "stock.go" };

/** @param server the base address that the programs call */
export function programs(server: string): CodeSample[] {
  return Object.entries(files).map(([lang, file]) => {
    const source = readFileSync(new URL(`./programs/${file}`, import.meta.url), "utf8");
    return { lang, source: source.replace(localServer, server).trimEnd() };
  });
}
