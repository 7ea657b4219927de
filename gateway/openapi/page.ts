/** Serves the OpenAPI document and the page that shows it. */
import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import express, { type RequestHandler, type Response, Router } from "express";
import { pathOf } from "../http/request.ts";
import { abortWhenStalled, matchesEtag } from "../http/respond.ts";
import { indexHtml, initializerJs, pageCss } from "./page-files.ts";

export interface DocsPageOptions {
  /** The OpenAPI document. It is rendered once. */
  readonly document: { readonly servers?: readonly { readonly url: string }[] };
  /** Admits a request, or rejects with the error that answers it. */
  readonly admit: (response: Response) => Promise<void>;
  /** Time in ms after which a reader that takes nothing is cut off. */
  readonly stallTimeoutMs: number;
}

const swaggerFolder = dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));

/** What the page needs of Swagger UI; the package holds much more. */
const swaggerFiles = ["/swagger-ui.css", "/swagger-ui-bundle.js", "/favicon-32x32.png"];

/**
 * `/openapi.json`, and the page `/docs/` that shows it. Answers GET and HEAD of these and of the page's own files, and
 * leaves everything else to what comes after it. The page loads nothing from elsewhere.
 */
export function docsPage({ document, admit, stallTimeoutMs }: DocsPageOptions): Router {
  const headers = commonHeaders(document.servers ?? []);
  const setHeaders: SetHeaders = (response) => {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  };
  // Tools in a browser read the description from their own origin. The API itself is closed to them: a page that has a
  // key would show it to everybody.
  const setReadableHeaders: SetHeaders = (response) => {
    setHeaders(response);
    response.setHeader("Access-Control-Allow-Origin", "*");
  };
  const swagger = express.static(swaggerFolder, {
    index: false,
    redirect: false,
    cacheControl: false,
    acceptRanges: false, // one that it cannot satisfy would be an error
    setHeaders,
  });

  const own = new Map<string, RequestHandler>([
    ["/", toPage(setHeaders)],
    ["/openapi.json", fixed("application/json", JSON.stringify(document), setReadableHeaders)],
    ["/docs", redirect("docs/", setHeaders)],
    ["/docs/", fixed("text/html; charset=utf-8", indexHtml, setHeaders)],
    ["/docs/page.css", fixed("text/css; charset=utf-8", pageCss, setHeaders)],
    ["/docs/initializer.js", fixed("text/javascript; charset=utf-8", initializerJs, setHeaders)],
  ]);

  const paths = new Set([...own.keys(), ...swaggerFiles.map((file) => `/docs${file}`)]);

  // No routes: a router with routes answers OPTIONS by itself.
  return Router({ caseSensitive: true })
    .use((request, response, next) => {
      const isRead = request.method === "GET" || request.method === "HEAD";
      const isOurs = pathOf(request) === "/" ? isBrowser(request) : paths.has(pathOf(request));
      if (!isRead || !isOurs) return next("router");
      abortWhenStalled(response, stallTimeoutMs);
      admit(response).then(() => next(), next);
    })
    .use((request, response, next) => {
      const answer = own.get(pathOf(request));
      if (answer) answer(request, response, next);
      else next();
    })
    .use("/docs", (request, response, next) => swagger(withoutPreconditions(request), response, next));
}

/** Whether a person looks at the answer: only browsers name HTML. */
function isBrowser({ headers }: IncomingMessage): boolean {
  return headers.accept?.includes("text/html") ?? false;
}

/** Leads from the root to the page. Below the path of an app, the root may have been asked for without its slash. */
function toPage(setHeaders: SetHeaders): RequestHandler {
  return (request, response, next) => {
    const [path = "/"] = request.originalUrl.split("?");
    response.setHeader("Vary", "Accept");
    redirect(`${path.slice(path.lastIndexOf("/") + 1)}/docs/`.replace(/^\//, ""), setHeaders)(request, response, next);
  };
}

type SetHeaders = (response: ServerResponse) => void;

/**
 * @param location relative: only the client knows the whole path, when a proxy before us has taken a part of it away
 */
function redirect(location: string, setHeaders: SetHeaders): RequestHandler {
  return (_request, response) => {
    setHeaders(response);
    response.writeHead(302, { Location: location, "Content-Length": 0 }).end();
  };
}

/**
 * The request without `If-Match` and `If-Unmodified-Since`, which guard changes: `express.static` makes errors of them
 * that are no `ApiError`. What the app around this one has stays as it is.
 */
function withoutPreconditions<T extends IncomingMessage>(request: T): T {
  const { "if-match": _match, "if-unmodified-since": _since, ...headers } = request.headers;
  return Object.create(request, { headers: { value: headers } });
}

/** Answers with the same bytes each time, or with 304 when `If-None-Match` names them. */
function fixed(contentType: string, text: string, setHeaders: SetHeaders): RequestHandler {
  const body = Buffer.from(text);
  const etag = `"${createHash("sha256").update(body).digest("base64url")}"`;
  return (request, response) => {
    setHeaders(response);
    response.setHeader("ETag", etag);
    if (matchesEtag(request.headers["if-none-match"], etag)) {
      response.writeHead(304).end();
      return;
    }
    response.writeHead(200, { "Content-Type": contentType, "Content-Length": body.length });
    response.end(body); // for HEAD, Node leaves it out
  };
}

function commonHeaders(servers: readonly { readonly url: string }[]): Readonly<Record<string, string>> {
  // "Try it out" calls the servers, which may be other origins than the page's. A relative one is not.
  const origins = servers.flatMap(({ url }) => (URL.canParse(url) ? new URL(url).origin : []));
  return {
    "Content-Security-Policy": [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "img-src 'self' data:",
      ["connect-src 'self'", ...new Set(origins)].join(" "),
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join("; "),
    // The limit headers beside it are the caller's own, so no shared cache may keep a response.
    "Cache-Control": "private, no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
  };
}
