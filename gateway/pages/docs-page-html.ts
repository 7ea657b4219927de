/** Renders the documentation page from the OpenAPI document. Every address in it is relative: it works below any path. */
import type { CodeSample } from "../openapi/code-samples.ts";
import { escapeHtml, inline, markdownToHtml, slug, tableHtml } from "./markdown.ts";

/** What the page shows of an OpenAPI document. */
export interface ShownDocument {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly servers: readonly { readonly url: string; readonly description?: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, ShownOperation>>>>;
  readonly components?: unknown;
}

interface ShownOperation {
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly deprecated?: boolean;
  readonly parameters?: readonly unknown[];
  readonly requestBody?: { readonly description: string; readonly content: Content };
  readonly responses: Readonly<Record<string, unknown>>;
  readonly "x-experimental"?: boolean;
  readonly "x-sunset"?: string;
  readonly "x-codeSamples"?: readonly CodeSample[];
}

type Content = Readonly<
  Record<string, { readonly schema?: unknown; readonly example?: unknown; readonly examples?: object }>
>;

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description: string;
  readonly example?: unknown;
}

interface Answer {
  readonly description: string;
  readonly headers?: Readonly<Record<string, unknown>>;
  readonly content?: Content;
}

/** @param document with its references in `components` */
export function renderPage(document: ShownDocument): string {
  const { info, servers } = document;
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
  const headings = [...info.description.matchAll(/^## (.*)$/gm)].map(([, title]) => link(slug(title!), title!));
  const shown = operations.map(({ path, method, operation }) => renderOperation(document, path, method, operation));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(info.title)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
<script defer src="page.js"></script>
</head>
<body>
<header>
<h1>${escapeHtml(info.title)} <small>${escapeHtml(info.version)}</small></h1>
<p>${servers.map(({ url, description }) => `<code>${escapeHtml(url)}</code> ${escapeHtml(description ?? "")}`).join("<br>")}
<br>This page as a document for tools: <a href="../openapi.json">openapi.json</a>
<br>What your key has left and has used: <a href="../account/">your account</a></p>
</header>
<nav aria-label="Contents"><ul>
${headings.join("\n")}
${operations.map(({ path, method, operation }) => link(operation.operationId, `${method} ${path}`)).join("\n")}
</ul></nav>
<main>
${markdownToHtml(info.description, 2)}
<h2 id="operations">Operations</h2>
<form id="authorize" hidden>
<label for="key">API key, for the requests from this page</label>
<input id="key" type="password" autocomplete="off" spellcheck="false" aria-describedby="key-hint">
<p id="key-hint">The key alone, without <code>Bearer</code>. This page forgets it when it is closed.</p>
</form>
${shown.join("\n")}
</main>
</body>
</html>
`;
}

function link(id: string, text: string): string {
  return `<li><a href="#${id}">${escapeHtml(text)}</a></li>`;
}

function renderOperation(document: ShownDocument, path: string, method: string, operation: ShownOperation): string {
  const { operationId: id, summary, description, requestBody, responses } = operation;
  const parameters = (operation.parameters ?? []).map((parameter) => resolve(document, parameter) as Parameter);
  const answers = Object.entries(responses).map(([status, answer]) =>
    renderAnswer(document, status, resolve(document, answer) as Answer),
  );
  const samples = operation["x-codeSamples"] ?? [];
  const [type, body] = Object.entries(requestBody?.content ?? {})[0] ?? [];
  return `<article aria-labelledby="${id}">
<h3 id="${id}"><span class="method">${method}</span> <code>${escapeHtml(path)}</code></h3>
<p>${escapeHtml(summary)}${operation.deprecated ? ' <span class="badge">deprecated</span>' : ""}</p>
${markdownToHtml(description, 4)}
<h4>Parameters</h4>
${tableHtml(["Name", "In", "Meaning"], parameters.map(parameterRow))}
${requestBody ? `<h4>Body</h4><p>${escapeHtml(requestBody.description)}</p>${codeBlock(json(body?.example))}` : ""}
<h4>Samples</h4>
${samples.map(({ lang, source }) => details(lang, codeBlock(source))).join("\n")}
<h4>Responses</h4>
${answers.join("\n")}
<form class="try" data-method="${method}" data-path="${escapeHtml(path)}" hidden>
<h4>Try it</h4>
${parameters.map((parameter) => field(id, parameter)).join("\n")}
${requestBody ? `<label for="${id}-body">Body</label><textarea id="${id}-body" rows="3" data-type="${type}">${escapeHtml(json(body?.example))}</textarea>` : ""}
<button>Send ${method} ${escapeHtml(path)}</button>
<div role="status"></div>
</form>
</article>`;
}

function parameterRow({ name, in: place, required, description }: Parameter): string[] {
  return [inline(`\`${name}\``), `${place}${required ? " (required)" : ""}`, inline(description)];
}

function field(operationId: string, { name, in: place, required, example }: Parameter): string {
  const id = `${operationId}-${name}`;
  const value = required && example !== undefined ? ` value="${escapeHtml(String(example))}"` : "";
  return `<label for="${id}">${escapeHtml(name)}</label>
<input id="${id}" data-in="${place}" data-name="${escapeHtml(name)}"${value}${required ? " required" : ""} autocomplete="off">`;
}

function renderAnswer(document: ShownDocument, status: string, { description, headers, content }: Answer): string {
  const rows = Object.entries(headers ?? {}).map(([name, header]) => {
    const { description: meaning } = resolve(document, header) as { description: string };
    return [inline(`\`${name}\``), inline(meaning)];
  });
  const { example, examples = {} } = Object.values(content ?? {})[0] ?? {};
  const values = example === undefined ? Object.values(examples).map(({ value }) => value) : [example];
  return details(
    `${status} ${description.split(". ")[0]}`,
    `${markdownToHtml(description, 5)}
${values.map((value) => codeBlock(json(value))).join("\n")}
${tableHtml(["Header", "Meaning"], rows)}`,
  );
}

function details(summary: string, content: string): string {
  return `<details><summary>${escapeHtml(summary.replaceAll("`", ""))}</summary>${content}</details>`;
}

function codeBlock(text: string): string {
  return `<pre tabindex="0"><code>${escapeHtml(text)}</code></pre>`;
}

function json(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "";
}

/** What a `$ref` of the document refers to, such as `#/components/headers/Link`; any other node as it is. */
function resolve(document: ShownDocument, node: unknown): unknown {
  const { $ref } = node as { $ref?: string };
  if ($ref === undefined) return node;
  return $ref
    .split("/")
    .slice(1)
    .reduce<unknown>((parent, name) => (parent as Record<string, unknown>)[name], document);
}
