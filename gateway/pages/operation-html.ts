/**
 * Renders an operation: what it does and its fields on the left, and how it is called on the right. On a narrow screen
 * the call stands between what it does and its fields.
 */
import type { CodeSample } from "../openapi/code-samples.ts";
import { arrayWords, type Field, fieldsOf, headerFields, parameterField } from "../openapi/schema-fields.ts";
import {
  type Content,
  exampleNote,
  examplesOf,
  type Parameter,
  type PlacedOperation,
  type ShownAnswer,
  type ShownDocument,
  schemaOf,
} from "../openapi/shown-document.ts";
import { codeBlock } from "./code-html.ts";
import { escapeHtml } from "./escape-html.ts";
import { inline, markdownToHtml } from "./markdown.ts";

export function operationHtml(document: ShownDocument, operation: PlacedOperation): string {
  const { operationId: id, method, path, title, description, parameters, requestBody, answers } = operation;
  const success = answers.find(({ status }) => status.startsWith("2"))!;
  const [example] = examplesOf(success.content);
  return `<article class="row" aria-labelledby="${id}">
<div class="text">
<h3 id="${id}">${escapeHtml(title)}${badges(operation)}</h3>
<p class="endpoint">${methodHtml(method)} <code>/v1${escapeHtml(path)}</code></p>
${markdownToHtml(description, 4)}
</div>
<div class="code">
${samplesHtml(operation["x-codeSamples"] ?? [], title)}
${example === undefined ? "" : panel(`Response ${success.status}${exampleNote(success.content)}`, codeBlock(json(example), `Response of ${title}`))}
${tryHtml(document, operation)}
</div>
<div class="text">
${list(
  "Parameters",
  parameters.map((parameter) => parameterField(document, parameter)),
)}
${requestBody ? `<h4>Body</h4>\n<p>${inline(requestBody.description)}</p>\n${members(document, requestBody.content)}` : ""}
<h4>Responses</h4>
${answers.map((answer) => answerHtml(document, answer)).join("\n")}
</div>
</article>`;
}

/** The verb of HTTP in its colour. */
export function methodHtml(method: string): string {
  return `<span class="method ${method.toLowerCase()}">${method}</span>`;
}

function badges({ deprecated, "x-experimental": experimental }: PlacedOperation): string {
  const names = [...(deprecated ? ["deprecated"] : []), ...(experimental ? ["experimental"] : [])];
  return names.map((name) => ` <span class="badge ${name}">${name}</span>`).join("");
}

/** Renders a sample in each language; the script of the page shows the language that the reader has chosen. */
export function samplesHtml(samples: readonly CodeSample[], label: string): string {
  const buttons = samples.map(
    ({ lang }) => `<button type="button" data-choice="${lang}" aria-pressed="${lang === "curl"}">${lang}</button>`,
  );
  const blocks = samples.map(
    ({ lang, source }) =>
      `<div data-lang="${lang}"><p class="lang">${lang}</p>${codeBlock(source, `${label}, ${lang}`)}</div>`,
  );
  return `<div class="panel"><div class="choices" role="group" aria-label="Language">${buttons.join("")}</div>
${blocks.join("\n")}</div>`;
}

/** Code with a title above it. */
export function panel(title: string, content: string): string {
  return `<div class="panel"><p class="title">${escapeHtml(title)}</p>${content}</div>`;
}

function members(document: ShownDocument, content: Content | undefined): string {
  const schema = schemaOf(content);
  const words = arrayWords(document, schema);
  return `${words && `<p>${words}</p>\n`}${list("", fieldsOf(document, schema))}`;
}

function list(title: string, fields: readonly Field[]): string {
  if (fields.length === 0) return "";
  const items = fields.map(
    ({ name, type, isRequired, description }) =>
      `<div><dt><code>${escapeHtml(name)}</code> <span class="type">${escapeHtml(type)}</span>${isRequired ? ' <span class="required">required</span>' : ""}</dt><dd>${inline(description)}</dd></div>`,
  );
  return `${title && `<h4>${title}</h4>\n`}<dl class="fields">${items.join("\n")}</dl>`;
}

function answerHtml(document: ShownDocument, answer: ShownAnswer): string {
  const { status, description, content } = answer;
  const codes = examplesOf(content).flatMap((value) => (value as { code?: string }).code ?? []);
  const isError = Number(status) >= 400;
  const more = isError ? "" : members(document, content);
  const [first = "", ...rest] = description.split(/(?<=\.) /);
  return `<details class="answer"><summary><span class="status s${status[0]}">${status}</span> ${escapeHtml(first.replaceAll("`", ""))}</summary>
${isError && codes.length > 0 ? `<p>Code ${codes.map((code) => inline(`\`${code}\``)).join(" or ")}.</p>` : ""}
${rest.length > 0 ? `<p>${inline(rest.join(" "))}</p>` : ""}
${more}${list("Headers", headerFields(answer))}</details>`;
}

function tryHtml(document: ShownDocument, operation: PlacedOperation): string {
  const { operationId: id, method, path, parameters, requestBody } = operation;
  if (id === "rotateKey") {
    return `<details class="panel try"><summary>Try it</summary>
<p>Rotate your key on <a href="../account/">its account page</a>, which shows the new key once.</p></details>`;
  }
  const [type, body] = Object.entries(requestBody?.content ?? {})[0] ?? [];
  const example = json(body?.example);
  const bodyField = `<label for="${id}-body">Body</label>
<textarea id="${id}-body" rows="${Math.min(14, example.split("\n").length)}" spellcheck="false" data-type="${type}">${escapeHtml(example)}</textarea>`;
  const fieldOf = (parameter: Parameter) => inputHtml(id, parameter, parameterField(document, parameter));
  const isFolded = ({ in: place, required }: Parameter) => place === "header" && !required;
  const [shown, folded] = [parameters.filter((one) => !isFolded(one)), parameters.filter(isFolded)];
  return `<details class="panel try"><summary>Try it</summary>
<form data-method="${method}" data-path="${escapeHtml(path)}">
${shown.map(fieldOf).join("\n")}
${requestBody ? bodyField : ""}
${folded.length > 0 ? `<details><summary>Optional headers</summary>${folded.map(fieldOf).join("\n")}</details>` : ""}
${method === "GET" ? "" : '<p class="caution">This changes the real stock.</p>'}
<button class="send">Send ${method} ${escapeHtml(path)}</button>
<div role="status"></div>
</form></details>`;
}

function inputHtml(operationId: string, { name, in: place, required, example }: Parameter, { type }: Field): string {
  const id = `${operationId}-${name}`;
  const isGiven = required && example !== undefined && name !== "since"; // only the tag of a list that was read will do
  const value = isGiven ? ` value="${escapeHtml(String(example))}"` : "";
  return `<label for="${id}">${escapeHtml(name)} <span class="type">${escapeHtml(type)}</span>${required ? ' <span class="required">required</span>' : ""}</label>
<input id="${id}" data-in="${place}" data-name="${escapeHtml(name)}"${value}${required ? " required" : ""} autocomplete="off" spellcheck="false">`;
}

function json(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "";
}
