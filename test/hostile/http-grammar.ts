/** A small grammar of HTTP requests, from good ones to rubbish. All of it follows from a seed. */
import { Random } from "../simulation/random.ts";

const crlf = "\r\n";
const methods = ["GET", "PATCH", "POST", "HEAD"];
const oddMethods = ["PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get", "", "G\0T"];
const paths = [
  "/v1/inventory",
  "/v1/inventory/1",
  "/v1/inventory/9223372036854775807",
  "/v1/inventory/1/history",
  "/v1/inventory/changes",
  "/v1/inventory/updates",
  "/v1/inventory/adjustments",
  "/v1/pets/1",
  "/v1/store/orders",
  "/v1/rate_limit",
  "/v1/usage",
  "/docs/",
  "/openapi.json",
  "/account",
  "/",
];
const oddPaths = ["*", "http://g/v1/inventory", "http://[::1", "//v1/inventory", "/v1/../v1/inventory/1"];
const numbers = [
  "0",
  "1",
  "2",
  "-1",
  "-0",
  "1.0",
  "1e2",
  "1e400",
  "007",
  "2147483647",
  "2147483648",
  "9007199254740993",
  "9223372036854775807",
  "-9223372036854775808",
  "99999999999999999999",
  "NaN",
];
const texts = [
  "",
  "a",
  "available",
  "__proto__",
  "constructor",
  "\\u0000",
  "\\ud800",
  "%00",
  "%ff",
  "%zz",
  "ä",
  "\xff",
];
const oddVersions = ["HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "http/1.1", ""];
const names = ["quantity", "petId", "delta", "status", "updates", "adjustments", "reason", "requestId", "__proto__"];
const queries = ["since", "petIds", "after", "limit", "before", "hours", "status", "api_key", "x"];

/** Header lines with a meaning, each with good and bad values. */
const headers: Readonly<Record<string, readonly string[]>> = {
  "If-None-Match": ["*", '"r1"', 'W/"r1"', '"', '"a","b"', "r1"],
  "If-Match": ["*", '"r1"', 'W/"r1"', '"r99999999999999999999"', '"'],
  "If-Modified-Since": ["Thu, 01 Jan 1970 00:00:00 GMT", "x"],
  "Idempotency-Key": ["k1", "", "a b", "k".repeat(300), '"q"'],
  Prefer: ["wait=0", "wait=1", "wait=-1", "wait=1e9", "wait=1, wait=2", "respond-async"],
  Range: ["bytes=0-1", "bytes=-1", "bytes=9-1"],
  "Accept-Encoding": ["gzip", "gzip;q=0", "*", "br;q=2", ",,,"],
  Accept: ["*/*", "text/html", "application/xml;q=x"],
  Expect: ["100-continue", "200-ok"],
  Connection: ["close", "keep-alive", "Upgrade", "X-Request-Id, Authorization, Host", "\t"],
  Upgrade: ["websocket", "h2c"],
  "X-Request-Id": ["mine", "a".repeat(500), "ps_live_x"],
  "X-Forwarded-For": ["1.2.3.4", "::1, x", "unknown", ",,,", "1.2.3.4:80"],
  Traceparent: ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-x", "ff-"],
  Cookie: ["a=b; c", "=".repeat(1_000)],
};

/** Those that make most requests invalid. */
const rareHeaders: typeof headers = {
  "Content-Type": ["application/json", "application/json; charset=utf-16", "text/plain", "a/b/c", ";"],
  "Content-Encoding": ["gzip", "identity", "br, br"],
  "Content-Length": ["0", "1", "-1", "+5", "5, 5", "5, 6", "0x10", "1e3", "99999999999999999999"],
  "Transfer-Encoding": ["chunked", "chunked", "gzip, chunked", "chunked, chunked", "identity", "\x0bchunked"],
  Host: ["g", "", "a b", "[::1]:80", "x/y", "g:99999999"],
};

/** Makes the bytes of one connection: one request or a few, good or not. */
export function httpInput(seed: number, key: string): Buffer {
  const random = new Random(seed);
  const requests = Array.from({ length: random.chance(0.1) ? 1 + random.below(4) : 1 }, () => httpRequest(random, key));
  const bytes = Buffer.from(requests.join(""), "latin1");
  return random.chance(0.2) ? damage(bytes, random) : bytes;
}

/** Writes over, removes, doubles or adds a few bytes, or cuts the rest off. */
export function damage(bytes: Buffer, random: Random): Buffer {
  let damaged = bytes;
  for (let left = 1 + random.below(3); left > 0; left--) {
    const at = random.below(damaged.length + 1);
    const to = at + random.below(random.chance(0.8) ? 4 : 200);
    const some = Buffer.from(Array.from({ length: random.below(4) }, () => random.below(256)));
    const [before, part, rest] = [damaged.subarray(0, at), damaged.subarray(at, to), damaged.subarray(to)];
    const kind = random.weighted({ write: 4, cut: 1, remove: 3, double: 2 });
    if (kind === "write") damaged = Buffer.concat([before, some, rest]);
    else if (kind === "cut") damaged = before;
    else if (kind === "remove") damaged = Buffer.concat([before, rest]);
    else damaged = Buffer.concat([before, part, part, some, rest]);
  }
  return damaged;
}

function httpRequest(random: Random, key: string): string {
  const odd = (probability: number) => random.chance(probability);
  const path = odd(0.03) ? random.pick(oddPaths) : target(random);
  const fit = /updates|adjustments/.test(path) ? "POST" : random.pick(["GET", "GET", "PATCH"]);
  const method = odd(0.03) ? random.pick(oddMethods) : odd(0.2) ? random.pick(methods) : fit;
  const lines = [`${method} ${path} ${odd(0.03) ? random.pick(oddVersions) : "HTTP/1.1"}`];
  if (!odd(0.02)) lines.push("Host: g");
  if (!odd(0.03)) lines.push(`Authorization: Bearer ${odd(0.03) ? mangled(key, random) : key}`);
  for (let left = random.below(3); left > 0; left--) {
    const name = random.pick(Object.keys(odd(0.1) ? rareHeaders : headers));
    const value = random.pick((headers[name] ?? rareHeaders[name])!);
    lines.push(`${odd(0.1) ? name.toUpperCase() : name}: ${value}`);
  }
  if (random.chance(0.05)) lines.push(random.pick(["x", ": x", "a b: c", " folded", "X-A: \0", "X-A: \r", "\xffx: y"]));
  if (random.chance(0.02)) lines.push(`X-Long: ${"v".repeat(random.below(40_000))}`);
  if (random.chance(0.02)) lines.push(...Array.from({ length: random.below(150) }, (_, i) => `X-${i}: v`));
  let body = "";
  if (method !== "GET" || odd(0.1)) {
    body = odd(0.02) ? "x".repeat(random.below(200_000)) : json(random, path);
    lines.push("Content-Type: application/json");
    if (random.chance(0.3)) {
      lines.push("Transfer-Encoding: chunked");
      body = chunked(body, random);
    } else if (random.chance(0.95)) {
      lines.push(`Content-Length: ${random.chance(0.95) ? body.length : random.below(2 * body.length + 2)}`);
    }
  }
  return lines.join(crlf) + crlf + (random.chance(0.98) ? crlf : "") + body;
}

function target(random: Random): string {
  let path = random.pick(paths);
  if (random.chance(0.1)) path = path.replace("1", random.pick([...numbers, ...texts]));
  if (random.chance(0.02)) path += `/${random.pick(texts)}`.repeat(random.below(2_000));
  if (random.chance(0.6)) return path;
  const query = Array.from({ length: 1 + random.below(3) }, () => {
    return `${random.pick(queries)}=${random.pick([...numbers, ...texts, '"4f2c9a01-318"', "1,2,2", "1,".repeat(2_000)])}`;
  });
  return `${path}?${query.join("&")}`;
}

function mangled(key: string, random: Random): string {
  return damage(Buffer.from(key), random)
    .toString("latin1")
    .replace(/[\r\n]/g, "");
}

/** A body that fits the path, or nearly so. */
function json(random: Random, path: string): string {
  if (random.chance(0.3)) return value(random, 0);
  const number = () => (random.chance(0.8) ? random.pick(["1", "2", "3"]) : random.pick(numbers));
  const change = (name: string) =>
    `{"petId":${number()},"${name}":${random.chance(0.95) ? number() : value(random, 2)}}`;
  const some = (name: string) => `[${Array.from({ length: random.below(5) }, () => change(name)).join()}]`;
  if (path.includes("updates")) return some("quantity");
  if (path.includes("adjustments")) {
    return random.chance(0.5) ? some("delta") : `{"adjustments":${some("delta")},"allOrNothing":${random.chance(0.5)}}`;
  }
  return `{"quantity":${number()}${random.chance(0.1) ? `,"${random.pick(names)}":${value(random, 2)}` : ""}}`;
}

function value(random: Random, depth: number): string {
  const kind = depth > 3 ? "number" : random.weighted({ object: 6, list: 2, number: 5, text: 2, word: 1, deep: 0.1 });
  const some = (of: () => string) => Array.from({ length: random.below(4) }, of).join();
  switch (kind) {
    case "object":
      return `{${some(() => `"${random.pick(names)}":${value(random, depth + 1)}`)}}`;
    case "list":
      return `[${some(() => value(random, depth + 1))}]`;
    case "number":
      return random.pick(numbers);
    case "text":
      return `"${random.pick(texts)}"`;
    case "word":
      return random.pick(["null", "true", "nul", "", "\x00", "\xef\xbb\xbf{}"]);
    case "deep":
      return random.pick(["[", '{"a":']).repeat(random.below(10_000));
  }
}

function chunked(body: string, random: Random): string {
  const size = 1 + random.below(20);
  let text = "";
  for (let at = 0; at < Math.min(body.length, 10_000); at += size) {
    const piece = body.slice(at, at + size);
    const length = random.chance(0.98) ? piece.length.toString(16) : random.pick(["", "-1", "fffffffff", "0x1", "g"]);
    text += `${length}${random.chance(0.05) ? ";a=b" : ""}${crlf}${piece}${crlf}`;
  }
  return `${text}0${crlf}${random.chance(0.1) ? `X-Trailer: x${crlf}` : ""}${random.chance(0.95) ? crlf : ""}`;
}
