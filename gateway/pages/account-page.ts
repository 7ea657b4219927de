/** Serves the page on which callers see their own account. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { RequestHandler, Router } from "express";
import { renderAccountPage } from "./account-page-html.ts";
import { pageCss } from "./docs-page-files.ts";
import type { ShownDocument } from "./docs-page-html.ts";
import { fileTypes, fixedFile, type PageOptions, pageRouter, redirect } from "./page-router.ts";

export interface AccountPageOptions extends PageOptions {
  /** The OpenAPI document, which tells of the deprecated operations and of the rotation of keys. */
  readonly document: ShownDocument;
}

const require = createRequire(import.meta.url);
const uplot = (file: string) => readFileSync(require.resolve(`uplot/dist/${file}`), "utf8");
const own = (file: string) => readFileSync(new URL(file, import.meta.url), "utf8");

/**
 * `/account/`, which needs no key to be loaded: its script asks the visitor for one and sends it to the API beside the
 * page. The page loads nothing from elsewhere.
 */
export function accountPage({ document, ...options }: AccountPageOptions): Router {
  const files = new Map<string, RequestHandler>([
    ["/account", redirect("account/")],
    ["/account/", fixedFile(fileTypes.html, renderAccountPage(document))],
    [
      "/account/page.css",
      fixedFile(fileTypes.css, `${pageCss}${own("./account-browser.css")}${uplot("uPlot.min.css")}`),
    ],
    ["/account/page.js", fixedFile(fileTypes.js, own("./account-browser.js"))],
    ["/account/uplot.js", fixedFile(fileTypes.js, uplot("uPlot.iife.min.js"))],
  ]);
  return pageRouter(files, options);
}
