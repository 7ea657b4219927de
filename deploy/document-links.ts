/**
 * Finds broken links: those of documents, to files and headings, and the paths of documents in other files.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const root = join(import.meta.dirname, "..");

/** A link to a file or a heading. Links to other sites and in blocks of code do not count. */
const link = /\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)/g;
/** The path of a document, from the root, in another file: a source, the rule of an alert or a systemd unit. */
const namedDocument = /\b(docs\/[\w/-]+\.md)(?:#([\w-]+))?/g;

/** @returns a line for each link that leads to no file or to no heading of it */
export function brokenLinks(): string[] {
  const list = ["ls-files", "--cached", "--others", "--exclude-standard"];
  const files = execFileSync("git", list, { cwd: root, encoding: "utf8" }).trim().split("\n");
  return files
    .filter((file) => existsSync(join(root, file)) && /\.(md|ts|ya?ml|sh|service)$/.test(file))
    .flatMap(linksFrom);
}

function linksFrom(file: string): string[] {
  const isDocument = file.endsWith(".md");
  const text = isDocument ? withoutCode(read(file)) : read(file);
  return [...text.matchAll(isDocument ? link : namedDocument)]
    .filter(([, path, anchor]) => !leadsSomewhere(isDocument ? targetOf(file, path!) : path!, anchor))
    .map(([found]) => `${file}: ${found}`);
}

/** The path from the root of what a document links to; without a path it links to itself. */
const targetOf = (file: string, path: string) => (path === "" ? file : relative(root, join(root, dirname(file), path)));

function leadsSomewhere(path: string, anchor: string | undefined): boolean {
  if (!existsSync(join(root, path))) return false;
  return anchor === undefined || !path.endsWith(".md") || anchorsOf(path).includes(anchor);
}

/** The anchors of the headings of a document, made as GitHub makes them. */
function anchorsOf(path: string): string[] {
  const titles = [...withoutCode(read(path)).matchAll(/^#+ +(.+)$/gm)].map(([, title]) => title!.toLowerCase());
  const anchors = titles.map((title) => title.replace(/[^\p{L}\p{N}_ -]/gu, "").replaceAll(" ", "-"));
  return anchors.map((anchor, i) => {
    const before = anchors.slice(0, i).filter((other) => other === anchor).length;
    return before === 0 ? anchor : `${anchor}-${before}`;
  });
}

const withoutCode = (text: string) => text.replace(/^ *```[\s\S]*?^ *```/gm, "");

const read = (file: string) => readFileSync(join(root, file), "utf8");
