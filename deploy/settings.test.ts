import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv } from "ajv";
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

/** What the chart sets for a tier because of Kubernetes; it says why beside it. */
const ofChart: Partial<Record<Tier, readonly string[]>> = {
  "inventory-svc": ["DRAIN_SECONDS", "DRAIN_DELAY_SECONDS"],
};

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
      if (place === "the Helm chart" && ofChart[tier]?.includes(name)) return false;
      const { success, data } = settings[name]!.safeParse(text === "" ? undefined : text);
      return !success || JSON.stringify(data) !== JSON.stringify(settings[name]!.parse(undefined));
    });
    expect(different).toEqual([]);
  });
});

/** Texts of which each is right for some settings and wrong for most. */
const texts = [
  ...["0", "1", "2", "10", "50", "100", "500", "1000", "3600", "3601", "5000", "5001", "60000", "60001", "86400000"],
  ...["86400001", "1000000", "1000001", "-1", "+1", "1.5", "1e3", " 1", "1 ", "x", "true", "false", "yes", "none"],
  ...["info", "loud", "live", "Live", "2027-07-01", "2027-02-30", "2027-07-01T00:00:00Z", "2027-07-01T00:00:00"],
  ...["https://a.example/v1", "https://a.example/v1, http://b/shop/v1", "https://a.example/", "ftp://a/v1", "a/v1"],
  ...["http://pets", "HTTPS://pets:8080/a", "http:// pets", "10.0.0.1", "10.0.0.0/8, ::1", "fd00::/8", "10.0.0.0/0"],
  ...["10.0.0.256", "10.0.0.0/33", "::/129", "free=1/2", "free=1/2,pro=3/4", "free=0/2", "enterprise=1/2", "gold=1/2"],
  ...["5,15,60", "5,,15", "5;15"],
];

describe.each(Object.keys(tiers) as Tier[])("the values of the chart for %s", (tier) => {
  test(`the chart takes each text that ${tier} takes for a setting, and no other`, () => {
    const isTaken = new Ajv().compile({ type: "object", properties: chartTexts(tier) });
    const different = Object.keys(chartTexts(tier)).flatMap((name) =>
      texts.flatMap((text) => {
        const [byChart, byTier] = [isTaken({ [name]: text }), tiers[tier][name]!.safeParse(text).success];
        return byChart === byTier ? [] : { name, text, byChart, byTier };
      }),
    );
    expect(different).toEqual([]);
  });
});

const helm = suiteStack();
let chart: ReturnType<typeof openHelm> | undefined;

/** What the chart fills in or takes from secrets, what its values have, with their defaults, and what they may have. */
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
  const names = [map!.data!, chartTexts(tier)].flatMap(Object.keys);
  return new Map([...names, ...env.map(({ name }: { name: string }) => name)].map((name) => [name, values.get(name)]));
}

/** The schemas of the settings that the values of the chart may have. */
function chartTexts(tier: Tier): Readonly<Record<string, object>> {
  return JSON.parse(read("deploy/chart/values.schema.json")).properties[tier].properties.settings.properties;
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
