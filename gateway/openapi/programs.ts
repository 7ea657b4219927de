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

/** The client that is served beside the documents, in use. @param server the base address that it calls */
export function clientExample(server: string): string {
  return `import { createInventoryApi } from "./client.js";

const api = createInventoryApi({
  baseUrl: "${server}",
  apiKey: process.env.KEY,
});
const list = await api.list();
for (const { petId, quantity } of list) {
  console.log(petId, quantity);
}

// A petId is a bigint: JSON.stringify throws on one.
const exact = (_name, value) =>
  typeof value === "bigint" ? String(value) : value;
console.log(JSON.stringify(list, exact));`;
}
