/** Serves pages that need no key, with files of their own that are compressed once. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { gzipSync } from "node:zlib";
import { type Request, type RequestHandler, type Response, Router } from "express";
import { acceptsGzip, matchesEtag, pathOf } from "../http/request.ts";

export interface HtmlPageOptions {
  /** Admits a request, or rejects with the error that answers it. */
  readonly admit: (response: Response) => Promise<void>;
}

/**
 * Answers GET and HEAD of the paths in the table, and leaves everything else to what comes after it.
 *
 * @param isOurs whether to answer a request for a path of the table; by default every one is answered
 */
export function htmlPageRouter(
  own: ReadonlyMap<string, RequestHandler>,
  { admit }: HtmlPageOptions,
  isOurs: (request: Request) => boolean = () => true,
): Router {
  // No routes: a router with routes answers OPTIONS by itself.
  return Router({ caseSensitive: true })
    .use((request, response, next) => {
      const isRead = request.method === "GET" || request.method === "HEAD";
      if (!isRead || !own.has(pathOf(request)) || !isOurs(request)) return next("router");
      admit(response).then(() => next(), next);
    })
    .use((request, response, next) => own.get(pathOf(request))!(request, response, next));
}

/**
 * Redirects.
 *
 * @param location relative: only the client knows the whole path, when a proxy before us has taken a part of it away
 */
export function redirect(location: string): RequestHandler {
  return (_request, response) => {
    setPageHeaders(response);
    response.writeHead(302, { Location: location, "Content-Length": 0 }).end();
  };
}

/**
 * Answers with the same bytes each time, or with 304 when `If-None-Match` names them in either coding.
 *
 * @param headers beyond those of every page
 */
export function fixedFile(
  contentType: string,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): RequestHandler {
  const plain = Buffer.from(text);
  const gzip = gzipSync(plain, { level: 9 });
  const hash = createHash("sha256").update(plain).digest("base64url");
  const [plainEtag, gzipEtag] = [`"${hash}"`, `"${hash}-gzip"`];
  return (request, response) => {
    setPageHeaders(response);
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    const isGzip = acceptsGzip(request);
    response.setHeader("ETag", isGzip ? gzipEtag : plainEtag);
    response.appendHeader("Vary", "Accept-Encoding");
    if (matchesEtag(request.headers["if-none-match"], plainEtag, gzipEtag)) {
      response.writeHead(304).end();
      return;
    }
    const body = isGzip ? gzip : plain;
    if (isGzip) response.setHeader("Content-Encoding", "gzip");
    response.writeHead(200, { "Content-Type": contentType, "Content-Length": body.length });
    response.end(body); // for HEAD, Node leaves it out
  };
}

/** The text of a file of this folder that browsers load. */
export function browserFile(name: string): string {
  return readFileSync(new URL(name, import.meta.url), "utf8");
}

const require = createRequire(import.meta.url);

/** The text of a file of uPlot, which draws the plot of the account page. */
export function uplotFile(name: string): string {
  return readFileSync(require.resolve(`uplot/dist/${name}`), "utf8");
}

export const fileTypes = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  markdown: "text/markdown; charset=utf-8",
  text: "text/plain; charset=utf-8",
} as const;

/** Where a tool that has met a page finds the description of the API (RFC 8631) and the catalogue (RFC 9727). */
export const descriptionLinks = {
  Link: '<../openapi.json>; rel="service-desc"; type="application/json", <../.well-known/api-catalog>; rel="api-catalog"',
};

/** A page loads nothing from elsewhere and sends requests only to the API beside it. */
const pageHeaders = {
  "Content-Security-Policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; "),
  // The limit headers beside it are the caller's own, so no shared cache may keep a response.
  "Cache-Control": "private, no-cache",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
};

function setPageHeaders(response: Response): void {
  for (const [name, value] of Object.entries(pageHeaders)) response.setHeader(name, value);
}
