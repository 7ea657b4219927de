/** The OpenAPI document of this deployment: `openapi.yaml` with its values filled in. */
import { readFileSync } from "node:fs";
import { parse } from "yaml";
import { type AccountLimits, type PlanTable, planNames } from "../accounts/keys/plans.ts";
import { ownAccountLimit, rotationLimit } from "../admission/account-guard.ts";
import { docsPerMinute } from "../admission/address-guard.ts";
import type { BanRules } from "../admission/bans.ts";
import { errorTable } from "../http/api-error.ts";
import type { DeprecationNotice, DeprecationNotices } from "../http/deprecations.ts";
import { type CodeSample, codeSamples } from "./code-samples.ts";

export interface OpenApiOptions {
  /** Base addresses, each ending in /v1. With none, the address is relative to the document. */
  readonly servers: readonly string[];
  readonly plans: PlanTable;
  readonly banRules: BanRules;
  /** Requests per minute from one address without a valid key. */
  readonly addressGuardPerMinute: number;
  /** Entries that an account may update in a day with an Idempotency-Key. */
  readonly keyedUpdatesPerDay: number;
  /** Whether callers may rotate their keys; where they may not, there is no such operation. */
  readonly hasKeyRotation: boolean;
  /** The operations that are going to end. */
  readonly deprecations: DeprecationNotices;
}

/** An OpenAPI 3.1 document; only what this code touches is typed. */
export interface OpenApiDocument {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly servers: readonly { readonly url: string; readonly description?: string }[];
  readonly paths: Record<string, Readonly<Record<string, ApiOperation>>>;
  readonly components: {
    readonly headers: Record<string, object>;
    readonly responses: Record<string, ApiResponse>;
    readonly schemas: Record<string, object>;
  };
}

interface ApiOperation {
  readonly operationId: string;
  summary: string;
  description: string;
  deprecated?: boolean;
  "x-sunset"?: string;
  readonly parameters?: readonly { readonly $ref?: string; readonly name?: string }[];
  readonly requestBody?: {
    readonly description: string;
    readonly content: Readonly<Record<string, { readonly example?: unknown }>>;
  };
  readonly responses: Record<string, ApiResponse>;
  "x-codeSamples"?: readonly CodeSample[];
}

type ApiResponse = { readonly $ref?: string; readonly headers?: Readonly<Record<string, object>> };

const template = readFileSync(new URL("./openapi.yaml", import.meta.url), "utf8");

/**
 * The OpenAPI 3.1 description of the public API, with the plans, bans, dates and servers of this deployment and with
 * the table of errors that the gateway answers from.
 */
export function openApiDocument(options: OpenApiOptions): OpenApiDocument {
  // The default bound on aliases is against hostile files; this file is ours.
  const parsed = parse(template, { merge: true, maxAliasCount: -1 }) as OpenApiDocument;
  if (!options.hasKeyRotation) {
    delete parsed.paths["/keys/rotate"];
    delete parsed.components.schemas.RotatedKey;
  }
  const document = fill(parsed, valuesOf(options)) as OpenApiDocument;
  markDeprecated(document, options.deprecations);
  addSamples(document);
  return document;
}

type Values = Readonly<Record<string, unknown>>;

/** The values that replace each `{{name}}` in `openapi.yaml`. */
function valuesOf(options: OpenApiOptions): Values {
  const { servers, plans, banRules, addressGuardPerMinute, keyedUpdatesPerDay, hasKeyRotation } = options;
  const [firstBan, ...furtherBans] = banRules.ladderMinutes.map((minutes) => count(minutes, "minute"));
  const errors = Object.entries(errorTable).map(([code, { status, message }]) => ({ code, message, status }));
  return {
    servers: serverList(servers),
    plans: planNames.map((plan) => planRow(plan, plans[plan])).join("\n"),
    planNames,
    addressPerMinute: number(addressGuardPerMinute),
    docsPerMinute: number(docsPerMinute),
    accountPerMinute: number(ownAccountLimit.points),
    rotationsPerDay: number(rotationLimit.points),
    keyedUpdatesPerDay: number(keyedUpdatesPerDay),
    banRefusals: number(banRules.maxStrikes),
    firstBan,
    furtherBans: furtherBans.length === 0 ? "" : ` Further bans last ${furtherBans.join(", then ")}.`,
    banMemory: count(banRules.forgetAfterMs / 3_600_000, "hour"),
    "rotateKey.ability": hasKeyRotation ? ", and replace its API key" : "",
    "rotateKey.repeat": hasKeyRotation ? rotationRepeat : "",
    errors: errors
      .toSorted((a, b) => a.status - b.status)
      .map(({ code, message, status }) => `| ${status} | \`${code}\` | ${message} |`)
      .join("\n"),
    errorCodes: errors.map(({ code }) => code),
    ...Object.fromEntries(errors.map((error) => [`error.${error.code}`, error])),
  };
}

/** A repeat of a rotation needs care, because only its answer shows the new key. */
const rotationRepeat =
  "\n\n**Rotations.** When the answer of `POST /keys/rotate` was lost, repeat it with the old key: another new key " +
  "takes the place of the lost one. The repeat gets 409 once the new key has been used, and 401 once the old key has " +
  "ended.";

