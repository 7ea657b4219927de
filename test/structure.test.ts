// Checks the imports between files and folders, the names that they export, the length of files, and titles of tests.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parse } from "@babel/parser";

/** The folders from the lowest to the highest: a file imports only from its own folder and from lower ones. */
const folders = [
  "rest-client",
  "proto",
  "runtime",
  "runtime/database",
  "client",
  "gateway/accounts/keys",
  "gateway/http",
  "gateway/limits",
  "gateway/admission",
  "gateway/accounts/usage",
  "gateway/inventory/list",
  "gateway/inventory",
  "gateway/inventory/reads",
  "gateway/inventory/updates",
  "gateway/passthrough",
  "gateway/accounts/own",
  "gateway/openapi",
  "gateway/pages",
  "gateway/observability",
  "gateway",
  "gateway/accounts/cli",
  "inventory-svc/stock",
  "inventory-svc/rpc",
  "inventory-svc/access",
  "inventory-svc",
  "inventory-svc/cli",
  "deploy",
  "deploy/local",
];

const maxLines = 250;
const maxTestLines = 500;
const maxTitleLength = 90;
const maxColumns = 120;

const root = join(import.meta.dirname, "..");
const sources = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "*.ts"], {
  cwd: root,
  encoding: "utf8",
})
  .trim()
  .split("\n")
  .filter((file) => existsSync(join(root, file))) // one that is being deleted is still known to git
  .filter((file) => !file.startsWith("proto/gen/") && file !== "gateway/pages/client-browser.d.ts");
const isOfTests = (file: string) => file.startsWith("test/") || file.endsWith(".test.ts");
const files = sources.filter((file) => !isOfTests(file));
const testFiles = sources.filter(isOfTests);
const texts = new Map(sources.map((file) => [file, readFileSync(join(root, file), "utf8")]));

/** The files of the project that a file imports, types included. */
function importsOf(file: string): string[] {
  const specifiers = [...texts.get(file)!.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*"(\.[^"]+\.ts)"/g)];
  return specifiers.map(([, path]) => join(dirname(file), path!)).filter((path) => files.includes(path));
}

/** A circle that a file is part of, in order; empty when there is none. */
function circleFrom(start: string): string[] {
  const walk = (path: string[]): string[] => {
    for (const next of importsOf(path.at(-1)!)) {
      if (next === start) return [...path, start];
      if (seen.has(next)) continue;
      seen.add(next);
      const found = walk([...path, next]);
      if (found.length > 0) return found;
    }
    return [];
  };
  const seen = new Set<string>();
  return walk([start]);
}

test("no file imports itself through others", () => {
  expect(files.map(circleFrom).filter((circle) => circle.length > 0)).toEqual([]);
});

test("every folder has its place, and imports only from lower ones", () => {
  expect([...new Set(files.map((file) => dirname(file)))].filter((folder) => !folders.includes(folder))).toEqual([]);
  const upward = files.flatMap((file) =>
    importsOf(file)
      .filter((other) => folders.indexOf(dirname(other)) > folders.indexOf(dirname(file)))
      .map((other) => `${file} → ${other}`),
  );
  expect(upward).toEqual([]);
});

