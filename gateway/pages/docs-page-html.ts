/** Renders the documentation page from the OpenAPI document: contents, text, and code beside it. */
import { STATUS_CODES } from "node:http";
import { errorTable } from "../http/api-error.ts";
import { errorHelp } from "../openapi/error-help.ts";
import { clientExample, programs } from "../openapi/programs.ts";
import {
  examplesOf,
  operationsOf,
  type PlacedOperation,
  type ShownDocument,
  sampleServer,
  sectionsOf,
} from "../openapi/shown-document.ts";
import { codeBlock } from "./code-html.ts";
import { escapeHtml } from "./escape-html.ts";
import { inline, markdownToHtml, slug } from "./markdown.ts";
import { methodHtml, operationHtml, panel, samplesHtml } from "./operation-html.ts";
import { framed } from "./page-frame.ts";

/** @param document with its references in `components` */
export function renderDocsPage(document: ShownDocument): string {
  const { title, version, description } = document.info;
  const { lead, sections: all } = sectionsOf(description);
  const [errors, sections] = [all.filter(isErrors), all.filter((section) => !isErrors(section))];
  const groups = Map.groupBy(operationsOf(document), ({ tags }) => tags?.[0] ?? "Operations");
  const server = sampleServer(document);
  const body = `<div class="columns"${server.isOurs ? "" : ` data-server="${escapeHtml(server.url)}"`}>
${contents(sections, groups)}
<main id="content">
${quickStart(document, lead)}
${programHtml(document)}
${clientHtml(document)}
${sections.map((section) => sectionHtml(document, section)).join("\n")}
${[...groups].map(([name, operations]) => groupHtml(document, name, operations)).join("\n")}
${errors.map((section) => sectionHtml(document, section)).join("\n")}
${Object.keys(errorTable).map(errorCodeHtml).join("\n")}
</main>
</div>`;
  return framed({
    title: `${title}: documentation`,
    product: title,
    version,
    current: "docs",
    head: '<script type="module" src="page.js"></script>',
    tools: toolsHtml,
    body,
  });
}

/** The section of the description that is shown at the end, in front of the codes. */
const isErrors = ({ title }: { title: string }) => title === "Errors";

const toolsHtml = `<button type="button" id="menu" aria-expanded="false" aria-controls="contents">Contents</button>
<form class="search" role="search"><input type="search" id="search" autocomplete="off" spellcheck="false" aria-label="Search the documentation" placeholder="Search ( / )" aria-controls="found"><ul id="found" class="found" aria-label="Found" hidden></ul></form>
<form id="authorize"><input id="key" type="password" autocomplete="off" autocapitalize="off" spellcheck="false" aria-label="API key, for the requests from this page" placeholder="API key"><button>Use key</button><span id="key-state" role="status"></span><button type="button" id="forget" hidden>Forget</button></form>`;

type Groups = ReadonlyMap<string, readonly PlacedOperation[]>;

function contents(sections: readonly { title: string }[], groups: Groups): string {
  const link = (id: string, html: string) => `<li><a href="#${id}">${html}</a></li>`;
  const part = (name: string, links: readonly string[]) =>
    `<p class="heading">${escapeHtml(name)}</p><ul>${links.join("\n")}</ul>`;
  const operations = [...groups].map(([name, ofGroup]) =>
    part(
      name,
      ofGroup.map(({ operationId, method, title, deprecated }) => {
        const name = deprecated
          ? `<s>${escapeHtml(title)}</s><span class="unseen">deprecated</span>`
          : escapeHtml(title);
        return link(operationId, `${name} ${methodHtml(method)}`);
      }),
    ),
  );
  return `<nav id="contents" class="contents" aria-label="Contents">
${part("Begin", [link("quick-start", "Quick start"), link("overview", "Overview"), link("program", "A complete program"), link("client", "Client for JavaScript"), ...sections.map(({ title }) => link(slug(title), escapeHtml(title)))])}
${operations.join("\n")}
${part("Errors", [link("errors", "All errors"), ...Object.keys(errorTable).map((code) => link(code, `${code} ${statusHtml(code)}`))])}
</nav>`;
}

/** One request and its answer, before anything else. */
function quickStart(document: ShownDocument, lead: string): string {
  const { url } = sampleServer(document);
  const [list] = operationsOf(document);
  const [answer = []] = examplesOf(list?.answers[0]?.content) as unknown[][];
  const request = `export KEY='<API_KEY>'\n\ncurl -H "Authorization: Bearer $KEY" \\\n  "${url}/inventory?limit=2"`;
  const [first = "", rest = ""] = lead.split(/(?<=\.) (.*)/s);
  return `<section class="row" aria-labelledby="quick-start">
<div class="text">
<h1>${escapeHtml(document.info.title)} API</h1>
<p class="lead">${inline(first)}</p>
<h2 id="quick-start">Quick start</h2>
<p>Base address: <code>${escapeHtml(url)}</code></p>
<p>Send this with your API key in the place of <code>&lt;API_KEY&gt;</code>. The operator of this API issues keys. What a key may still send is on <a href="../account/">its account page</a>.</p>
</div>
<div class="code">
${panel("Request", codeBlock(request, "The first request"))}
${panel("Response", codeBlock(linesOf(answer), "The response to the first request"))}
</div>
</section>
<section class="row" aria-labelledby="overview">
<div class="text">
<h2 id="overview">Overview</h2>
${markdownToHtml(rest, 3)}
<p>For tools: <a href="../openapi.json">OpenAPI 3.1</a>, also as <a href="../openapi.yaml">YAML</a>; a <a href="../postman.json">Postman collection</a>; this page <a href="../docs.md">as Markdown</a>, and its <a href="../llms.txt">overview for language models</a>.</p>
</div>
</section>`;
}

