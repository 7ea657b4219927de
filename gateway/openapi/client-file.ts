/** Writes the REST client as one file with its types, which the gateway serves: `npm run generate`. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "../..");
const imports = /^import[^;]*? from "\.\/([\w-]+\.ts)";\n/gm;
const exportsOfOthers = /^export (?:type )?(?:\*|\{[^}]*\}) from [^;]*;\n/gm;

/** The texts of the client's file and of its types, by their paths in the repository. */
export function clientFiles(): Record<string, string> {
  const folder = mkdtempSync(join(tmpdir(), "client-"));
  try {
    writeFileSync(join(folder, "client.ts"), clientSource());
    // A name that two of the joined files declare is an error here.
    const options =
      "--ignoreConfig --strict --declaration --target es2022 --module esnext --lib es2022,dom,dom.iterable";
    execFileSync(join(root, "node_modules/.bin/tsc"), [...options.split(" "), "--types", "", "client.ts"], {
      cwd: folder,
      stdio: ["ignore", "inherit", "inherit"],
    });
    const made = (name: string) => readFileSync(join(folder, name), "utf8");
    return {
      "gateway/pages/client-browser.js": `${head}// @ts-self-types="./client.d.ts"\n${made("client.js")}`,
      "gateway/pages/client-browser.d.ts": `${head}${made("client.d.ts")}`,
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const head = "// Generated from rest-client/ by `npm run generate`; do not edit. Apache-2.0.\n";

/** The sources of `rest-client/`, each after those that it imports, with the exports of its `index.ts` alone. */
function clientSource(): string {
  const sources = new Map<string, string>();
  const add = (name: string) => {
    if (sources.has(name)) return;
    const text = readFileSync(join(root, "rest-client", name), "utf8");
    sources.set(name, "");
    for (const [, other] of text.matchAll(imports)) add(other!);
    sources.delete(name);
    sources.set(name, text.replace(imports, "").replace(exportsOfOthers, ""));
  };
  add("index.ts");
  const index = readFileSync(join(root, "rest-client/index.ts"), "utf8");
  const isWhole = (name: string) => name === "index.ts" || index.includes(`export type * from "./${name}"`);
  const named = [...index.matchAll(/^export (?:type )?\{([^}]*)\} from/gm)].flatMap(
    ([, names]) => names!.match(/\w+/g)!,
  );
  const texts = [...sources].map(([name, text]) =>
    isWhole(name)
      ? text
      : text.replace(/^export (?=[^;{]*?\b(?:function\*?|class|const|interface|type) (\w+))/gm, (keyword, exported) =>
          named.includes(exported) ? keyword : "",
        ),
  );
  return texts.join("\n");
}

if (import.meta.main) {
  for (const [path, text] of Object.entries(clientFiles())) writeFileSync(join(root, path), text);
}
