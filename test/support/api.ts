/** Calls the public API and holds every answer against the OpenAPI document: its status, headers and body. */
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { publishedPlans } from "../../gateway/accounts/keys/plans.ts";
import { publishedBanRules } from "../../gateway/admission/bans.ts";
import type { DeprecationNotices } from "../../gateway/http/deprecations.ts";
import { type OpenApiDocument, openApiDocument } from "../../gateway/openapi/document.ts";
import { type Answer, bodyText } from "./answers.ts";
import { type RawResponse, type RequestOptions, type Response, rawRequest, request } from "./http.ts";

/** Sends an ordinary request to the public API, as `request` does. */
export async function callApi(address: string, options: RequestOptions): Promise<Response> {
  const answer = await request(address, options);
  expectDocumented(options.method ?? "GET", options.path, answer);
  return answer;
}

/** Sends exact bytes to the public API, as `rawRequest` does. The answer is that to the first request among them. */
export async function sendToApi(...args: Parameters<typeof rawRequest>): Promise<RawResponse> {
  const answer = await rawRequest(...args);
  const [method = "", target = ""] = args[1].toString("latin1").split("\r\n", 1)[0]!.split(" ");
  expectDocumented(method, target, answer);
  return answer;
}

interface ApiResponse {
  readonly headers: Readonly<
    Record<string, { readonly required: boolean; readonly schema: { readonly type: string } }>
  >;
  readonly content?: Readonly<Record<string, { readonly schema: object }>>;
}

interface Operation {
  readonly name: string;
  readonly method: string;
  readonly path: RegExp;
  /** Whether another service gives the answer, with headers of its own. */
  readonly isPassedThrough: boolean;
  readonly responses: Readonly<Record<string, ApiResponse>>;
}

const unannounced = operationsOf(describeApi({ getPet: { deprecatedAt: null, sunsetAt: null } }));
const everyEnd = unannounced.map(({ name }) => [name, { deprecatedAt: new Date(0), sunsetAt: new Date(0) }]);
const announced = operationsOf(describeApi(Object.fromEntries(everyEnd)));

/** Statuses that the document describes for all requests at once: the request is too slow, or its head too large. */
const beforeAnyOperation = new Set([408, 431]);

/** Headers of HTTP itself, which no OpenAPI document lists. */
const ofHttp = [
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "date",
  "keep-alive",
  "transfer-encoding",
];

/** @param target the request target, with or without an origin */
function expectDocumented(method: string, target: string, answer: Answer): void {
  const path = target.replace(/^http:\/\/[^/]*/, "").replace(/\?.*$/s, "");
  const { status } = answer;
  expect({ method, target, status, faults: faultsOf(method, path, answer) }).toEqual({
    method,
    target,
    status,
    faults: [],
  });
}

function faultsOf(method: string, path: string, answer: Answer): string[] {
  const { status } = answer;
  const isHead = method === "HEAD";
  const operations = answer.headers.sunset === undefined ? unannounced : announced;
  // The document lists a path such as /inventory/changes before /inventory/{petId}, which matches it too.
  const source = operations.find((each) => each.path.test(path))?.path.source;
  const operation = operations.find((each) => each.method === (isHead ? "GET" : method) && each.path.source === source);
  if (operation === undefined || beforeAnyOperation.has(status)) {
    // An error is like those of every operation. Anything else is no part of the API, such as the documentation page.
    const { responses } = unannounced[0]!;
    const anyError = responses[400]!;
    const { Link: _, ...ofEveryAnswer } = anyError.headers;
    if (status < 400) return headerFaults({ headers: ofEveryAnswer }, answer);
    const response = responses[status] ?? anyError;
    return [...headerFaults(response, answer), ...bodyFaults(response, answer, isHead)];
  }
  const response = operation.responses[status];
  if (response === undefined) return ["the status is not documented"];
  const mayHaveMore = operation.isPassedThrough && status < 400;
  return [
    ...headerFaults(response, answer),
    ...(mayHaveMore ? [] : unknownHeaders(response, answer)),
    ...bodyFaults(response, answer, isHead),
  ];
}

function headerFaults({ headers }: ApiResponse, answer: Answer): string[] {
  return Object.entries(headers).flatMap(([name, { required, schema }]) => {
    const given = answer.headers[name.toLowerCase()];
    if (given === undefined) return required ? [`${name} is missing`] : [];
    const text = [given].flat().join(", ");
    const value = schema.type === "integer" && /^\d+$/.test(text) ? Number(text) : text;
    return schemaFaults(`${name}: ${text}`, schema, value);
  });
}

function unknownHeaders({ headers }: ApiResponse, answer: Answer): string[] {
  const known = new Set([...ofHttp, ...Object.keys(headers).map((name) => name.toLowerCase())]);
  return Object.keys(answer.headers).flatMap((name) => (known.has(name) ? [] : [`${name} is not documented`]));
}

function bodyFaults({ content }: ApiResponse, answer: Answer, isHead: boolean): string[] {
  const text = bodyText(answer);
  if (content === undefined || isHead) return text === "" ? [] : ["there is a body"];
  const type = String(answer.headers["content-type"]);
  const schema = content[type]?.schema;
  if (schema === undefined) return [`Content-Type ${type} is not documented`];
  if (answer.headers["content-encoding"] !== undefined) return []; // the schema is that of the decoded body
  return schemaFaults("the body", schema, JSON.parse(text));
}

const isoTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const ajv = new Ajv2020({ strict: false, formats: { int64: true, "date-time": isoTime } });
const validators = new Map<object, ValidateFunction>();

function schemaFaults(what: string, schema: object, value: unknown): string[] {
  const validate = validators.get(schema) ?? ajv.compile(schema);
  validators.set(schema, validate);
  return validate(value) ? [] : [`${what}: ${ajv.errorsText(validate.errors)}`];
}

function describeApi(deprecations: DeprecationNotices): OpenApiDocument {
  return openApiDocument({
    servers: [],
    plans: publishedPlans,
    banRules: publishedBanRules,
    addressGuardPerMinute: 60,
    keyedUpdatesPerDay: 200_000,
    hasKeyRotation: true,
    deprecations,
  });
}

function operationsOf(document: OpenApiDocument): readonly Operation[] {
  type Described = { operationId: string; tags: string[]; responses: Operation["responses"] };
  const paths = withoutReferences(document.paths, document) as Record<string, Record<string, Described>>;
  const withoutParametersFirst = Object.entries(paths).toSorted(([a], [b]) => +a.includes("{") - +b.includes("{"));
  return withoutParametersFirst.flatMap(([text, methods]) => {
    const path = new RegExp(`^/v1${text.replace(/\{\w+\}/g, "[^/]+")}$`);
    return Object.entries(methods).map(([method, { operationId: name, tags, responses }]) => {
      return { name, method: method.toUpperCase(), path, isPassedThrough: tags.includes("Store"), responses };
    });
  });
}

function withoutReferences(node: unknown, document: OpenApiDocument): unknown {
  if (Array.isArray(node)) return node.map((item) => withoutReferences(item, document));
  if (typeof node !== "object" || node === null) return node;
  const { $ref } = node as { $ref?: string };
  if ($ref === undefined) {
    return Object.fromEntries(Object.entries(node).map(([name, value]) => [name, withoutReferences(value, document)]));
  }
  const names = $ref.split("/").slice(1);
  const target = names.reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], document);
  return withoutReferences(target, document);
}
