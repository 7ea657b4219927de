import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { isIPv4 } from "node:net";
import { join } from "node:path";
import { parseEnv, promisify } from "node:util";
import { gatewaySettings, readGatewayConfig } from "../../gateway/config.ts";
import { inventorySettings, readInventoryConfig } from "../../inventory-svc/config.ts";
import { processSettings } from "../../runtime/settings.ts";
import { suiteStack } from "../support/stack.ts";
import { documentedCommands } from "./compose-project.ts";
import { type Engine, openEngine } from "./container-engine.ts";
import { projectRoot } from "./product-images.ts";

const folder = join(projectRoot, "deploy/compose");

/** A service as Compose understands it. */
interface Service {
  readonly environment?: Readonly<Record<string, string>>;
  readonly build?: { readonly context: string; readonly target: string };
  readonly deploy?: { readonly replicas: number };
  readonly stop_grace_period?: string;
  readonly entrypoint?: readonly string[] | null;
  readonly volumes?: readonly { readonly type: string; readonly source: string }[];
}

const readEnvFile = async (name: string) =>
  parseEnv(await readFile(join(folder, name), "utf8")) as Record<string, string>;

/** Values for the secrets that the document puts into secrets.env. */
async function secrets(): Promise<Record<string, string>> {
  const [start] = await documentedCommands("Docker Compose, on one machine");
  const [, names] = /for name in ([A-Z_\s\\]+); do/.exec(start!)!;
  return Object.fromEntries(
    names!.match(/[A-Z_]+/g)!.map((name) => [name, `0123456789-0123456789-0123456789-${name}`]),
  );
}

describe.each(["production.env", "staging.env"])("compose.yaml with %s", (name) => {
  const stack = suiteStack();
  let engine: Engine;
  let env: Record<string, string>;
  let services: Record<string, Service>;

  /** What Compose makes of the file. It refuses a file against its schema, and a required variable without a value. */
  const config = async (given: Readonly<Record<string, string>>) => {
    const command = "docker compose --profile tools config --format json";
    const options = { cwd: folder, env: { ...engine.env, ...given } };
    return JSON.parse((await promisify(execFile)("sh", ["-c", command], options)).stdout);
  };

  beforeAll(async () => {
    engine = await openEngine(stack);
    env = { ...(await readEnvFile(name)), ...(await secrets()) };
    ({ services } = await config(env));
  }, 600_000);

  test(`compose.yaml with ${name} requires every secret`, async () => {
    for (const secret of Object.keys(await secrets())) {
      const { [secret]: _, ...rest } = env;
      await expect(config(rest)).rejects.toThrow(secret);
    }
  });

  test(`compose.yaml uses every variable of ${name}`, async () => {
    const text = await readFile(join(folder, "compose.yaml"), "utf8");
    const used = new Set([...text.matchAll(/\$\{(\w+)/g)].map(([, variable]) => variable));
    expect(Object.keys(env).filter((one) => !used.has(one))).toEqual([]);
  });

  test(`compose.yaml with ${name} gives both tiers settings that they know and accept`, () => {
    const { gateway, "inventory-svc": inventory, keys, stock, migrate } = services;
    const names = (...all: (Service | undefined)[]) => all.flatMap((service) => Object.keys(service!.environment!));
    const unknown = (given: string[], shape: object) => given.filter((one) => !(one in shape));
    expect(unknown(names(gateway, keys), gatewaySettings)).toEqual([]);
    expect(unknown(names(inventory, stock), inventorySettings)).toEqual([]);
    expect(unknown(names(migrate), { ...gatewaySettings, ...inventorySettings })).toEqual([]);
    const accepted = readGatewayConfig(gateway!.environment!);
    readInventoryConfig(inventory!.environment!);
    expect(accepted.GATEWAY_REPLICAS).toBe(gateway!.deploy!.replicas);
    expect(accepted.TRUSTED_PROXIES.every(isIPv4)).toBe(true);
  });

  test.each([
    ["the default", "", processSettings.DRAIN_SECONDS.parse(undefined)],
    ["less than the default", "3", 3],
    ["more than a minute", "90", 90],
  ])(`compose.yaml with ${name} lets both tiers drain 5 s longer than DRAIN_SECONDS: %s`, async (_, given, seconds) => {
    const { gateway, "inventory-svc": inventory } = (await config({ ...env, DRAIN_SECONDS: given })).services;
    for (const { stop_grace_period: period } of [gateway, inventory]) expect(secondsOf(period)).toBe(seconds + 5);
  });

  test(`compose.yaml with ${name} mounts files that exist`, () => {
    const mounts = Object.values(services).flatMap(({ volumes = [] }) => volumes);
    const files = mounts.filter(({ type }) => type === "bind").map(({ source }) => source);
    expect(files.length).toBeGreaterThan(3);
    expect(files.filter((path) => !existsSync(path))).toEqual([]);
  });
});

test("staging and production share only the URLs of upstreams, so one machine can run both", async () => {
  const [production, staging] = await Promise.all([readEnvFile("production.env"), readEnvFile("staging.env")]);
  const same = Object.keys(production).filter((name) => production[name] === staging[name]);
  expect(same.sort()).toEqual(["ORDERS_UPSTREAM_URL", "PETS_UPSTREAM_URL"]);
});

test("HAProxy waits longer than a request may wait for a change", async () => {
  const text = await readFile(join(folder, "haproxy.cfg"), "utf8");
  const timeouts = [...text.matchAll(/^ *timeout (client|server|tunnel) +(.*)$/gm)];
  // The longest wait is 90 s.
  expect(timeouts.map(([, name, time]) => [name, time])).toEqual([
    ["client", "100s"],
    ["server", "100s"],
  ]);
});

/** Seconds of a time as Compose writes it: 1m35s. */
function secondsOf(period: string): number {
  const [, minutes = "0", seconds] = /^(?:(\d+)m)?(\d+)s$/.exec(period)!;
  return Number(minutes) * 60 + Number(seconds);
}
