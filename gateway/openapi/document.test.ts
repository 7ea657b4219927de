import { Validator } from "@seriousme/openapi-schema-validator";
import { maxGroupChanges, maxQuantity, petStatuses } from "../../proto/pet.ts";
import { publishedPlans } from "../accounts/keys/plans.ts";
import { publishedBanRules } from "../admission/bans.ts";
import { type ErrorCode, errorTable } from "../http/api-error.ts";
import type { DeprecationNotice } from "../http/deprecations.ts";
import { parseStockUpdate } from "../inventory/input.ts";
import { parseBulkUpdates } from "../inventory/updates/bulk-input.ts";
import { type OpenApiOptions, openApiDocument } from "./document.ts";

const dates = { deprecatedAt: new Date("2026-01-01T00:00:00Z"), sunsetAt: new Date("2027-07-01T00:00:00Z") };
const noDates = { deprecatedAt: null, sunsetAt: null };

const options: OpenApiOptions = {
  servers: ["https://api.petstore.example/v1", "https://staging.petstore.example/v1"],
  plans: publishedPlans,
  banRules: publishedBanRules,
  deprecations: { getPet: dates },
  addressGuardPerMinute: 60,
  keyedUpdatesPerDay: 200_000,
  hasKeyRotation: true,
};

/** The document as a client reads it. */
interface Document {
  readonly openapi: string;
  readonly info: { readonly version: string; readonly description: string; readonly license: object };
  readonly servers: readonly object[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly deprecated?: boolean;
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  readonly parameters: readonly (Reference | { readonly name: string })[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly example: unknown }>> };
  readonly responses: Readonly<Record<string, ApiResponse | Reference>>;
}

interface ApiResponse {
  readonly description: string;
  readonly headers: Readonly<Record<string, Reference>>;
  readonly content?: Readonly<Record<string, { readonly schema: unknown; readonly examples: ErrorExamples }>>;
}

type Reference = { readonly $ref: string };
type ErrorExamples = Readonly<Record<string, { readonly value: { code: ErrorCode; message: string; status: number } }>>;

const read = (given: Partial<OpenApiOptions> = {}) =>
  JSON.parse(JSON.stringify(openApiDocument({ ...options, ...given }))) as Document;

/** The link of an error to its explanation, which is no announcement. */
const isHelp = ({ $ref }: Reference) => $ref.endsWith("/HelpLink");

const document = read();

test("is ASCII, as generated Java does not compile otherwise where the locale is C", () => {
  expect(JSON.stringify(document).match(/[^ -~]/g)).toBeNull();
});

test("names the members of lists, which generators turn into types", () => {
  const { Adjustments, BulkUpdates } = document.components.schemas as Record<string, { readonly items: object }>;
  expect(Adjustments!.items).toEqual({ $ref: "#/components/schemas/Adjustment" });
  expect(BulkUpdates!.items).toEqual({ $ref: "#/components/schemas/BulkUpdate" });
});
const operations = operationsOf(document);
const responses = operations.flatMap(({ name, operation }) => responsesOf(name, operation));
const errors = responses.filter(({ status }) => status >= 400);

test("the document is valid OpenAPI 3.1 for version 1.0.0 of the interface, under Apache-2.0", async () => {
  const validator = new Validator();
  expect(await validator.validate(structuredClone(document) as unknown as Record<string, unknown>)).toEqual({
    valid: true,
  });
  expect(validator.version).toBe("3.1");
  expect(document.info).toMatchObject({ version: "1.0.0", license: { identifier: "Apache-2.0" } });
});

test("every reference of the OpenAPI document has a target, and every component is referred to", () => {
  const references = new Set(referencesIn(document));
  for (const reference of references)
    expect([reference, typeof resolve({ $ref: reference })]).toEqual([reference, "object"]);
  const { securitySchemes, ...components } = document.components;
  expect(Object.keys(securitySchemes!)).toEqual(["apiKey"]);
  const defined = Object.entries(components).flatMap(([kind, byName]) =>
    Object.keys(byName).map((name) => `#/components/${kind}/${name}`),
  );
  expect([...references].sort()).toEqual(defined.sort());
});

