import { errorTable } from "../http/errors.ts";
import type { BanRules } from "../limits/bans.ts";
import type { PlanTable } from "../limits/plans.ts";

export interface UsageRules {
  readonly plans: PlanTable;
  readonly banRules: BanRules;
  /** Requests per minute from one address that bring no valid key. */
  readonly guardPerMinute: number;
  /** Whose requests a limit counts together. */
  readonly limitsPer: "account" | "key";
}

/** How to use the API, in Markdown. */
export function usage(rules: UsageRules): string {
  const parts = [intro, authentication, limits(rules), retries(rules.banRules), errors(), versioning];
  return parts.map(unwrap).join("\n\n");
}

/** Makes one line of each paragraph: Swagger UI shows a line break wherever there is one. Tables and headings stay. */
function unwrap(markdown: string): string {
  return markdown.replace(/([^\n|])\n(?=[^\n|#])/g, "$1 ");
}

const intro = `\
The petstore inventory tracks the stock of the animals ("pets") that a store holds: read the stock of all pets, and set
the quantity of one. All bodies are JSON in UTF-8. A \`petId\` is any int64, always a JSON integer and always exact.`;

const authentication = `\
## Authentication

Send your API key with every request: \`Authorization: Bearer <API_KEY>\`. A missing, unknown, revoked or expired key is
answered with 401. Each operation names the scope that it needs; a key without it gets 403. A path that does not exist
is 401 without a valid key, and 404 with one.`;

function limits({ plans, guardPerMinute, limitsPer }: UsageRules): string {
  const rows = [
    ["Free", plans.free],
    ["Pro", plans.pro],
    ["Business", plans.business],
  ] as const;
  const row = (name: string, perMinute: string, perDay: string) => `| ${name} | ${perMinute} | ${perDay} |`;
  const counted =
    limitsPer === "account" ? "All keys of an account share its limits." : "Each key of an account has these limits.";
  return `\
## Limits

| Plan | Requests per minute | Requests per day |
|---|---|---|
${rows.map(([name, { perMinute, perDay }]) => row(name, number(perMinute), number(perDay))).join("\n")}
${row("Enterprise", "custom", "custom")}

${counted} Requests without a valid key count for the address that they come from: ${number(guardPerMinute)} per minute.

Every response says how the caller stands. \`X-RateLimit-Limit\`, \`X-RateLimit-Remaining\` and \`X-RateLimit-Reset\`
(Unix time in seconds) speak of the window that binds; \`RateLimit-Policy\` and \`RateLimit\` list all windows.`;
}

function retries({ refusals, ladderMinutes, forgetAfterMs }: BanRules): string {
  const [first, ...then] = ladderMinutes;
  const longer = then.length === 0 ? "" : `, and while it keeps on, for ${then.map(minutes).join(", then ")}`;
  return `\
## Retries and bans

A request above the limit gets 429. Wait for the seconds in \`Retry-After\`, and back off exponentially, with some
randomness, when a request is refused again. The same goes for 503. Every operation may be repeated: a stock update sets
the quantity, and does not add to it.

A key that is refused ${number(refusals)} times within a minute is banned for ${minutes(first!)}${longer}. A banned key
gets 429 with \`api_key_banned\`, and \`Retry-After\` and \`X-RateLimit-Reset\` tell when the ban ends. After
${hours(forgetAfterMs)} without a ban it all begins anew.`;
}

function errors(): string {
  const rows = Object.entries(errorTable)
    .sort(([, a], [, b]) => a.status - b.status)
    .map(([code, { status, message }]) => `| ${status} | \`${code}\` | ${message} |`);
  return `\
## Errors

Every error has the body \`{"code": …, "message": …, "status": …}\`. Switch on \`code\`; the wording of \`message\` may
change, and may say more than this table. \`X-Request-Id\` names the request to us.

| Status | Code | Message |
|---|---|---|
${rows.join("\n")}

In three cases the status is a more exact one: \`timeout\` is 408 when the request itself does not arrive in time,
\`not_found\` is 410 for an operation that has been retired, and \`payload_too_large\` is 431 for the headers.`;
}

const versioning = `\
## Versions

This is version 1.0.0 of the interface, below \`/v1\`. New members in responses, new headers and new operations may come
at any time: ignore what you do not know. What is marked **experimental** may still change its request, and what is
**deprecated** tells its dates in the headers \`Deprecation\`, \`Sunset\` and \`Link\`.`;

function number(value: number): string {
  return value.toLocaleString("en-US");
}

function minutes(value: number): string {
  return value === 1 ? "1 minute" : `${number(value)} minutes`;
}

function hours(ms: number): string {
  const value = ms / 3_600_000;
  return value === 1 ? "1 hour" : `${number(value)} hours`;
}
