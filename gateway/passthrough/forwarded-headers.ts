/** Which headers and query parameters go to an upstream, and which headers come back from it. */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { holdsKey, minKeyLength } from "../accounts/keys/key-format.ts";

/**
 * The client's headers that go to the upstream: they choose the record and its form, name the client's program, or
 * trace. The others stay here: an upstream might trust one as the address or the name of a caller, or as an order to a
 * proxy.
 * `Range` is not among them, because an answer is always a whole record.
 */
const sentUp = [
  "accept",
  "accept-encoding",
  "accept-language",
  "if-match",
  "if-modified-since",
  "if-none-match",
  "if-unmodified-since",
  "prefer",
  "traceparent",
  "tracestate",
  "user-agent",
];

/** Selects the client's headers that go to the upstream. One that holds an API key is left out. */
export function headersToSendUp(received: IncomingHttpHeaders): IncomingHttpHeaders {
  const ofConnection = namedByConnection(received);
  const kept = sentUp.filter(
    (name) => received[name] !== undefined && !ofConnection.has(name) && !showsKey(String(received[name])),
  );
  return Object.fromEntries(kept.map((name) => [name, received[name]]));
}

/** The query string of a URL with its `?`, or an empty text. A parameter that holds an API key is left out. */
export function queryToSendUp(url: string): string {
  const start = url.indexOf("?");
  if (start === -1) return "";
  const query = url.slice(start + 1);
  if (!showsKey(query)) return `?${query}`;
  const kept = query.split("&").filter((parameter) => parameter !== "" && !showsKey(parameter));
  return `?${kept.join("&")}`;
}

/** An upstream decodes a part of a URL once, or by mistake twice. */
const decodings = 2;

/** Whether a text holds a key, as it is or percent-encoded: an upstream that decodes the text would see the key. */
function showsKey(text: string): boolean {
  if (text.length < minKeyLength) return false; // decoding makes no text longer
  let decoded = text;
  // `unescape` takes any bytes, and a `%` that begins no code: decodeURIComponent throws for both, which takes long.
  for (let times = 0; times < decodings && !holdsKey(decoded); times++) decoded = unescape(decoded);
  return holdsKey(decoded);
}

/**
 * Copies status and headers of an upstream's answer, for the caller alone: it answers one key, and no other caller may
 * get it from a cache. What an app around the gateway has set stays; of `Cache-Control` only `no-store`.
 */
export function copyHead(from: IncomingMessage, to: ServerResponse): void {
  to.statusCode = from.statusCode!;
  const { headers } = from;
  for (const [name, value] of Object.entries(passedBack(headers))) {
    if (value !== undefined && !to.hasHeader(name)) to.setHeader(name, value);
  }
  const isUncached = /no-store/i.test(String(to.getHeader("Cache-Control")));
  to.setHeader("Cache-Control", isUncached ? "no-store" : privateCacheControl(headers["cache-control"]));
  to.setHeader("Vary", varyByKey(to.getHeader("Vary"), headers.vary));
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

/** A text between two commas. A comma within quotes does not end it. */
const member = /(?:[^,"]|"(?:[^"\\]|\\.)*"?)+/g;
const directive = /^([\w-]+)(?:=(?:"(?:[^"\\]|\\.)*"|[^\s,"=]+))?$/;
const saysHowLong = /^(no-cache|no-store|max-age="?\d+"?)$/i;

/**
 * Keeps a shared cache from storing the answer. `public`, `s-maxage` and `must-revalidate` would each allow that,
 * though the request has an `Authorization` (RFC 9111 section 3.5), so `private` comes first. Where nothing says how
 * long the answer is fresh, the caller's cache has to ask again, as for the gateway's own answers: else it would guess
 * (section 4.2.2).
 */
function privateCacheControl(sent = ""): string {
  const members = sent.match(member)?.map((each) => each.trim()) ?? [];
  const kept = members.filter((each) => ownDirectives.has(directive.exec(each)?.[1]?.toLowerCase() ?? ""));
  return ["private", ...kept, ...(kept.some((each) => saysHowLong.test(each)) ? [] : ["no-cache"])].join(", ");
}

/** Keeps apart the answers to two keys that share a browser. */
function varyByKey(...sent: readonly ReturnType<ServerResponse["getHeader"]>[]): string {
  const all = sent.flat().filter(Boolean);
  const isByKey = /(^|,)\s*(\*|authorization)\s*(,|$)/i.test(all.join());
  return (isByKey ? all : [...all, "Authorization"]).join(", ");
}

/** The headers of an upstream's answer that come back. */
function passedBack(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const ofConnection = namedByConnection(headers);
  return Object.fromEntries(
    Object.entries(headers).filter(
      ([name]) => !keptBack.has(name) && !ofConnection.has(name) && !keptBackPattern.test(name),
    ),
  );
}

/** RFC 9110, section 7.6.1: a header that `Connection` names belongs to that connection. */
function namedByConnection({ connection }: IncomingHttpHeaders): ReadonlySet<string> {
  return new Set(connection?.split(",").map((name) => name.trim().toLowerCase()));
}

const keptBack: ReadonlySet<string> = new Set([
  // RFC 9110, section 7.6.1: these belong to one connection.
  "connection",
  "http2-settings",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  // The gateway sends its own, or none on purpose.
  "cache-control",
  "deprecation",
  "link",
  "retry-after",
  "sunset",
  "vary",
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
]);

/** `access-control-`: the API has no CORS. The limits that a caller sees are the gateway's, under whatever name. */
const keptBackPattern = new RegExp(
  "^(access-control-|netlify-|proxy-|public-key-pins|set-cookie|surrogate-|(x-)?rate-?limit|x-sendfile" +
    "|x-(accel|account|envoy|lighttpd|litespeed|reproxy)-)|cache-tags?$|-cache-control$",
);
