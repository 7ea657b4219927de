/** Lets tools find the API and its documents: the catalogue of RFC 9727, and the documents in other forms. */
import type { RequestHandler } from "express";
import { stringify } from "yaml";
import { postmanCollection } from "../openapi/postman.ts";
import type { ShownDocument } from "../openapi/shown-document.ts";
import { docsMarkdown, llmsText } from "./docs-markdown.ts";
import { fileTypes, fixedFile } from "./html-page-router.ts";

/** The documents for tools, by their paths. */
export function documentsForTools(document: ShownDocument): [path: string, handler: RequestHandler][] {
  const catalog = fixedFile(catalogType, JSON.stringify(apiCatalog(document), null, 2), catalogLink);
  return [
    ["/.well-known/api-catalog", catalog],
    ["/openapi.yaml", fixedFile("application/yaml", stringify(document, { aliasDuplicateObjects: false }))],
    ["/postman.json", fixedFile("application/json", JSON.stringify(postmanCollection(document), null, 2))],
    ["/docs.md", fixedFile(fileTypes.markdown, docsMarkdown(document))],
    ["/llms.txt", fixedFile(fileTypes.text, llmsText(document))],
  ];
}

/** RFC 9264, with the profile of RFC 9727. */
const catalogType = 'application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"';

/** RFC 9727 section 2: the answer to a HEAD of the catalogue links to it, too. */
const catalogLink = { Link: '<api-catalog>; rel="api-catalog"' };

/** One API for each base address. Where none is set, the addresses are relative to the catalogue. */
function apiCatalog({ servers }: ShownDocument): object {
  return {
    linkset: servers.map(({ url }) => {
      const isWhole = URL.canParse(url);
      const at = (path: string) => (isWhole ? new URL(path, url).href : `../${path}`);
      return {
        anchor: isWhole ? url : "../v1",
        "service-desc": [
          { href: at("openapi.json"), type: "application/json" },
          { href: at("openapi.yaml"), type: "application/yaml" },
        ],
        "service-doc": [
          { href: at("docs/"), type: "text/html" },
          { href: at("docs.md"), type: "text/markdown" },
        ],
      };
    }),
  };
}
