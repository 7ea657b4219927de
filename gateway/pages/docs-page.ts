/** Serves the OpenAPI document and the page that shows it. */
import type { IncomingMessage } from "node:http";
import type { RequestHandler, Router } from "express";
import { pathOf } from "../http/request.ts";
import { pageCss, pageJs } from "./docs-page-files.ts";
import { renderPage, type ShownDocument } from "./docs-page-html.ts";
import { fileTypes, fixedFile, type PageOptions, pageRouter, redirect } from "./page-router.ts";

export interface DocsPageOptions extends PageOptions {
  /** The OpenAPI document. It and the page are rendered and compressed once. */
  readonly document: ShownDocument;
}

/** `/openapi.json`, and the page `/docs/` that shows it. The page loads nothing from elsewhere. */
export function docsPage({ document, ...options }: DocsPageOptions): Router {
  const own = new Map<string, RequestHandler>([
    ["/", toPage],
    ["/openapi.json", fixedFile("application/json", JSON.stringify(document), readableByAll)],
    ["/docs", redirect("docs/")],
    ["/docs/", fixedFile(fileTypes.html, renderPage(document))],
    ["/docs/page.css", fixedFile(fileTypes.css, pageCss)],
    ["/docs/page.js", fixedFile(fileTypes.js, pageJs)],
  ]);
  return pageRouter(own, options, (request) => pathOf(request) !== "/" || isBrowser(request));
}

/**
 * Tools in a browser read the description from their own origin. The API itself is closed to them: a page that has a
 * key would show it to everybody.
 */
const readableByAll = { "Access-Control-Allow-Origin": "*" };

/** Whether a person looks at the answer: only browsers name HTML. */
function isBrowser({ headers }: IncomingMessage): boolean {
  return headers.accept?.includes("text/html") ?? false;
}

/** Leads from the root to the page. Below the path of an app, the root may have been asked for without its slash. */
const toPage: RequestHandler = (request, response, next) => {
  const [path = "/"] = request.originalUrl.split("?");
  response.setHeader("Vary", "Accept");
  redirect(`${path.slice(path.lastIndexOf("/") + 1)}/docs/`.replace(/^\//, ""))(request, response, next);
};