test("the documented operations are those of the contract, each with the scope that a key needs", () => {
  expect(document.components.securitySchemes!.apiKey).toMatchObject({ type: "http", scheme: "bearer" });
  const scopes = operations.map(({ name, operation: { operationId, security, description } }) => {
    const [scope] = security[0]!.apiKey!;
    expect(description).toContain(scope ? `\`${scope}\`` : "Any valid key");
    return [name, operationId, scope];
  });
  expect(scopes).toEqual([
    ["get /inventory", "listInventory", "inventory:read"],
    ["get /inventory/changes", "listInventoryChanges", "inventory:read"],
    ["get /inventory/{petId}", "getInventoryItem", "inventory:read"],
    ["patch /inventory/{petId}", "updateInventory", "inventory:write"],
    ["post /inventory/updates", "bulkUpdateInventory", "inventory:write"],
    ["post /inventory/adjustments", "adjustInventory", "inventory:write"],
    ["get /inventory/{petId}/history", "getInventoryHistory", "inventory:read"],
    ["get /pets/{petId}", "getPet", "store:read"],
    ["get /store/orders", "getOrders", "store:read"],
    ["get /rate_limit", "getRateLimit", undefined],
    ["get /usage", "getUsage", undefined],
    ["post /keys/rotate", "rotateKey", "keys:rotate"],
  ]);
});

test.each([
  ["get /inventory", [200, 304, 400, 401, 403, 429, 500, 503, 504]],
  ["get /inventory/changes", [200, 400, 401, 403, 410, 429, 500, 503, 504]],
  ["get /inventory/{petId}", [200, 304, 400, 401, 403, 404, 429, 500, 503, 504]],
  ["patch /inventory/{petId}", [200, 400, 401, 403, 404, 408, 412, 413, 415, 422, 429, 500, 503, 504]],
  ["post /inventory/updates", [200, 400, 401, 403, 408, 413, 415, 422, 429, 500, 503, 504]],
  ["post /inventory/adjustments", [200, 400, 401, 403, 404, 408, 409, 412, 413, 415, 422, 429, 500, 503, 504]],
  ["get /inventory/{petId}/history", [200, 400, 401, 403, 404, 429, 500, 503, 504]],
  ["get /pets/{petId}", [200, 304, 400, 401, 403, 404, 410, 412, 429, 500, 502, 503, 504]],
  ["get /store/orders", [200, 304, 400, 401, 403, 404, 412, 429, 500, 502, 503, 504]],
  ["get /rate_limit", [200, 400, 401, 429, 500, 503]],
  ["get /usage", [200, 400, 401, 429, 500, 503]],
  ["post /keys/rotate", [201, 400, 401, 403, 408, 409, 413, 415, 429, 500, 503]],
])("%s documents every status that it can answer", (name, statuses) => {
  expect(responses.filter((response) => response.name === name).map(({ status }) => status)).toEqual(statuses);
});

test("every documented response has the limit headers and the request id", () => {
  for (const { name, status, response } of responses) {
    const missing = [
      "X-RateLimit-Limit",
      "X-RateLimit-Remaining",
      "X-RateLimit-Reset",
      "RateLimit-Policy",
      "RateLimit",
      "X-Request-Id",
    ].filter((header) => !isSure(response, header));
    expect([name, status, missing]).toEqual([name, status, []]);
  }
});

test.each([
  ["Retry-After", [429]],
  ["WWW-Authenticate", [401, 403]],
])("%s is documented in every response of status %j", (header, statuses) => {
  const having = errors.filter(({ response }) => isSure(response, header)).map(({ status }) => status);
  expect(having).toEqual(errors.map(({ status }) => status).filter((status) => statuses.includes(status)));
});

