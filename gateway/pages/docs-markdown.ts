/** Writes the documentation as Markdown, and the overview that language models look for. */
import { errorTable } from "../http/api-error.ts";
import { errorHelp } from "../openapi/error-help.ts";
import { clientExample, programs } from "../openapi/programs.ts";
import { arrayWords, type Field, fieldsOf, headerFields, parameterField } from "../openapi/schema-fields.ts";
import {
  baseAddress,
  exampleNote,
  exampleOf,
  operationsOf,
  type PlacedOperation,
  type ShownAnswer,
  type ShownDocument,
  sampleServer,
  schemaOf,
  sectionsOf,
} from "../openapi/shown-document.ts";

/** What `/docs/` shows, as one text. */
export function docsMarkdown(document: ShownDocument): string {
  const { title, version, description } = document.info;
  const codes = Object.entries(errorTable).map(([code, { status }]) => {
    const { meaning, action, repeat } = errorHelp[code as keyof typeof errorHelp];
    return `### ${code} (${status})\n\n${meaning} ${action} Repeat? ${repeat}`;
  });
  const operations = operationsOf(document).map((operation) => operationMarkdown(document, operation));
  const { url } = sampleServer(document);
  const samples = programs(url).map(
    ({ lang, source }) => `### A complete program: ${lang}\n\n${fenced(lang === "curl" ? "sh" : lang, source)}`,
  );
  const parts = [
    `# ${title} API ${version}`,
    baseAddress(document),
    description,
    clientUse(url),
    "## Error codes",
    ...codes,
  ];
  return `${[...parts, "## Operations", ...operations, "## Programs", ...samples].join("\n\n")}\n`;
}

function operationMarkdown(document: ShownDocument, operation: PlacedOperation): string {
  const { method, path, summary, description, parameters, requestBody, answers } = operation;
  const fields = parameters.map((parameter) => parameterField(document, parameter));
  const [sample] = operation["x-codeSamples"] ?? [];
  const success = answers.find(({ status }) => status.startsWith("2"));
  const answer = exampleOf(success?.content);
  const bodySchema = schemaOf(requestBody?.content);
  const answerSchema = schemaOf(success?.content);
  const parts = [
    `<a id="${operation.operationId}"></a>\n\n### ${summary}`,
    `\`${method} /v1${path}\``,
    description,
    ...list("Parameters:", fields),
    ...(requestBody
      ? [`Body: ${requestBody.description}`, ...list(arrayWords(document, bodySchema), fieldsOf(document, bodySchema))]
      : []),
    ...(sample ? [fenced("sh", sample.source)] : []),
    ...(answer
      ? [
          `Response ${success!.status}${exampleNote(success!.content)}:`,
          fenced("json", JSON.stringify(answer, null, 2)),
        ]
      : []),
    ...list(arrayWords(document, answerSchema) || "Its members:", fieldsOf(document, answerSchema)),
    `Responses:\n\n${answers.map(answerMarkdown).join("\n")}`,
  ];
  return parts.join("\n\n");
}

/** What an answer says, and its own headers. */
function answerMarkdown(answer: ShownAnswer): string {
  const lines = headerFields(answer).map(({ name, description }) => `  - \`${name}\`: ${oneLine(description)}`);
  return [`- **${answer.status}**: ${oneLine(answer.description)}`, ...lines].join("\n");
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}

function fenced(language: string, source: string): string {
  return `\`\`\`${language.toLowerCase()}\n${source}\n\`\`\``;
}

/** How the client that is served beside the documents is used. */
const clientUse = (server: string) => `## Client for JavaScript

\`client.js\`, beside this document, is one file without a dependency, for JavaScript and TypeScript. Save it beside your program, with its types (\`client.d.ts\`), where \`package.json\` has \`"type": "module"\`; it needs Node 20. It has a call for every operation, keeps ids exact and repeats what is safe to repeat. When less than a fifth of a limit is left, it spreads its requests over the rest of the time:

${fenced("js", clientExample(server))}`;

function list(title: string, fields: readonly Field[]): string[] {
  if (fields.length === 0) return [];
  const lines = fields.map(({ name, type, isRequired, description }) => {
    return `- \`${name}\` (${type}${isRequired ? ", required" : ""}): ${description}`.replace(/: $/, "");
  });
  return [...(title === "" ? [] : [title]), lines.join("\n")];
}

/** `/llms.txt` (llmstxt.org): what the API is, and where its documents are, by addresses relative to the text. */
export function llmsText(document: ShownDocument): string {
  const { lead } = sectionsOf(document.info.description);
  const operations = operationsOf(document).map(
    ({ operationId, method, path, title }) => `- [${method} /v1${path}](docs.md#${operationId}): ${title}`,
  );
  return `# ${document.info.title} API

> ${lead.replaceAll("\n", "\n> ")}

${baseAddress(document)}

Send an API key with every request below /v1: \`Authorization: Bearer <API_KEY>\`. After a 429 wait for \`Retry-After\`. Send an \`Idempotency-Key\` with every update, and the same one with its repeats. Read a \`petId\` as an integer of 64 bits.

## Documents

- [Documentation](docs.md): every operation, limit and error code, in Markdown
- [OpenAPI 3.1](openapi.json): the description for tools, also as [YAML](openapi.yaml)
- [Client for JavaScript](client.js): a call for every operation, exact ids, repeats, limits; with [types](client.d.ts)
- [Postman collection](postman.json): the operations, ready to send

## Operations

${operations.join("\n")}
`;
}