function clientHtml(document: ShownDocument): string {
  return `<section class="row" aria-labelledby="client">
<div class="text">
<h2 id="client">Client for JavaScript</h2>
<p><a href="../client.js">The client of this API</a> is one file without a dependency, for JavaScript and TypeScript. Save it beside your program, with <a href="../client.d.ts">its types</a>, where <code>package.json</code> has <code>"type": "module"</code>; it needs Node 20. It has a call for every operation, keeps ids exact and repeats what is safe to repeat. When less than a fifth of a limit is left, it spreads its requests over the rest of the time.</p>
</div>
<div class="code">${panel("JavaScript", codeBlock(clientExample(sampleServer(document).url), "A program with the client"))}</div>
</section>`;
}

function programHtml(document: ShownDocument): string {
  return `<section class="row" aria-labelledby="program">
<div class="text">
<h2 id="program">A complete program</h2>
<p>It reads the stock, sells one animal of the first entry, and reads what has changed since, in each language without a library. Use it as a beginning of your own:</p>
<ul>
<li>The list is read once. From its <code>ETag</code> on, <code>/inventory/changes</code> has what is new.</li>
<li>The sale has an <code>Idempotency-Key</code>, so it happens once, however often it is sent.</li>
<li>After a 429, a 500, 502, 503 or 504 and a lost answer, which has 10 s to come, the same request is sent again: after the seconds of <code>Retry-After</code>, else after a time that doubles and has some randomness.</li>
<li>Any other error ends the program with the code and the message. So does a <code>Retry-After</code> of more than two minutes, as when the day is spent, and so does a ban; curl waits for a shorter one.</li>
<li>A <code>petId</code> keeps all its digits.</li>
</ul>
</div>
<div class="code">${samplesHtml(programs(sampleServer(document).url), "A complete program")}</div>
</section>`;
}

/** A list with an entry in each line. */
function linesOf(list: readonly unknown[]): string {
  return `[${list.map((entry) => JSON.stringify(entry)).join(",\n ")}]`;
}

function sectionHtml(document: ShownDocument, { title, text }: { title: string; text: string }): string {
  const id = slug(title);
  const blocks = text.match(/```[\s\S]*?```/g) ?? [];
  let words = blocks.reduce((rest, block) => rest.replace(block, ""), text);
  if (id === "errors") words = words.replace(/^\|.*\n?/gm, ""); // each code has its own section below
  const beside = [...blocks.map((block) => panel(title, markdownToHtml(block, 3))), ...exampleBeside(document, id)];
  return `<section class="row" aria-labelledby="${id}">
<div class="text">
<h2 id="${id}">${escapeHtml(title)}</h2>
${markdownToHtml(words, 3)}
</div>
${beside.length > 0 ? `<div class="code">${beside.join("\n")}</div>` : ""}
</section>`;
}

/** An example that belongs to a section of the description. */
function exampleBeside(document: ShownDocument, id: string): string[] {
  if (id === "authentication") return [panel("Header of a request", codeBlock("Authorization: Bearer <API_KEY>"))];
  if (id === "errors") return [panel("Body of an error", codeBlock(JSON.stringify(errorExample, null, 2)))];
  if (id !== "limits") return [];
  const headers = operationsOf(document)[0]?.answers[0]?.headers ?? [];
  const lines = headers.flatMap(({ name, example }) => (name.includes("RateLimit") ? `${name}: ${example}` : []));
  return [panel("Headers of a response", codeBlock(lines.join("\n")))];
}

const errorExample = { code: "not_found", message: errorTable.not_found.message, status: errorTable.not_found.status };

function errorCodeHtml(code: string): string {
  const { message } = errorTable[code as keyof typeof errorTable];
  const { meaning, action, repeat } = errorHelp[code as keyof typeof errorHelp];
  return `<section class="error" aria-labelledby="${code}">
<h3 id="${code}"><code>${code}</code> ${statusHtml(code)}</h3>
<p class="message">${escapeHtml(message)}</p>
<dl class="facts"><dt>Meaning</dt><dd>${inline(meaning)}</dd><dt>What to do</dt><dd>${inline(action)}</dd><dt>Repeat?</dt><dd>${inline(repeat)}</dd></dl>
</section>`;
}

function statusHtml(code: string): string {
  const { status } = errorTable[code as keyof typeof errorTable];
  return `<span class="status s${String(status)[0]}" title="${STATUS_CODES[status]}">${status}</span>`;
}

function groupHtml(document: ShownDocument, name: string, operations: readonly PlacedOperation[]): string {
  const description = document.tags?.find((tag) => tag.name === name)?.description ?? "";
  return `<section class="group" aria-labelledby="group-${slug(name)}">
<h2 id="group-${slug(name)}">${escapeHtml(name)}</h2>
<p>${inline(description)}</p>
${operations.map((operation) => operationHtml(document, operation)).join("\n")}
</section>`;
}
