/** Serves the OpenAPI document and the page that shows it. */
import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import { type RequestHandler, type Response, Router } from "express";
import { pathOf } from "../http/request.ts";
import { abortWhenStalled, acceptsGzip, matchesEtag } from "../http/respond.ts";
import { pageCss, pageJs } from "./page-files.ts";
import { renderPage, type ShownDocument } from "./page-html.ts";

export interface DocsPageOptions {
  /** The OpenAPI document. It and the page are rendered and compressed once. */
  readonly document: ShownDocument;
  /** Admits a request, or rejects with the error that answers it. */
  readonly admit: (response: Response) => Promise<void>;
  /** Time in ms after which a reader that takes nothing is cut off. */
  readonly stallTimeoutMs: number;
}

/**
 * `/openapi.json`, and the page `/docs/` that shows it. Answers GET and HEAD of these and of the page's own files, and
 * leaves everything else to what comes after it. The page loads nothing from elsewhere.
 */
export function docsPage({ document, admit, stallTimeoutMs }: DocsPageOptions): Router {
  const setHeaders: SetHeaders = (response) => {
    for (const [name, value] of Object.entries(commonHeaders)) response.setHeader(name, value);
  };
  // Tools in a browser read the description from their own origin. The API itself is closed to them: a page that has a
  // key would show it to everybody.
  const setReadableHeaders: SetHeaders = (response) => {
    setHeaders(response);
    response.setHeader("Access-Control-Allow-Origin", "*");
  };
  const own = new Map<string, RequestHandler>([
    ["/", toPage(setHeaders)],
    ["/openapi.json", fixed("application/json", JSON.stringify(document), setReadableHeaders)],
    ["/docs", redirect("docs/", setHeaders)],
    ["/docs/", fixed("text/html; charset=utf-8", renderPage(document), setHeaders)],
    ["/docs/page.css", fixed("text/css; charset=utf-8", pageCss, setHeaders)],
    ["/docs/page.js", fixed("text/javascript; charset=utf-8", pageJs, setHeaders)],
  ]);

  // No routes: a router with routes answers OPTIONS by itself.
  return Router({ caseSensitive: true })
    .use((request, response, next) => {
      const isRead = request.method === "GET" || request.method === "HEAD";
      const isOurs = pathOf(request) === "/" ? isBrowser(request) : own.has(pathOf(request));
      if (!isRead || !isOurs) return next("router");
      abortWhenStalled(response, stallTimeoutMs);
      admit(response).then(() => next(), next);
    })
    .use((request, response, next) => own.get(pathOf(request))!(request, response, next));
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

/** Answers with the same bytes each time, or with 304 when `If-None-Match` names them in either coding. */
function fixed(contentType: string, text: string, setHeaders: SetHeaders): RequestHandler {
  const plain = Buffer.from(text);
  const gzip = gzipSync(plain, { level: 9 });
  const hash = createHash("sha256").update(plain).digest("base64url");
  const [plainEtag, gzipEtag] = [`"${hash}"`, `"${hash}-gzip"`];
  return (request, response) => {
    setHeaders(response);
    const isGzip = acceptsGzip(request);
    response.setHeader("ETag", isGzip ? gzipEtag : plainEtag);
    response.setHeader("Vary", "Accept-Encoding");
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

/** The page loads nothing from elsewhere and sends requests only to the API beside it. */
const commonHeaders = {
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
