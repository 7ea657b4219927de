import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gatewaySettings } from "../gateway/config.ts";
import { inventorySettings } from "../inventory-svc/config.ts";
import { mistypedNames } from "./env-file.ts";

const gateway = Object.keys(gatewaySettings);
const inventory = Object.keys(inventorySettings);

/** What is said of a file with these lines. */
async function said(settings: readonly string[], ...lines: readonly string[]) {
  await using folder = await mkdtempDisposable(join(tmpdir(), "env-"));
  await writeFile(join(folder.path, ".env"), lines.join("\n"));
  const before = process.cwd();
  process.chdir(folder.path);
  try {
    return mistypedNames(settings);
  } finally {
    process.chdir(before);
  }
}

test("a name that is nearly a setting is named with it", async () => {
  expect(await said(gateway, "MAX_CONNECTION=5", "log_level=debug", "LOG_LEVEL=info")).toEqual([
    ".env: MAX_CONNECTION is no setting and has no effect; MAX_CONNECTIONS is one",
    ".env: log_level is no setting and has no effect; LOG_LEVEL is one",
  ]);
});

test("the settings of both tiers in one file, and names of other programs, are no mistake", async () => {
  const lines = [...gateway, ...inventory, "NODE_EXTRA_CA_CERTS", "COMPOSE_PROJECT_NAME"].map((name) => `${name}=1`);
  for (const settings of [gateway, inventory, ["LOG_LEVEL"]]) expect(await said(settings, ...lines)).toEqual([]);
});
