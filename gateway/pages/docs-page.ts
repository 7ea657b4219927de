/** Serves the OpenAPI document and the page that shows it. */
import type { IncomingMessage } from "node:http";
import type { RequestHandler, Router } from "express";
import parseurl from "parseurl";
import { pathOf } from "../http/request.ts";
import type { ShownDocument } from "../openapi/shown-document.ts";
import { documentsForTools } from "./discovery.ts";
import { renderDocsPage } from "./docs-page-html.ts";
import {
  browserFile,
  descriptionLinks,
  fileTypes,
  fixedFile,
  type HtmlPageOptions,
  htmlPageRouter,
  redirect,
  uplotFile,
} from "./html-page-router.ts";

export interface DocsPageOptions extends HtmlPageOptions {
  /** The OpenAPI document. It and the page are rendered and compressed once. */
  readonly document: ShownDocument;
}

/**
 * `/openapi.json`, the page `/docs/` that shows it, both in other forms, and the REST client. The page loads nothing
 * from elsewhere.
 */
export function docsPage({ document, ...options }: DocsPageOptions): Router {
  const own = new Map<string, RequestHandler>([
    ["/", toPage],
    ["/favicon.ico", fixedFile("image/svg+xml", icon)],
    ["/openapi.json", fixedFile("application/json", JSON.stringify(document), readableByAll)],
    ...documentsForTools(document),
    ["/client.js", fixedFile(fileTypes.js, browserFile("client-browser.js"))],
    ["/client.d.ts", fixedFile("application/typescript; charset=utf-8", browserFile("client-browser.d.ts"))],
    ["/docs", redirect("docs/")],
    ["/docs/", fixedFile(fileTypes.html, renderDocsPage(document), descriptionLinks)],
    ["/docs/page.css", fixedFile(fileTypes.css, style)],
    ["/docs/page.js", fixedFile(fileTypes.js, browserFile("docs-browser.js"))],
    ["/docs/search.js", fixedFile(fileTypes.js, browserFile("search-browser.js"))],
    ["/docs/shared.js", fixedFile(fileTypes.js, browserFile("shared-browser.js"))],
  ]);
  return htmlPageRouter(own, options, (request) => pathOf(request) !== "/" || isBrowser(request));
}

/** A paw. Browsers ask for it beside whatever they show, such as the document. */
const icon =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="#0a6b5c"><ellipse cx="8" cy="11" rx="4" ry="3.5"/>' +
  '<circle cx="2.5" cy="7" r="1.7"/><circle cx="6" cy="3.5" r="1.7"/><circle cx="10" cy="3.5" r="1.7"/>' +
  '<circle cx="13.5" cy="7" r="1.7"/></svg>';

/** One style for both pages. */
const style = [
  ...["pages", "code", "tools", "docs", "account", "media"].map((part) => browserFile(`${part}-browser.css`)),
  uplotFile("uPlot.min.css"),
].join("");

/**
 * Lets tools that run in a browser, on an origin of their own, read the description. The API itself is closed to them:
 * a page that has a key would show it to every reader.
 */
const readableByAll = { "Access-Control-Allow-Origin": "*" };

/** Whether a person looks at the answer: only browsers name HTML. */
function isBrowser({ headers }: IncomingMessage): boolean {
  return headers.accept?.includes("text/html") ?? false;
}

/** Leads from the root to the page. Below the path of an app, the root may have been asked for without its slash. */
const toPage: RequestHandler = (request, response, next) => {
  const path = parseurl.original(request)?.pathname ?? "/";
  response.appendHeader("Vary", "Accept");
  redirect(`${path.slice(path.lastIndexOf("/") + 1)}/docs/`.replace(/^\//, ""))(request, response, next);
};
