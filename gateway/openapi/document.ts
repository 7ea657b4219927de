/** The OpenAPI document of this deployment: `openapi.yaml` with its values filled in. */
import { readFileSync } from "node:fs";
import { parse } from "yaml";
import { errorTable } from "../http/errors.ts";
import type { BanRules } from "../limits/bans.ts";
import type { PlanTable } from "../limits/plans.ts";

export interface OpenApiOptions {
  /** Base addresses, each ending in /v1. With none, the address is relative to the document. */
  readonly servers: readonly { readonly url: string; readonly description: string }[];
  readonly plans: PlanTable;
  readonly banRules: BanRules;
  /** Requests per minute from one address without a valid key. */
  readonly guardPerMinute: number;
  /** The dates of GET /pets/{petId}; null for a date that is not announced. */
  readonly deprecatedAt: Date | null;
  readonly sunsetAt: Date | null;
}

/** An OpenAPI 3.1 document; only what this code touches is typed. */
export interface OpenApiDocument {
  readonly servers: readonly { readonly url: string; readonly description?: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, { responses: Record<string, ApiResponse> }>>>>;
  readonly components: {
    readonly headers: Record<string, object>;
    readonly responses: Readonly<Record<string, ApiResponse>>;
  };
}

type ApiResponse = { readonly $ref?: string; readonly headers?: Readonly<Record<string, object>> };

const template = readFileSync(new URL("./openapi.yaml", import.meta.url), "utf8");

/**
 * The OpenAPI 3.1 description of the public API, with the plans, bans, dates and servers of this deployment and with the
 * table of errors that the gateway answers from.
 */
export function openApiDocument(options: OpenApiOptions): OpenApiDocument {
  const document = fill(parse(template, { merge: true }), valuesOf(options)) as OpenApiDocument;
  announceDeprecation(document, options);
  return document;
}

type Values = Readonly<Record<string, unknown>>;

/** What stands in `openapi.yaml` as `{{name}}`. */
function valuesOf({ servers, plans, banRules, guardPerMinute, deprecatedAt, sunsetAt }: OpenApiOptions): Values {
  const [firstBan, ...furtherBans] = banRules.ladderMinutes.map((minutes) => count(minutes, "minute"));
  const errors = Object.entries(errorTable).map(([code, { status, message }]) => ({ code, message, status }));
  return {
    servers: serverList(servers),
    plans: [planRow("Free", plans.free), planRow("Pro", plans.pro), planRow("Business", plans.business)].join("\n"),
    guardPerMinute: number(guardPerMinute),
    banRefusals: number(banRules.refusals),
    firstBan,
    furtherBans: furtherBans.length === 0 ? "" : ` Further bans last ${furtherBans.join(", then ")}.`,
    banMemory: count(banRules.forgetAfterMs / 3_600_000, "hour"),
    errors: errors
      .toSorted((a, b) => a.status - b.status)
      .map(({ code, message, status }) => `| ${status} | \`${code}\` | ${message} |`)
      .join("\n"),
    errorCodes: errors.map(({ code }) => code),
    ...Object.fromEntries(errors.map((error) => [`error.${error.code}`, error])),
    petDeprecation: deprecatedAt ? `**Deprecated** since ${longDate(deprecatedAt)}.` : "**Deprecated.**",
    petSunset: sunsetAt
      ? `**Sunset:** from ${longDate(sunsetAt)} on, the operation may answer 410.`
      : "The date of its sunset is not announced yet.",
    petSunsetTime: sunsetAt?.toISOString(),
  };
}

function serverList(servers: OpenApiOptions["servers"]): OpenApiDocument["servers"] {
  if (servers.length === 0) return [{ url: "./v1", description: "Relative to this document" }];
  return servers.map(({ url, description }) => (description === "" ? { url } : { url, description }));
}

function planRow(name: string, { perMinute, perDay }: PlanTable[keyof PlanTable]): string {
  return `| ${name} | ${number(perMinute)} | ${number(perDay)} |`;
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

/** Makes each paragraph one line, because Swagger UI shows line breaks. Table rows stay lines of their own. */
function unwrap(markdown: string): string {
  return markdown.replace(/([^\n|])\n(?=[^\n|])/g, "$1 ");
}

/** Adds the headers of the announced dates to every response of GET /pets/{petId}. */
function announceDeprecation(document: OpenApiDocument, { deprecatedAt, sunsetAt }: OpenApiOptions): void {
  const { paths, components } = document;
  const announced: Record<string, object> = {};
  const dates = { Deprecation: deprecatedAt, Sunset: sunsetAt, Link: deprecatedAt ?? sunsetAt };
  for (const [name, date] of Object.entries(dates)) {
    if (date) announced[name] = { $ref: `#/components/headers/${name}` };
    else delete components.headers[name];
  }
  const { responses } = paths["/pets/{petId}"]!.get!;
  for (const [status, { $ref, ...own }] of Object.entries(responses)) {
    const response = $ref ? components.responses[$ref.split("/").at(-1)!]! : own;
    responses[status] = { ...response, headers: { ...response.headers, ...announced } };
  }
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
