/** Stands for the document and the pages that a gateway serves: to make them takes longer than a whole run. */
import type { RequestHandler } from "express";

export function openApiDocument(): object {
  return {};
}

const pass: RequestHandler = (_request, _response, next) => next();

export function docsPage(): RequestHandler {
  return pass;
}

export function accountPage(): RequestHandler {
  return pass;
}