test("the answers that have ETag or Vary are documented with it", () => {
  const having = (header: string) =>
    responses.filter(({ response }) => isSure(response, header)).map(({ name, status }) => `${name} ${status}`);
  expect(having("ETag")).toEqual([
    "get /inventory 200",
    "get /inventory 304",
    "get /inventory/{petId} 200",
    "get /inventory/{petId} 304",
    "patch /inventory/{petId} 200",
  ]);
  expect(having("Vary")).toEqual([
    "get /inventory 200",
    "get /inventory 304",
    "get /pets/{petId} 200",
    "get /pets/{petId} 304",
    "get /store/orders 200",
    "get /store/orders 304",
  ]);
});

test("every documented error links to what it means, and no other answer does", () => {
  const links = responses.filter(({ response }) => response.headers.Link && isHelp(response.headers.Link));
  const ofPets = errors.filter(({ name }) => name === "get /pets/{petId}"); // its deprecation has the link, too
  expect(links).toEqual(errors.filter((error) => !ofPets.includes(error)));
});

test("every documented error may not be stored, and 415 names the media types of an update", () => {
  for (const { name, status, response } of errors) {
    expect([name, status, isSure(response, "Cache-Control")]).toEqual([name, status, true]);
    const accepted = ["Accept-Patch", "Accept-Post"].filter((header) => isSure(response, header));
    const expected = name.startsWith("post") ? ["Accept-Post"] : ["Accept-Patch"];
    expect([name, status, accepted]).toEqual([name, status, status === 415 ? expected : []]);
  }
});

test("every documented error has the Error body, with examples from the error table", () => {
  for (const { name, status, response } of errors) {
    const { schema, examples } = response.content!["application/json"]!;
    expect(schema).toEqual({ $ref: "#/components/schemas/Error" });
    expect([name, status, Object.keys(examples).length > 0]).toEqual([name, status, true]);
    for (const [code, { value }] of Object.entries(examples)) {
      expect(value).toEqual({ code, message: expect.any(String), status });
      const known = errorTable[value.code];
      // 408 and 410 have messages of their own.
      if (status !== 408 && status !== 410) expect(value).toEqual({ code, ...known });
      else expect(Object.keys(errorTable)).toContain(code);
    }
  }
});

test("every error code is an example of some operation, but for that of methods without one", () => {
  const codes = Object.keys(errorTable);
  const shown = errors.flatMap(({ response }) => Object.keys(response.content!["application/json"]!.examples));
  expect(codes.filter((code) => !shown.includes(code))).toEqual(["method_not_allowed"]);
  expect(document.components.schemas!.Error).toMatchObject({ properties: { code: { enum: codes } } });
});

test("the schemas have the contract's statuses and bounds, and their example update is accepted", () => {
  expect(document.components.schemas!.InventoryUpdate).toMatchObject({
    type: "object",
    properties: { quantity: { type: "integer", minimum: 0, maximum: maxQuantity } },
    required: ["quantity"],
  });
  expect(document.components.schemas!.InventoryItem).toMatchObject({
    properties: { quantity: { type: "integer", minimum: 0, maximum: maxQuantity } },
    required: ["petId", "quantity", "status"],
  });
  expect(document.components.schemas!.PetStatus).toMatchObject({ enum: petStatuses });
  const { content } = document.paths["/inventory/{petId}"]!.patch!.requestBody!;
  expect(Object.keys(content)).toEqual(["application/json", "application/merge-patch+json"]);
  for (const { example } of Object.values(content)) parseStockUpdate(Buffer.from(JSON.stringify(example)));
  const bulk = document.paths["/inventory/updates"]!.post!.requestBody!.content["application/json"]!;
  expect(parseBulkUpdates(Buffer.from(JSON.stringify(bulk.example)))).toHaveLength(2);
  expect(document.components.schemas!.BulkUpdates).toMatchObject({ minItems: 1, maxItems: maxGroupChanges });
});

