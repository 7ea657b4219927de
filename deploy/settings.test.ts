import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { gatewaySettings } from "../gateway/config.ts";
import { inventorySettings } from "../inventory-svc/config.ts";
import { type SettingsShape, settingRows } from "../runtime/settings.ts";
import { openHelm } from "../test/support/helm.ts";
import { runScript } from "../test/support/processes.ts";
import { suiteStack } from "../test/support/stack.ts";
import { settingsFiles } from "./settings-table.ts";

const tiers: Readonly<Record<Tier, SettingsShape>> = { gateway: gatewaySettings, "inventory-svc": inventorySettings };
type Tier = "gateway" | "inventory-svc";

/** The settings of a tier in one place: names, and defaults where the place has them. */
type Listed = ReadonlyMap<string, string | undefined>;

/** Each place that lists the settings, and how to read it. A new place is a line here. */
const places: Readonly<Record<string, (tier: Tier) => Listed | Promise<Listed>>> = {
  "--help": async (tier) => {
    const { stdout } = await runScript({ script: `${tier}/main.ts`, args: ["--help"] });
    return entries(stdout, /^ {2}([A-Z_]+) .*\(default: (.*)\)$/gm);
  },
  ".env.example": (tier) => {
    const sections = read(".env.example").split(/^# ---- (.*) ----$/m);
    const heading = { gateway: "Gateway", "inventory-svc": "inventory-svc" }[tier];
    const section = (name: string) => sections[sections.indexOf(name) + 1]!;
    const lines = section("Both tiers") + section(heading);
    return new Map([...entries(lines, /^# ([A-Z_]+)=(.*)$/gm)].map(([name, value]) => [name, value || undefined]));
  },
  "the Helm chart": chartSettings,
  Compose: (tier) => {
    const { services } = parse(read("deploy/compose/compose.yaml"), { merge: true });
    return new Map(Object.keys(services[tier].environment).map((name) => [name, undefined]));
  },
};

test.each(Object.entries(settingsFiles()))("%s is as npm run docs:settings writes it", (path, text) => {
  expect(read(path)).toBe(text);
});

describe.each(Object.keys(tiers) as Tier[])("the settings of %s", (tier) => {
  const settings = tiers[tier];

  test.each(Object.keys(places))(`the settings of ${tier} are all in %s, and no others`, async (place) => {
    const listed = await places[place]!(tier);
    const names = Object.keys(settings);
    expect({
      missing: names.filter((name) => !listed.has(name)),
      unknown: [...listed.keys()].filter((name) => !names.includes(name)),
    }).toEqual({ missing: [], unknown: [] });
  });

  test.each(Object.keys(places))(`the settings of ${tier} have the same defaults in %s`, async (place) => {
    const listed = await places[place]!(tier);
    const shown = new Map(settingRows(settings).map(([name, byDefault]) => [name, byDefault]));
    const different = [...listed].filter(([name, text]) => {
      if (text === undefined || text === shown.get(name)) return false;
      const { success, data } = settings[name]!.safeParse(text === "" ? undefined : text);
      return !success || JSON.stringify(data) !== JSON.stringify(settings[name]!.parse(undefined));
    });
    expect(different).toEqual([]);
  });
});

const helm = suiteStack();
let chart: ReturnType<typeof openHelm> | undefined;

/** The chart's own values count as its defaults; what it fills in by itself or takes from secrets has none. */
async function chartSettings(tier: Tier): Promise<Listed> {
  chart ??= openHelm(join(import.meta.dirname, "chart")).then((opened) => {
    helm.defer(() => opened.remove());
    return opened;
  });
  const manifests = await (await chart).render();
  const [map, deployment] = ["ConfigMap", "Deployment"].map(
    (kind) => manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === `petstore-${tier}`)!,
  );
  const values = entries(valuesOf(tier), /^ {4}([A-Z_]+): "?(.*?)"?$/gm);
  const { env } = deployment!.spec.template.spec.containers[0];
  return new Map(
    [...Object.keys(map!.data!), ...env.map(({ name }: { name: string }) => name)].map((name) => [
      name,
      values.get(name),
    ]),
  );
}

function valuesOf(tier: Tier): string {
  return read("deploy/chart/values.yaml").split(`\n${tier}:\n`)[1]!.split(/^\S/m)[0]!;
}

function entries(text: string, pattern: RegExp): Listed {
  return new Map([...text.matchAll(pattern)].map(([, name, value]) => [name!, value!]));
}

function read(path: string): string {
  return readFileSync(new URL(`../${path}`, import.meta.url), "utf8");
}