test("the two tiers share no file but those below both", () => {
  const across = files.flatMap((file) =>
    importsOf(file)
      .filter((other) => [file, other].every((path) => /^(gateway|inventory-svc)\//.test(path)))
      .filter((other) => other.split("/")[0] !== file.split("/")[0])
      .map((other) => `${file} → ${other}`),
  );
  expect(across).toEqual([]);
});

test("the client of the public API and the product import nothing of each other", () => {
  const isClient = (file: string) => file.startsWith("rest-client/");
  const across = files.flatMap((file) =>
    importsOf(file)
      .filter((other) => isClient(file) !== isClient(other))
      .map((other) => `${file} → ${other}`),
  );
  expect(across).toEqual([]);
  const outside = files.filter(isClient).flatMap((file) => texts.get(file)!.match(/\bfrom "[^.][^"]*"/g) ?? []);
  expect(outside).toEqual([]);
});

test("no folder holds a single file", () => {
  const byFolder = Map.groupBy(files, (file) => dirname(file));
  expect([...byFolder].filter(([, ofFolder]) => ofFolder.length === 1).map(([folder]) => folder)).toEqual([]);
});

test("no name is exported from two files of a package", () => {
  const exported = files.flatMap((file) => {
    const inPackage = file.startsWith("rest-client/") ? "rest-client: " : "";
    const names = texts.get(file)!.matchAll(/^export (?:async )?(?:function\*?|class|const|interface|type) (\w+)/gm);
    return [...names].map(([, name]) => ({ name: `${inPackage}${name!}`, file }));
  });
  const twice = [...Map.groupBy(exported, ({ name }) => name)].filter(([, places]) => places.length > 1);
  expect(twice.map(([name, places]) => `${name}: ${places.map(({ file }) => file).join(", ")}`)).toEqual([]);
});

test("every file has a name of its own, but for those that mean the same in each package", () => {
  const named = execFileSync("git", ["ls-files", "*.ts", "*.js"], { cwd: root, encoding: "utf8" }).trim().split("\n");
  const byName = Map.groupBy(
    named.filter((file) => !file.startsWith("proto/gen/") && existsSync(join(root, file))),
    (file) => basename(file),
  );
  const alike = ["index.ts", "main.ts", "config.ts"];
  expect([...byName].filter(([name, places]) => places.length > 1 && !alike.includes(name))).toEqual([]);
});

const hasMoreLines = (lines: number) => (file: string) => texts.get(file)!.split("\n").length - 1 > lines;

test(`no file of the product has more than ${maxLines} lines`, () => {
  expect(files.filter(hasMoreLines(maxLines))).toEqual([]);
});

test(`no file of the tests has more than ${maxTestLines} lines`, () => {
  expect(testFiles.filter(hasMoreLines(maxTestLines))).toEqual([]);
});

test(`no comment goes beyond column ${maxColumns}`, () => {
  const written = [...files, ...testFiles].filter((file) => !texts.get(file)!.includes("do not edit"));
  const long = written.flatMap((file) => {
    const lines = texts.get(file)!.split("\n");
    return lines
      .filter((line) => line.length > maxColumns && /^ *(\/\/|\/?\*)|[;,{] \/\/ /.test(line))
      .map((line) => [file, line]);
  });
  expect(long).toEqual([]);
});

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [key: string]: unknown;
}

/** The title of a test or of a group of tests, with the places of its values, and the headings above it. */
interface Title {
  readonly text: string;
  readonly headings: readonly string[];
}

/** The titles of a file whose tests are declared with literal titles; other titles are left out. */
function titlesOf(file: string): Title[] {
  const text = texts.get(file)!;
  const found: Title[] = [];
  const visit = (node: Node, headings: readonly string[]) => {
    const declared = node.type === "CallExpression" ? declarationOf(node) : undefined;
    if (declared !== undefined) found.push({ text: text.slice(declared.start, declared.end), headings });
    const below = declared?.isGroup ? [...headings, text.slice(declared.start, declared.end)] : headings;
    for (const value of Object.values(node)) {
      for (const child of [value].flat() as (Partial<Node> | null)[])
        if (typeof child?.type === "string") visit(child as Node, below);
    }
  };
  const ast = parse(text, { sourceType: "module", plugins: ["typescript", "explicitResourceManagement"] });
  visit(ast.program as unknown as Node, []);
  return found;
}

/** What a call such as `test(…)`, `test.each(…)(…)` or `describe(…)` declares; undefined for another call. */
function declarationOf(call: Node): { start: number; end: number; isGroup: boolean } | undefined {
  const name = calledName(call.callee as Node);
  const [title] = call.arguments as Node[];
  if (!/^(test|it|describe\w*|\w+Test)$/.test(name)) return undefined;
  if (title === undefined || !["StringLiteral", "TemplateLiteral"].includes(title.type)) return undefined;
  return { start: title.start + 1, end: title.end - 1, isGroup: name.startsWith("describe") };
}

/** The name that a function is reached by: `test` of `test.each(cases)` and of `isLong ? test : test.skip`. */
function calledName(callee: Node): string {
  if (callee.type === "Identifier") return callee.name as string;
  const inner = callee.object ?? callee.callee ?? callee.tag ?? callee.consequent;
  return inner === undefined ? "" : calledName(inner as Node);
}

describe("titles of tests", () => {
  const titles = testFiles
    .filter((file) => file.endsWith(".test.ts"))
    .flatMap((file) => titlesOf(file).map((title) => ({ file, ...title })));
  const of = (wrong: (title: Title) => boolean) => titles.filter(wrong).map(({ file, text }) => `${file}: ${text}`);

  test(`no title has more than ${maxTitleLength} characters`, () => {
    expect(titles.length).toBeGreaterThan(1_500);
    expect(of(({ text }) => text.length > maxTitleLength)).toEqual([]);
  });

  test("no title begins with the heading above it", () => {
    expect(of(({ text, headings }) => headings.some((heading) => text.startsWith(`${heading} `)))).toEqual([]);
  });
});