test("a petId is documented as an int64, and no number of the document would be rounded", () => {
  const int64 = { type: "integer", format: "int64" };
  expect(document.components.parameters!.PetId).toMatchObject({ in: "path", required: true, schema: int64 });
  expect(document.components.schemas!.InventoryItem).toMatchObject({ properties: { petId: int64 } });
  const numbers = JSON.stringify(document).match(/(?<=[:,[])-?\d+(?=[\],}])/g)!;
  expect(numbers.filter((number) => !Number.isSafeInteger(Number(number)))).toEqual([]);
});

test("the rotation of keys is documented only where it is possible, with no dangling reference", () => {
  const without = read({ hasKeyRotation: false });
  expect(Object.keys(document.paths)).toEqual([...Object.keys(without.paths), "/keys/rotate"]);
  const rotated = "#/components/schemas/RotatedKey";
  expect(new Set([...referencesIn(without), rotated])).toEqual(new Set(referencesIn(document)));
  expect(without.components.schemas).not.toHaveProperty("RotatedKey");
});

test.each(["patch /inventory/{petId}", "post /inventory/updates"])("%s is documented as experimental", (name) => {
  const { operation } = operations.find((each) => each.name === name)!;
  expect(operation).toMatchObject({ "x-experimental": true, summary: expect.stringContaining("experimental") });
  expect(operation.description).toContain("Experimental");
});

test("the PATCH and all that is not in the four operations of the contract is experimental", () => {
  const isMarked = (part: object) => (part as { readonly "x-experimental"?: true })["x-experimental"] === true;
  /** Names of components, and of parameters that are no component. */
  const unmarked = (parts: readonly (Reference | { readonly name: string })[]) => {
    const stable = parts.filter((part) => !isMarked("$ref" in part ? (resolve(part) as object) : part));
    return [...new Set(stable.map((part) => ("$ref" in part ? part.$ref.split("/").at(-1)! : part.name)))].sort();
  };
  const stable = operations.filter(({ operation }) => !isMarked(operation));
  expect(stable.map(({ operation }) => operation.operationId)).toEqual(["listInventory", "getPet", "getOrders"]);
  expect(operations.filter(({ operation }) => !operation.summary.endsWith("(experimental)"))).toEqual(stable);
  expect(unmarked(operations.flatMap(({ operation }) => operation.parameters))).toEqual([
    "IfMatch",
    "IfNoneMatch",
    "PetId",
    "RequestId",
  ]);
  expect(unmarked(responses.flatMap(({ response }) => Object.values(response.headers)))).toEqual([
    "AcceptPatch",
    "CacheControl",
    "Challenge",
    "Deprecation",
    "EntryETag",
    "HelpLink",
    "Link",
    "ListETag",
    "NoStore",
    "RateLimit",
    "RateLimitLimit",
    "RateLimitPolicy",
    "RateLimitRemaining",
    "RateLimitReset",
    "RecordCacheControl",
    "RecordETag",
    "RequestId",
    "RetryAfter",
    "RetryAfterIfKnown",
    "Sunset",
    "Vary",
  ]);
});

test("an Idempotency-Key is documented as one of an account and a pet, so another pet is no 422", () => {
  const { IdempotencyKey } = document.components.parameters as { readonly IdempotencyKey: { description: string } };
  expect(IdempotencyKey.description).toContain("for the account and the pet");
  expect(IdempotencyKey.description).toContain("With another pet the same key makes a new update");
  const reused = responses.filter(({ status }) => status === 422);
  const bySingleKey = reused.filter(({ name }) => name !== "post /inventory/adjustments");
  expect(bySingleKey.map(({ name }) => name)).toEqual(["patch /inventory/{petId}", "post /inventory/updates"]);
  for (const { response } of bySingleKey) expect(response.description).toContain("for the same pet");
  const ofAdjustments = reused.find(({ name }) => name === "post /inventory/adjustments")!;
  expect(ofAdjustments.response.description).toBe(
    "Other adjustments of the account have used the `Idempotency-Key`; nothing was changed.",
  );
  const { description } = document.paths["/inventory/updates"]!.post!;
  expect(description).toContain("another request for one of these pets has used the key");
});

