/** Lints the filled OpenAPI document, with and without announced dates: `npm run check:openapi`. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { publishedPlans } from "../accounts/keys/plans.ts";
import { publishedBanRules } from "../admission/bans.ts";
import { openApiDocument } from "./document.ts";

const common = {
  servers: [],
  plans: publishedPlans,
  banRules: publishedBanRules,
  addressGuardPerMinute: 60,
  keyedUpdatesPerDay: 200_000,
  hasKeyRotation: true,
};
const documents = {
  announced: openApiDocument({
    ...common,
    deprecations: { getPet: { deprecatedAt: new Date("2026-01-01"), sunsetAt: new Date("2027-07-01") } },
  }),
  unannounced: openApiDocument({ ...common, deprecations: { getPet: { deprecatedAt: null, sunsetAt: null } } }),
};

const folder = mkdtempSync(join(tmpdir(), "petstore-openapi-"));
try {
  const files = Object.entries(documents).map(([name, document]) => {
    const file = join(folder, `${name}.json`);
    writeFileSync(file, JSON.stringify(document, null, 2));
    return file;
  });
  const redocly = createRequire(import.meta.url).resolve("@redocly/cli/bin/cli.js");
  // Strict: a warning fails too. Redocly reports its use and looks for updates unless told not to.
  const { status } = spawnSync(process.execPath, [redocly, "lint", "--extends=recommended-strict", ...files], {
    stdio: "inherit",
    env: { ...process.env, REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" },
  });
  process.exitCode = status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
