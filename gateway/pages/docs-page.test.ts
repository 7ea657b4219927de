import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import express from "express";
import { type RequestOptions, request } from "../../test/support/http.ts";
import { docsPage } from "./docs-page.ts";

const document = {
  openapi: "3.1.0",
  info: { title: "Petstore & more", version: "1.0.0", description: "## One <b>\n\nText with `code`." },
  paths: {},
  servers: [
    { url: "https://api.petstore.example/v1" },
    { url: "https://api.petstore.example/beta/v1" },
    { url: "http://127.0.0.1:9/v1" },
    { url: "./v1" },
  ],
};
const files = [
  "/openapi.json",
  "/openapi.yaml",
  "/postman.json",
  "/docs.md",
  "/llms.txt",
  "/.well-known/api-catalog",
  "/docs/",
  "/docs/page.css",
  "/docs/page.js",
  "/docs/search.js",
  "/docs/shared.js",
];

let address: string;
let lastRequest: IncomingMessage;

const app = express()
  .use((request, response, next) => {
    lastRequest = request;
    response.setHeader("X-RateLimit-Limit", "60");
    response.setHeader("X-Request-Id", "request-1");
    next();
  })
  .use("/api", docsPage({ document, admit: async () => {} }))
  .use((request, response) => {
    response.status(404).end(`the app's own answer to ${request.method}`);
  });
const server = createServer(app);

beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterAll(async () => {
  server.close();
  server.closeAllConnections();
  await once(server, "close");
});

const ask = (path: string, options: Omit<RequestOptions, "path"> = {}) =>
  request(address, { path: `/api${path}`, ...options });

test("/openapi.json is the OpenAPI document as JSON", async () => {
  const { status, headers, json } = await ask("/openapi.json");
  expect([status, headers["content-type"], json()]).toEqual([200, "application/json", document]);
});

test("/docs redirects to the documentation page by a relative address", async () => {
  const { status, headers, text } = await ask("/docs");
  expect([status, headers.location, text]).toEqual([302, "docs/", ""]);
});

test.each([
  ["/api/", "docs/"],
  ["/api/?x=1", "docs/"],
  ["/api", "api/docs/"],
  ["/api?x=/", "api/docs/"],
])("%s redirects a browser to the documentation page by a relative address", async (path, location) => {
  const accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
  const { status, headers, text } = await request(address, { path, headers: { accept } });
  expect([status, headers.location, headers.vary, text]).toEqual([302, location, "Accept", ""]);
});

test.each([undefined, "*/*", "application/json"])("/ is left to the app for Accept: %s", async (accept) => {
  const { status, headers } = await ask("/", { headers: accept ? { accept } : {} });
  expect([status, headers.location]).toEqual([404, undefined]);
});

test("/openapi.json alone may be read by pages of other origins", async () => {
  const known = { "If-None-Match": String((await ask("/openapi.json")).headers.etag) };
  for (const headers of [{}, known]) {
    const answer = await ask("/openapi.json", { headers: { Origin: "https://editor.example", ...headers } });
    expect(answer.headers["access-control-allow-origin"]).toBe("*");
  }
  for (const path of ["/docs", "/docs/", "/"]) {
    expect((await ask(path)).headers).not.toHaveProperty("access-control-allow-origin");
  }
});

test.each(files)("%s answers HEAD as GET without the body", async (path) => {
  const got = await ask(path);
  const head = await ask(path, { method: "HEAD" });
  expect([got.status, head.status, head.text]).toEqual([200, 200, ""]);
  expect(head.headers["content-length"]).toBe(String(Buffer.byteLength(got.text)));
  for (const name of ["content-type", "etag"]) expect(head.headers[name]).toBe(got.headers[name]);
});

test.each(files)("%s is compressed for a client that accepts gzip, with an ETag of its own", async (path) => {
  const plain = await ask(path);
  const gzip = await fetch(`http://${address}/api${path}`, { headers: { "Accept-Encoding": "gzip" } });
  expect([gzip.headers.get("content-encoding"), await gzip.text()]).toEqual(["gzip", plain.text]);
  expect([plain.headers.vary, gzip.headers.get("vary")]).toEqual(["Accept-Encoding", "Accept-Encoding"]);
  const etag = gzip.headers.get("etag")!;
  expect(etag).not.toBe(plain.headers.etag);
  expect((await ask(path, { headers: { "If-None-Match": etag } })).status).toBe(304);
});

test("/docs/ shows its text before any script, and shows it as text", async () => {
  const { text } = await ask("/docs/");
  expect(text).toContain("<h1>Petstore &amp; more API</h1>");
  expect(text).toContain('<h2 id="one-b-">One &lt;b&gt;</h2>\n<p>Text with <code>code</code>.</p>');
});

test.each(files)("%s is 304 for a client that has it", async (path) => {
  const { etag } = (await ask(path)).headers as { etag: string };
  const known = await ask(path, { headers: { "If-None-Match": `"other", ${etag}` } });
  expect([known.status, known.text, known.headers.etag]).toEqual([304, "", etag]);
  expect((await ask(path, { headers: { "If-None-Match": '"other"' } })).status).toBe(200);
});

describe.each(files)("%s", (path) => {
  test.each([
    ["If-Match", '"x"'],
    ["If-Unmodified-Since", "Mon, 01 Jan 1990 00:00:00 GMT"],
    ["Range", "bytes=99999999-"],
    ["Range", "bytes=0-9"],
  ])(`${path} ignores the header %s: %s`, async (name, value) => {
    const { text, headers } = await ask(path);
    expect(await ask(path, { headers: { [name]: value } })).toMatchObject({ status: 200, text });
    const known = { "If-None-Match": String(headers.etag), [name]: value };
    expect((await ask(path, { headers: known })).status).toBe(304);
    // The app around the page still finds the header in the request.
    expect(lastRequest.headers[name.toLowerCase()]).toBe(value);
  });
});

test("/openapi.json is 304 for a matching If-None-Match, even with Cache-Control: no-cache", async () => {
  const { etag } = (await ask("/openapi.json")).headers as { etag: string };
  const headers = { "If-None-Match": `W/${etag}`, "Cache-Control": "no-cache" }; // as fetch sends it
  expect((await ask("/openapi.json", { headers })).status).toBe(304);
});

test.each(["/docs", ...files])("%s keeps the headers that are set already, and has security headers", async (path) => {
  const { headers } = await ask(path);
  expect(headers).toMatchObject({
    "x-ratelimit-limit": "60",
    "x-request-id": "request-1",
    "x-content-type-options": "nosniff",
    "cache-control": "private, no-cache",
  });
  expect(String(headers["content-security-policy"]).split("; ")).toEqual([
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ]);
});

test.each([
  ["GET", "/"],
  ["GET", "/v1/inventory"],
  ["GET", "/openapi.json/"],
  ["GET", "/OPENAPI.JSON"],
  ["GET", "/docs/missing.js"],
  ["GET", "/docs/page.css/"],
  ["GET", "/docs/index.html"],
  ["GET", "/docs/swagger-ui-bundle.js"],
  ["GET", "/docs/%2e%2e/package.json"],
  ["GET", "/docsx"],
  ["POST", "/openapi.json"],
  ["POST", "/docs"],
  ["POST", "/docs/"],
  ["OPTIONS", "/docs"],
  ["OPTIONS", "/openapi.json"],
  ["DELETE", "/docs/page.css"],
])("%s %s is left to the app", async (method, path) => {
  const { status, headers, text } = await ask(path, { method });
  expect([status, text]).toEqual([404, `the app's own answer to ${method}`]);
  expect(headers).not.toHaveProperty("content-security-policy");
});