test("a refused rotation is documented by the faults that it can have", () => {
  const { response } = responses.find(({ name, status }) => name === "post /keys/rotate" && status === 400)!;
  expect(response.description).toContain("`graceSeconds` is not an integer from 0 to 604,800");
  expect(response.description).not.toMatch(/petId|If-Match|Idempotency-Key/);
  expect(Object.keys(response.content!["application/json"]!.examples)).toEqual(["invalid_request", "invalid_json"]);
});

test("changes are documented as unavailable since an ETag from before a restore or of the future", () => {
  const { ChangesUnavailable } = document.components.responses as Record<string, ApiResponse>;
  expect(ChangesUnavailable!.description).toMatch(/from before a restore.* of the future.* more has changed/);
});

test("ifMatch is documented to take the ETags of reads, too", () => {
  expect(document.components.schemas!.BulkUpdate).toMatchObject({
    properties: { ifMatch: { description: expect.stringContaining("from earlier reads or updates") } },
  });
});

test("an update of many is documented to give 500, 503 or 504 where its result is not known", () => {
  const { description } = document.paths["/inventory/updates"]!.post!;
  expect(description.match(/500, 503 or 504/g)).toHaveLength(2);
});

describe("the documented deprecation of GET /pets/{petId}", () => {
  const announcement = ["Deprecation", "Sunset", "Link"];
  const pets = (given: DeprecationNotice) => {
    const { get } = read({ deprecations: { getPet: given } }).paths["/pets/{petId}"]!;
    const having = responsesOf("pets", get!).map(({ response }) =>
      announcement.filter((header) => response.headers[header] && !isHelp(response.headers[header])),
    );
    return { operation: get!, having };
  };

  test("has its dates in the description and its headers in every response", () => {
    const { operation, having } = pets(dates);
    expect(operation).toMatchObject({ deprecated: true, "x-sunset": "2027-07-01T00:00:00.000Z" });
    expect(operation.description).toContain("since 1 January 2026, 00:00 UTC");
    expect(operation.description).toContain("from 1 July 2027, 00:00 UTC");
    expect(having).toEqual(having.map(() => announcement));
  });

  test("has no header for a date that is not set", () => {
    const undated = pets(noDates);
    expect(undated.operation).toMatchObject({
      deprecated: true,
      description: expect.stringContaining("not announced"),
    });
    expect(undated.operation).not.toHaveProperty("x-sunset");
    expect(undated.having).toEqual(undated.having.map(() => []));
    const deprecatedOnly = pets({ ...dates, sunsetAt: null });
    expect(deprecatedOnly.having).toEqual(deprecatedOnly.having.map(() => ["Deprecation", "Link"]));
  });

  test("may be that of any operation, with a link and the answer of one that is gone", () => {
    const { paths } = read({ deprecations: { getOrders: { ...dates, link: "https://docs.example/orders" } } });
    const { get } = paths["/store/orders"]!;
    expect(get).toMatchObject({ deprecated: true, summary: expect.stringMatching(/ \(deprecated\)$/) });
    expect(get!.description).toContain("[More about its end](https://docs.example/orders)");
    expect(get!.responses).toHaveProperty("410");
    expect(paths["/pets/{petId}"]!.get).not.toHaveProperty("deprecated");
  });

  test("appears in no other operation", () => {
    const others = responses.filter(({ name }) => name !== "get /pets/{petId}");
    const own = announcement.filter((header) => header !== "Link"); // which also leads to the next page of the list
    expect(others.filter(({ response }) => own.some((header) => response.headers[header]))).toEqual([]);
    expect(operations.filter(({ operation }) => operation.deprecated)).toHaveLength(1);
  });
});

