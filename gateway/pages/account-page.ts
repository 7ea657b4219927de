/** Serves the page on which callers see their own account. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { RequestHandler, Router } from "express";
import type { ShownDocument } from "../openapi/shown-document.ts";
import { renderAccountPage } from "./account-page-html.ts";
import {
  browserFile,
  descriptionLinks,
  fileTypes,
  fixedFile,
  type PageOptions,
  pageRouter,
  redirect,
} from "./page-router.ts";

export interface AccountPageOptions extends PageOptions {
  /** The OpenAPI document, which tells of the deprecated operations and of the rotation of keys. */
  readonly document: ShownDocument;
}

const require = createRequire(import.meta.url);
const uplot = (file: string) => readFileSync(require.resolve(`uplot/dist/${file}`), "utf8");

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
    ["/account/uplot.js", fixedFile(fileTypes.js, uplot("uPlot.iife.min.js"))],
    ["/account/uplot.css", fixedFile(fileTypes.css, uplot("uPlot.min.css"))],
  ]);
  return pageRouter(files, options);
}
