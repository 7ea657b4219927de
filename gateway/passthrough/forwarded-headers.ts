/** Which headers and query parameters go to an upstream, and which headers come back from it. */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { holdsKey } from "../accounts/keys/key-format.ts";

/**
 * Selects the client's headers that go to the upstream. A header that holds an API key is left out, whatever its
 * name, and so is one that a CGI-like upstream could take for another (`X_Account_Id` for `X-Account-Id`).
 */
export function headersToSendUp(received: IncomingHttpHeaders): IncomingHttpHeaders {
  const kept = Object.entries(select(received, notSentUp)).filter(
    ([name, value]) => /^[a-z0-9-]+$/.test(name) && !showsKey(String(value)),
  );
  return Object.fromEntries(kept);
}

/** The query string of a URL with its `?`, or an empty text. A parameter that holds an API key is left out. */
export function queryToSendUp(url: string): string {
  const start = url.indexOf("?");
  if (start === -1) return "";
  const kept = url
    .slice(start + 1)
    .split("&")
    .filter((parameter) => !showsKey(parameter));
  return `?${kept.join("&")}`;
}

/** An upstream decodes a part of a URL once, or by mistake twice. */
const decodings = 2;

/** Whether a text holds a key, as it is or percent-encoded: an upstream that decodes the text would see the key. */
function showsKey(text: string): boolean {
  let decoded = text;
  for (let times = 0; times < decodings && !holdsKey(decoded); times++) {
    decoded = decoded.replace(/%([0-9a-f]{2})/gi, (_code, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
  }
  return holdsKey(decoded);
}

/**
 * Copies status and headers of an upstream's answer, for the caller alone: it is an answer to a key, which nobody else
 * may get from a cache. Headers that the gateway has already set stay.
 */
export function copyHead(from: IncomingMessage, to: ServerResponse): void {
  to.statusCode = from.statusCode!;
  const { headers } = from;
  const kept = {
    ...select(headers, notPassedBack),
    "cache-control": privateCacheControl(headers["cache-control"]),
    vary: varyByKey(headers.vary),
  };
  for (const [name, value] of Object.entries(kept)) {
    if (value !== undefined && !to.hasHeader(name)) to.setHeader(name, value);
  }
}

/** Directives of `Cache-Control` for the caller's own cache. All others are for caches that callers share. */
const ownDirectives = new Set([
  "immutable",
  "max-age",
  "must-revalidate",
  "must-understand",
  "no-cache",
  "no-store",
  "no-transform",
  "stale-if-error",
  "stale-while-revalidate",
]);

/** What stands between two commas; those within quotes part nothing. */
const member = /(?:[^,"]|"(?:[^"\\]|\\.)*"?)+/g;
const directive = /^([\w-]+)(?:=(?:"(?:[^"\\]|\\.)*"|[^\s,"=]+))?$/;
const saysHowLong = /^(no-cache|no-store|max-age="?\d+"?)$/i;

/**
 * Keeps a shared cache from storing the answer. Without a directive it must not, because the request has an
 * `Authorization` (RFC 9111 section 3.5); `public`, `s-maxage` and `must-revalidate` would each allow it. Where nothing
 * says how long the answer is fresh, the caller's cache has to ask again, as for the gateway's own answers: else it
 * would guess (section 4.2.2).
 */
function privateCacheControl(sent = ""): string {
  const members = sent.match(member)?.map((each) => each.trim()) ?? [];
  const kept = members.filter((each) => ownDirectives.has(directive.exec(each)?.[1]?.toLowerCase() ?? ""));
  return ["private", ...kept, ...(kept.some((each) => saysHowLong.test(each)) ? [] : ["no-cache"])].join(", ");
}

/** Keeps the answers to two keys apart, in a browser where one follows the other. */
function varyByKey(sent: string | undefined): string {
  return /(^|,)\s*(\*|authorization)\s*(,|$)/i.test(sent ?? "")
    ? sent!
    : [sent, "Authorization"].filter(Boolean).join(", ");
}

/** Headers that are left out, by their name in lower case. */
interface Selection {
  readonly names: ReadonlySet<string>;
  readonly pattern: RegExp;
}

/** Leaves out the headers of a selection, and those that belong to the connection. */
function select(headers: IncomingHttpHeaders, { names, pattern }: Selection): IncomingHttpHeaders {
  const ofConnection = new Set(headers.connection?.split(",").map((name) => name.trim().toLowerCase()));
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => !names.has(name) && !ofConnection.has(name) && !pattern.test(name)),
  );
}

/** RFC 9110, section 7.6.1: these belong to one connection, as does every name that `Connection` lists. */
const hopByHop = ["connection", "http2-settings", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

const notSentUp: Selection = {
  names: new Set([
    ...hopByHop,
    "host",
    // Credentials concern the gateway alone.
    "authorization",
    "cookie",
    "x-api-key",
    // The upstream trusts these, so they have to be the gateway's own.
    "forwarded",
    "true-client-ip",
    "x-client-ip",
    "x-real-ip",
    "x-request-id",
    // They would let a client that may only read call another method or path.
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    // No body is sent, and the answer is always a whole record.
    "expect",
    "if-range",
    "range",
  ]),
  pattern: /^(proxy-|content-|x-account-|x-forwarded|x-ratelimit)/,
};

const notPassedBack: Selection = {
  names: new Set([
    ...hopByHop,
    // The gateway sends its own, or none on purpose.
    "deprecation",
    "link",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "sunset",
    "x-request-id",
    // They are about the upstream, which the client cannot reach.
    "accept-ranges",
    "alt-svc",
    "content-location",
    "location",
    "server",
    "www-authenticate",
    "x-powered-by",
    // In a browser they would hold for the gateway's whole origin.
    "accept-ch",
    "clear-site-data",
    "expect-ct",
    "nel",
    "origin-trial",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "set-login",
    "strict-transport-security",
    // They instruct caches, CDNs and proxies on the way to the client. `Cache-Control` alone says what may be kept.
    "edge-control",
    "expires",
    "no-vary-search",
    "pragma",
    "use-as-dictionary",
    "xkey",
  ]),
  // access-control-: the API has no CORS
  pattern: new RegExp(
    "^(access-control-|netlify-|proxy-|public-key-pins|set-cookie|surrogate-|x-ratelimit|x-sendfile" +
      "|x-(accel|account|envoy|lighttpd|litespeed|reproxy)-)|cache-tags?$|-cache-control$",
  ),
};
