/** Serves the page on which callers see their own account. */
import type { RequestHandler, Router } from "express";
import type { ShownDocument } from "../openapi/shown-document.ts";
import { renderAccountPage } from "./account-page-html.ts";
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

export interface AccountPageOptions extends HtmlPageOptions {
  /** The OpenAPI document, which tells of the deprecated operations and of the rotation of keys. */
  readonly document: ShownDocument;
}

/**
 * `/account/`, which needs no key to be loaded: its script asks the visitor for one and sends it to the API beside the
 * page. The page loads nothing from elsewhere.
 */
export function accountPage({ document, ...options }: AccountPageOptions): Router {
  const files = new Map<string, RequestHandler>([
    ["/account", redirect("account/")],
    ["/account/", fixedFile(fileTypes.html, renderAccountPage(document), descriptionLinks)],
    ["/account/page.js", fixedFile(fileTypes.js, browserFile("account-browser.js"))],
    ["/account/plot.js", fixedFile(fileTypes.js, browserFile("plot-browser.js"))],
    ["/account/rotation.js", fixedFile(fileTypes.js, browserFile("rotation-browser.js"))],
    ["/account/uplot.js", fixedFile(fileTypes.js, uplotFile("uPlot.iife.min.js"))],
  ]);
  return htmlPageRouter(files, options);
}