function serverList(servers: OpenApiOptions["servers"]): OpenApiDocument["servers"] {
  if (servers.length === 0) return [{ url: "./v1", description: "Relative to this document" }];
  return servers.map((url) => ({ url }));
}

function planRow(plan: string, limits: AccountLimits | null): string {
  const name = `${plan[0]!.toUpperCase()}${plan.slice(1)}`;
  return limits
    ? `| ${name} | ${number(limits.perMinute)} | ${number(limits.perDay)} |`
    : `| ${name} | custom | custom |`;
}

/**
 * Replaces `{{name}}` in every text below a node. A text that is only `{{name}}` becomes the value itself, whatever its
 * type; an undefined value removes the member.
 *
 * @throws Error for a name without a value
 */
function fill(node: unknown, values: Values): unknown {
  if (typeof node === "string") return fillText(node, values);
  if (Array.isArray(node)) return node.map((item) => fill(item, values));
  if (typeof node !== "object" || node === null) return node;
  const members = Object.entries(node).map(([name, value]) => [name, fill(value, values)] as const);
  return Object.fromEntries(members.filter(([, value]) => value !== undefined));
}

function fillText(text: string, values: Values): unknown {
  const lookUp = (name: string) => {
    if (!Object.hasOwn(values, name)) throw new Error(`openapi.yaml names {{${name}}}, which has no value`);
    return values[name];
  };
  const whole = /^\{\{([\w.]+)\}\}$/.exec(text);
  return whole ? lookUp(whole[1]!) : unwrap(text).replace(/\{\{(.*?)\}\}/g, (_, name) => String(lookUp(name)));
}

/** Makes each paragraph one line, because some readers show line breaks. Rows, items of lists and code stay lines. */
function unwrap(markdown: string): string {
  const parts = markdown.split(/(```[\s\S]*?```)/);
  return parts.map((part, i) => (i % 2 === 0 ? part.replace(/([^\n|])\n(?=[^\n|-])/g, "$1 ") : part)).join("");
}

/** Writes what is announced of each operation that is going to end: in its description, and as headers of responses. */
function markDeprecated(document: OpenApiDocument, deprecations: DeprecationNotices): void {
  const { components } = document;
  const retired = components.responses.Retired!;
  delete components.responses.Retired;
  const used = new Set<string>();
  for (const operation of operationsOf(document)) {
    const announcement = deprecations[operation.operationId];
    if (!announcement) continue;
    const { deprecatedAt, sunsetAt } = announcement;
    operation.deprecated = true;
    operation.summary += " (deprecated)";
    operation.description = `${endText(announcement)}\n\n${operation.description}`;
    if (sunsetAt) operation["x-sunset"] = sunsetAt.toISOString();
    const { responses } = operation;
    responses["410"] ??= retired;
    const dates = { Deprecation: deprecatedAt, Sunset: sunsetAt, Link: deprecatedAt ?? sunsetAt };
    const names = Object.entries(dates).flatMap(([name, date]) => (date ? name : []));
    const announced = Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
    for (const name of names) used.add(name);
    for (const [status, { $ref, ...own }] of Object.entries(names.length > 0 ? responses : {})) {
      const response = $ref ? components.responses[$ref.split("/").at(-1)!]! : own;
      responses[status] = { ...response, headers: { ...response.headers, ...announced } };
    }
  }
  for (const name of ["Deprecation", "Sunset", "Link"]) if (!used.has(name)) delete components.headers[name];
}

function endText({ deprecatedAt, sunsetAt, link }: DeprecationNotice): string {
  const since = deprecatedAt ? `**Deprecated** since ${longDate(deprecatedAt)}.` : "**Deprecated.**";
  const sunset = sunsetAt
    ? `**Sunset:** from ${longDate(sunsetAt)} on, the operation may answer 410.`
    : "The date of its sunset is not announced yet.";
  return `${since}\n\n${sunset}${link ? ` [More about its end](${link}).` : ""}`;
}

/** Where `npm start` serves the API: samples need a whole address. */
export const localServer = "http://127.0.0.1:8080/v1";

function addSamples({ servers, paths }: OpenApiDocument): void {
  const server = servers.find(({ url }) => URL.canParse(url))?.url ?? localServer;
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const { parameters = [], requestBody } = operation;
      const { example } = requestBody?.content["application/json"] ?? {};
      operation["x-codeSamples"] = codeSamples({
        method: method.toUpperCase(),
        url: `${server}${path.replace("{petId}", "1001")}`,
        body: example === undefined ? undefined : JSON.stringify(example),
        isKeyed: parameters.some(({ $ref }) => $ref?.endsWith("IdempotencyKey")),
        listUrl: parameters.some(({ name }) => name === "since") ? `${server}/inventory` : undefined,
      });
    }
  }
}

function operationsOf({ paths }: OpenApiDocument): ApiOperation[] {
  return Object.values(paths).flatMap((path) => Object.values(path));
}

function number(value: number): string {
  return value.toLocaleString("en-US");
}

function count(value: number, unit: string): string {
  return `${number(value)} ${unit}${value === 1 ? "" : "s"}`;
}

/** As `1 July 2027, 00:00 UTC`. */
function longDate(time: Date): string {
  const format = new Intl.DateTimeFormat("en-GB", { dateStyle: "long", timeStyle: "short", timeZone: "UTC" });
  return `${format.format(time).replace(" at ", ", ")} UTC`;
}
