/** What the pages show of an OpenAPI document, and how its parts are read. */
import type { CodeSample } from "./code-samples.ts";
import { localServer } from "./document.ts";

export interface ShownDocument {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly servers: readonly { readonly url: string; readonly description?: string }[];
  readonly tags?: readonly { readonly name: string; readonly description: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, ShownOperation>>>>;
  readonly components?: unknown;
}

interface ShownOperation {
  readonly operationId: string;
  readonly tags?: readonly string[];
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

export type Content = Readonly<
  Record<string, { readonly schema?: unknown; readonly example?: unknown; readonly examples?: object }>
>;

export interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description: string;
  readonly schema?: unknown;
  readonly example?: unknown;
}

export interface ShownAnswer {
  readonly status: string;
  readonly description: string;
  readonly headers: readonly { readonly name: string; readonly description: string; readonly example?: unknown }[];
  readonly content?: Content;
}

/** An operation with its place, and with its references resolved. */
export interface PlacedOperation extends Omit<ShownOperation, "parameters" | "responses"> {
  readonly path: string;
  /** In capitals. */
  readonly method: string;
  /** The summary without the marks that the pages show as badges. */
  readonly title: string;
  readonly parameters: readonly Parameter[];
  readonly answers: readonly ShownAnswer[];
}

/** The operations in the order of the document. */
export function operationsOf(document: ShownDocument): PlacedOperation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      ...operation,
      path,
      method: method.toUpperCase(),
      title: operation.summary.replace(/ \((experimental|deprecated)\)$/, ""),
      parameters: (operation.parameters ?? []).map((parameter) => resolve(document, parameter) as Parameter),
      answers: Object.entries(operation.responses).map(([status, answer]) => readAnswer(document, status, answer)),
    })),
  );
}

function readAnswer(document: ShownDocument, status: string, node: unknown): ShownAnswer {
  const { description, headers, content } = resolve(document, node) as ShownAnswer & {
    headers?: Record<string, unknown>;
  };
  const shown = Object.entries(headers ?? {}).map(([name, header]) => {
    return { name, ...(resolve(document, header) as { description: string; example?: unknown }) };
  });
  return { status, description, headers: shown, ...(content ? { content } : {}) };
}

/** What a `$ref` of the document refers to, such as `#/components/headers/Link`; any other node as it is. */
export function resolve(document: ShownDocument, node: unknown): unknown {
  const { $ref } = (node ?? {}) as { $ref?: string };
  if ($ref === undefined) return node;
  return $ref
    .split("/")
    .slice(1)
    .reduce<unknown>((parent, name) => (parent as Record<string, unknown>)[name], document);
}

/** The text of a description before its first heading, and its parts by heading (`## …`). */
export function sectionsOf(description: string): { lead: string; sections: { title: string; text: string }[] } {
  const [lead = "", ...parts] = description.split(/^## /m);
  const sections = parts.map((part) => {
    const [title = "", ...lines] = part.split("\n");
    return { title, text: lines.join("\n").trim() };
  });
  return { lead: lead.trim(), sections };
}

/**
 * The base address of the API in samples. Where `isOurs` is false, it is that of a local gateway, which the page
 * replaces with its own.
 */
export function sampleServer({ servers }: ShownDocument): { url: string; isOurs: boolean } {
  const url = servers.find((server) => URL.canParse(server.url))?.url;
  return { url: url ?? localServer, isOurs: url !== undefined };
}

/** Where the API is, for a document without a script of its own. In Markdown. */
export function baseAddress(document: ShownDocument): string {
  const { url, isOurs } = sampleServer(document);
  if (isOurs) return `Base address: \`${url}\``;
  return `Base address: \`v1\`, relative to this document. The examples have \`${url}\` in its place.`;
}

/** The schema of a body; undefined without one. */
export function schemaOf(content: Content | undefined): unknown {
  return Object.values(content ?? {})[0]?.schema;
}

/** The summary of the first example, for the title; empty without one. */
export function exampleNote(content: Content | undefined): string {
  const { examples = {} } = Object.values(content ?? {})[0] ?? {};
  const { summary } = Object.values(examples)[0] ?? {};
  return summary ? `, ${summary}` : "";
}

/** The example of a body, or the first of several, as a JSON value; undefined without one. */
export function exampleOf(content: Content | undefined): unknown {
  return examplesOf(content)[0];
}

/** The examples of a body, as JSON values. */
export function examplesOf(content: Content | undefined): unknown[] {
  const { example, examples = {} } = Object.values(content ?? {})[0] ?? {};
  return example === undefined ? Object.values(examples).map(({ value }) => value) : [example];
}
