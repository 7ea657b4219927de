import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gatewaySettings } from "../gateway/config.ts";
import { inventorySettings } from "../inventory-svc/config.ts";
import { mistypedNames } from "./env-file.ts";

const gateway = Object.keys(gatewaySettings);
const inventory = Object.keys(inventorySettings);

/** What is said of a file with these lines. */
async function said(settings: readonly string[], lines: readonly string[], env: NodeJS.ProcessEnv = {}) {
  await using folder = await mkdtempDisposable(join(tmpdir(), "env-"));
  await writeFile(join(folder.path, ".env"), lines.join("\n"));
  const before = process.cwd();
  process.chdir(folder.path);
  try {
    return mistypedNames(settings, env);
  } finally {
    process.chdir(before);
  }
}

test("a name that is nearly a setting is named with it", async () => {
  expect(await said(gateway, ["MAX_CONNECTION=5", "log_level=debug", "LOG_LEVEL=info"])).toEqual([
    ".env: MAX_CONNECTION is no setting and has no effect; MAX_CONNECTIONS is one",
    ".env: log_level is no setting and has no effect; LOG_LEVEL is one",
  ]);
});

test("a name that lacks the end of a setting is named with it", async () => {
  expect(await said(gateway, ["INVENTORY_TIMEOUT=100", "TRUSTED_PROXY=10.0.0.1"])).toEqual([
    ".env: INVENTORY_TIMEOUT is no setting and has no effect; INVENTORY_TIMEOUT_MS is one",
    ".env: TRUSTED_PROXY is no setting and has no effect; TRUSTED_PROXIES is one",
  ]);
});

test("the settings of both tiers in one file, and names of other programs, are no mistake", async () => {
  const lines = [...gateway, ...inventory, "NODE_EXTRA_CA_CERTS", "COMPOSE_PROJECT_NAME"].map((name) => `${name}=1`);
  for (const settings of [gateway, inventory, ["LOG_LEVEL"]]) expect(await said(settings, lines)).toEqual([]);
});

test("a name in the environment is nearly a setting only while that one is not set", async () => {
  const env = { GATEWAY_LISTN: "127.0.0.1:8080", KEY_ROTATIN: "1", PLAN_LIMIT: "free=1/1", REDIS_URI: "redis://a" };
  expect(await said(gateway, [], { ...env, REDIS_URL: "redis://a" })).toEqual([
    "environment: GATEWAY_LISTN is no setting and has no effect; GATEWAY_LISTEN is one",
    "environment: KEY_ROTATIN is no setting and has no effect; KEY_ROTATION is one",
    "environment: PLAN_LIMIT is no setting and has no effect; PLAN_LIMITS is one",
  ]);
});

test("names that systemd, npm, Kubernetes and other programs set are no mistake", async () => {
  const names = [
    ..."_ PATH HOME KEY LANG LC_ALL LOGNAME USER SHELL TERM PWD TZ TMPDIR INVOCATION_ID JOURNAL_STREAM STATE_DIRECTORY".split(
      " ",
    ),
    ..."npm_config_cache npm_config_loglevel npm_package_name npm_lifecycle_event NODE_ENV NODE_OPTIONS".split(" "),
    ..."GATEWAY_PORT GATEWAY_SERVICE_HOST GATEWAY_SERVICE_PORT REDIS_HOST REDIS_PORT REDIS_DB KEY_ID REDIS_TLS_URL".split(
      " ",
    ),
    ..."INVENTORY_SVC_PORT INVENTORY_SVC_SERVICE_HOST OTEL_LOG_LEVEL OTEL_SERVICE_NAME LOG_FORMAT DATABASE_URL".split(
      " ",
    ),
  ];
  const env = Object.fromEntries(names.map((name) => [name, "1"]));
  for (const settings of [gateway, inventory]) expect(await said(settings, [], env)).toEqual([]);
});
