import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import express from "express";
import { parse } from "yaml";
import { describedApi } from "../../test/support/account-site.ts";
import { linkTo } from "../../test/support/answers.ts";
import { request } from "../../test/support/http.ts";
import { errorTable } from "../http/api-error.ts";
import { operationsOf } from "../openapi/shown-document.ts";
import { accountPage } from "./account-page.ts";
import { docsPage } from "./docs-page.ts";

const servers = [{ url: "https://api.petstore.example/v1" }, { url: "https://staging.petstore.example/a/v1" }];
const page = (document: typeof describedApi) => docsPage({ document, admit: async () => {} });
const app = express()
  .use("/api", page(describedApi), accountPage({ document: describedApi, admit: async () => {} }))
  .use("/deployed", page({ ...describedApi, servers }));
const server = createServer(app);
let origin: string;

beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterAll(async () => {
  server.close();
  server.closeAllConnections();
  await once(server, "close");
});

const ask = (path: string, method = "GET") => request(new URL(origin).host, { method, path });

type Links = readonly { readonly href: string; readonly type: string }[];
interface Catalog {
  readonly linkset: readonly {
    readonly anchor: string;
    readonly "service-desc": Links;
    readonly "service-doc": Links;
  }[];
}

test("the catalogue of RFC 9727 leads to the API and its documents, which have the types it says", async () => {
  const at = "/api/.well-known/api-catalog";
  const { headers, json } = await ask(at);
  expect(headers["content-type"]).toBe('application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"');
  const [{ anchor, "service-desc": descriptions, "service-doc": documents }] = json<Catalog>().linkset as [
    Catalog["linkset"][0],
  ];
  const from = (href: string) => new URL(href, `${origin}${at}`);
  expect(from(anchor).href).toBe(`${origin}/api/v1`);
  for (const { href, type } of [...descriptions, ...documents]) {
    const answer = await ask(from(href).pathname);
    expect([href, answer.status, String(answer.headers["content-type"]).split(";")[0]]).toEqual([href, 200, type]);
  }
});

test("HEAD of the catalogue links to the catalogue", async () => {
  const at = "/api/.well-known/api-catalog";
  const answer = await ask(at, "HEAD");
  expect([answer.status, new URL(linkTo(answer, "api-catalog")!, origin + at).pathname]).toEqual([200, at]);
});

test("the catalogue of a deployment with base addresses has whole addresses, one API for each", async () => {
  const { linkset } = (await ask("/deployed/.well-known/api-catalog")).json<Catalog>();
  expect(linkset.map(({ anchor }) => anchor)).toEqual(servers.map(({ url }) => url));
  const hrefs = linkset.flatMap((links) => [...links["service-desc"], ...links["service-doc"]].map(({ href }) => href));
  expect(hrefs).toContain("https://api.petstore.example/openapi.json");
  expect(hrefs).toContain("https://staging.petstore.example/a/docs/");
});

test.each(["docs", "account"])("/%s/ links to the description of the API and to the catalogue", async (name) => {
  const answer = await ask(`/api/${name}/`);
  for (const [relation, path] of [
    ["service-desc", "/api/openapi.json"],
    ["api-catalog", "/api/.well-known/api-catalog"],
  ] as const) {
    expect(new URL(linkTo(answer, relation)!, `${origin}/api/${name}/`).pathname).toBe(path);
  }
});

test("/openapi.yaml says what /openapi.json says", async () => {
  const [yaml, json] = await Promise.all([ask("/api/openapi.yaml"), ask("/api/openapi.json")]);
  expect(parse(yaml.text)).toEqual(json.json());
});

test("/docs.md has every operation and every error code", async () => {
  const { text } = await ask("/api/docs.md");
  for (const { method, path } of operationsOf(describedApi)) expect(text).toContain(`\n\`${method} /v1${path}\`\n`);
  for (const [code, { status }] of Object.entries(errorTable)) expect(text).toContain(`\n### ${code} (${status})\n`);
  expect(text.split("## Programs")[0]).not.toMatch(/undefined|\[object|\{\{/);
  for (const name of ["Idempotency-Replayed", "Preference-Applied"]) expect(text).toContain(`\n  - \`${name}\`: `);
  for (const language of ["curl", "JavaScript", "Python", "Go"]) expect(text).toContain(`program: ${language}\n`);
});

test("both documentations say that the body of a bulk request is an array", async () => {
  for (const path of ["/docs.md", "/docs/"]) {
    const { text } = await ask(`/api${path}`);
    expect(text.split("An array of 1 to 100 objects, each with:")).toHaveLength(3); // updates and adjustments
  }
});

test("a member of a body is required where each alternative of the body requires it", async () => {
  const { text } = await ask("/api/docs.md");
  const results = text.slice(text.indexOf('<a id="bulkUpdateInventory">'), text.indexOf('<a id="adjustInventory">'));
  const members = results.split("An array of objects, each with:")[1]!.split("Responses:")[0]!;
  const required = [...members.matchAll(/^- `(\S+)` \((.*?)(, required)?\):/gm)].map(([, name, , is]) => [name, !!is]);
  expect(Object.fromEntries(required)).toMatchObject({
    petId: true,
    quantity: false,
    status: false,
    etag: false,
    replayed: false,
    error: false,
    "error.code": true,
  });
  expect(results).toContain("A result has either `quantity`, `status` and `etag`, or `error`.");
});

test("the texts name the base address of the deployment, also in the example of the client", async () => {
  const docs = (await ask("/deployed/docs.md")).text;
  for (const text of [docs, (await ask("/deployed/llms.txt")).text]) {
    expect(text).toContain("\nBase address: `https://api.petstore.example/v1`\n");
  }
  expect(docs).toContain('baseUrl: "https://api.petstore.example/v1"');
  expect((await ask("/api/llms.txt")).text).toContain("\nBase address: `v1`, relative to this document.");
  const page = (await ask("/deployed/docs/")).text;
  expect(page).toContain("<p>Base address: <code>https://api.petstore.example/v1</code></p>");
});

test("/docs.md marks the examples of records that another service makes", async () => {
  const { text } = await ask("/api/docs.md");
  expect(text.match(/^Response 200, for instance:$/gm)).toHaveLength(2);
});

test("every link of /llms.txt leads to a document, and to a place of the page that exists", async () => {
  const { text } = await ask("/api/llms.txt");
  const docs = (await ask("/api/docs.md")).text;
  const links = [...text.matchAll(/\]\(([^)#]*)#?([^)]*)\)/g)];
  expect(links.length).toBe(6 + operationsOf(describedApi).length);
  for (const [, path, id] of links) {
    expect([path, (await ask(`/api/${path}`)).status]).toEqual([path, 200]);
    if (id) expect(docs).toContain(`id="${id}"`);
  }
});