test("the description of the API has the limits and bans of this deployment", () => {
  const { description } = document.info;
  expect(description).toContain("| Free | 60 | 1,000 |\n| Pro | 300 | 10,000 |\n| Business | 1,000 | 100,000 |\n| Ent");
  expect(description).toContain("All keys of an account share its limits.");
  expect(description).toContain(
    "refused 30 times within a minute is banned for 5 minutes. Further bans last 15 minutes, then 60 minutes. What comes",
  );
  const other = read({
    plans: { ...publishedPlans, free: { perMinute: 7, perDay: 77 } },
    banRules: { maxStrikes: 9, ladderMinutes: [1], forgetAfterMs: 3_600_000 },
    addressGuardPerMinute: 5,
    keyedUpdatesPerDay: 200_000,
  }).info.description;
  expect(other).toContain("| Free | 7 | 77 |");
  expect(other).toContain("that they come from: 5 per minute.");
  expect(other).toContain("refused 9 times within a minute is banned for 1 minute. What comes");
  expect(other).toContain("After 1 hour without a ban");
});

test("the description begins with all that a client can do, with rotation where it is possible", () => {
  const beginning = (given: Document) => given.info.description.split("\n\n## ")[0]!;
  for (const ability of [
    "read the stock of all pets, of some, or of one, and what has changed since a list",
    "set the stock of one pet, or of up to 100 in one request",
    "read the limits and the requests of its account, and replace its API key",
    "read records of other services",
  ]) {
    expect(beginning(document)).toContain(ability);
  }
  expect(beginning(read({ hasKeyRotation: false }))).toContain("the requests of its account;");
});

test("the description of the API says what a repeat of each kind of request does", () => {
  const retries = (given: Document) =>
    given.info.description.split("\n## ").find((part) => part.startsWith("Retries"))!;
  expect(retries(document)).not.toContain("every operation");
  for (const part of [
    "500, 502, 503, 504",
    "every read",
    "`Idempotency-Key`",
    "`If-Match`",
    "`ifMatch`",
    "409",
    "422",
  ]) {
    expect(retries(document)).toContain(part);
  }
  const without = read({ hasKeyRotation: false });
  expect(retries(without)).not.toMatch(/rotat|409/);
  expect(JSON.stringify(without)).not.toContain("/keys/rotate");
});

test("the description of the API warns that clients made by tools for TypeScript round long ids", () => {
  expect(read().info.description).toMatch(
    /rounds a `petId` beyond 2\^53, and so do the clients that tools generate for/,
  );
});

test("the description of the API has the whole error table", () => {
  const rows = document.info.description.split("\n").filter((row) => /^\| \d{3} \|/.test(row));
  const table = Object.entries(errorTable).map(
    ([code, { status, message }]) => `| ${status} | \`${code}\` | ${message} |`,
  );
  expect(rows.toSorted()).toEqual(table.toSorted());
});

test.each([
  ["dates", {}],
  ["no dates", { deprecations: { getPet: noDates } }],
])("no placeholder is left in the OpenAPI document of a deployment with %s", (_what, given) => {
  expect(JSON.stringify(read(given))).not.toContain("{{");
});

test("the documented servers are those of this deployment, or one relative to the document", () => {
  expect(document.servers).toEqual([
    { url: "https://api.petstore.example/v1" },
    { url: "https://staging.petstore.example/v1" },
  ]);
  expect(read({ servers: [] }).servers).toMatchObject([{ url: "./v1" }]);
});

function operationsOf({ paths }: Document) {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ name: `${method} ${path}`, operation })),
  );
}

function responsesOf(name: string, operation: Operation) {
  return Object.entries(operation.responses).map(([status, response]) => ({
    name,
    status: Number(status),
    response: "$ref" in response ? (resolve(response) as ApiResponse) : response,
  }));
}

/** Whether a response always has the header. */
function isSure(response: ApiResponse, header: string): boolean {
  const reference = response.headers[header];
  return reference !== undefined && (resolve(reference) as { required: boolean }).required;
}

function resolve({ $ref }: Reference): unknown {
  const [root, ...names] = $ref.split("/");
  expect(root).toBe("#");
  return names.reduce<unknown>((value, name) => (value as Record<string, unknown> | undefined)?.[name], document);
}

function referencesIn(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => (name === "$ref" ? [inner as string] : referencesIn(inner)));
}
