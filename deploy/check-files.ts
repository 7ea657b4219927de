/**
 * Checks that the files made from the OpenAPI document, the REST client and the settings are up to date, that no merge
 * is half done, and that no link of a document is broken: `npm run check:files`.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { clientFiles } from "../gateway/openapi/client-file.ts";
import { clientTypes } from "../gateway/openapi/client-types.ts";
import { brokenLinks } from "./document-links.ts";
import { settingsFiles } from "./settings-table.ts";

const made = { "rest-client/types.ts": clientTypes(), ...clientFiles(), ...settingsFiles() };
for (const [path, text] of Object.entries(made)) {
  if (readFileSync(new URL(`../${path}`, import.meta.url), "utf8") === text) continue;
  process.stderr.write(`${path} is out of date: run npm run generate and npm run docs:settings\n`);
  process.exitCode = 1;
}

const marked = spawnSync("git", ["grep", "-nE", "^(<{7}|>{7}) "], { encoding: "utf8" }).stdout ?? "";
if (marked !== "") {
  process.stderr.write(`marks of an unfinished merge:\n${marked}`);
  process.exitCode = 1;
}

for (const link of brokenLinks()) {
  process.stderr.write(`${link} leads nowhere\n`);
  process.exitCode = 1;
}
