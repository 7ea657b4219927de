import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { gatewayHelp, gatewaySettings } from "../gateway/config.ts";
import { inventoryHelp, inventorySettings } from "../inventory-svc/config.ts";
import { type SettingsShape, settingRows } from "../runtime/settings.ts";
import { suiteStack } from "../test/support/cleanup.ts";
import { openHelm } from "../test/support/helm.ts";

const tiers: Readonly<Record<Tier, SettingsShape>> = { gateway: gatewaySettings, "inventory-svc": inventorySettings };
type Tier = "gateway" | "inventory-svc";

/** What a document says of a tier's settings: names, and defaults where it tells them. */
type Said = ReadonlyMap<string, string | undefined>;

/** Each place that lists the settings, and how to read them there. A new one is a line here. */
const documents: Readonly<Record<string, (tier: Tier) => Said | Promise<Said>>> = {
  "--help": (tier) => {
    const help = { gateway: gatewayHelp, "inventory-svc": inventoryHelp }[tier];
    return entries(help, /^ {2}([A-Z_]+) .*\(default: (.*)\)$/gm);
  },
  "README.md": (tier) => {
    const heading = { gateway: "### Gateway", "inventory-svc": "### inventory-svc" }[tier];
    const section = read("README.md").split(`${heading}\n`)[1]!.split("\n#")[0]!;
    return entries(section, /^\| `([A-Z_]+)` \| (.*?) \|/gm);
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

describe.each(Object.keys(tiers) as Tier[])("the settings of %s", (tier) => {
  const settings = tiers[tier];

  test.each(Object.keys(documents))("are all in %s, and no others", async (document) => {
    const said = await documents[document]!(tier);
    const names = Object.keys(settings);
    expect({
      missing: names.filter((name) => !said.has(name)),
      unknown: [...said.keys()].filter((name) => !names.includes(name)),
    }).toEqual({ missing: [], unknown: [] });
  });

  test.each(Object.keys(documents))("have the same defaults in %s", async (document) => {
    const said = await documents[document]!(tier);
    const shown = new Map(settingRows(settings).map(([name, byDefault]) => [name, byDefault]));
    const different = [...said].filter(([name, text]) => {
      if (text === undefined || plain(text) === plain(shown.get(name)!)) return false;
      const { success, data } = settings[name]!.safeParse(text === "" ? undefined : text);
      return !success || JSON.stringify(data) !== JSON.stringify(settings[name]!.parse(undefined));
    });
    expect(different).toEqual([]);
  });
});

const helm = suiteStack();
let chart: ReturnType<typeof openHelm> | undefined;

/** The chart's own values count as its defaults; what it fills in by itself or takes from secrets has none. */
async function chartSettings(tier: Tier): Promise<Said> {
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

function entries(text: string, pattern: RegExp): Said {
  return new Map([...text.matchAll(pattern)].map(([, name, value]) => [name!, value!]));
}

/** Without the quotes of Markdown, and without what `npm start` makes of it. */
function plain(text: string): string {
  return text.replaceAll("`", "").split("; npm start")[0]!;
}

function read(path: string): string {
  return readFileSync(new URL(`../${path}`, import.meta.url), "utf8");
}
