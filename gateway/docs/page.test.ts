import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import express from "express";
import { docsPage } from "./page.ts";

const document = {
  openapi: "3.1.0",
  servers: [
    { url: "https://api.petstore.example/v1" },
    { url: "https://api.petstore.example/beta/v1" },
    { url: "http://127.0.0.1:9/v1" },
    { url: "./v1" },
  ],
};
const files = ["/openapi.json", "/docs/", "/docs/initializer.js", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js"];

let address: string;

const app = express()
  .use((_request, response, next) => {
    response.setHeader("X-RateLimit-Limit", "60");
    response.setHeader("X-Request-Id", "request-1");
    next();
  })
  .use("/api", docsPage({ document }))
  .use((request, response) => {
    response.status(404).json({ method: request.method });
  });
const server = createServer(app);

beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/api`;
});

afterAll(async () => {
  server.close();
  server.closeAllConnections();
  await once(server, "close");
});

const ask = (path: string, init: RequestInit = {}) => fetch(`${address}${path}`, { redirect: "manual", ...init });

test("gives the document as JSON", async () => {
  const response = await ask("/openapi.json");
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(await response.json()).toEqual(document);
});

test("leads from /docs to the page by a relative address", async () => {
  const response = await ask("/docs");
  expect([response.status, response.headers.get("location")]).toEqual([302, "docs/"]);
  expect(await response.text()).toBe("");
});

test.each(files)("%s answers HEAD as GET, and 304 to who has it", async (path) => {
  const got = await ask(path);
  const length = (await got.arrayBuffer()).byteLength;
  expect(got.status).toBe(200);
  const head = await ask(path, { method: "HEAD" });
  expect(head.status).toBe(200);
  for (const name of ["content-type", "etag"]) expect(head.headers.get(name)).toBe(got.headers.get(name));
  expect(head.headers.get("content-length")).toBe(String(length));
  const known = await ask(path, { headers: { "If-None-Match": got.headers.get("etag")! } });
  expect([known.status, await known.text()]).toEqual([304, ""]);
});

test.each(["/docs", ...files])("%s keeps the headers that are set already, and is safe", async (path) => {
  const { headers } = await ask(path);
  expect(Object.fromEntries(headers)).toMatchObject({
    "x-ratelimit-limit": "60",
    "x-request-id": "request-1",
    "x-content-type-options": "nosniff",
    "cache-control": "private, no-cache",
  });
  expect(headers.get("content-security-policy")!.split("; ")).toEqual([
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self' https://api.petstore.example http://127.0.0.1:9",
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
  ["GET", "/docs/swagger-ui.css/"],
  ["GET", "/docs/index.html"],
  ["GET", "/docs/package.json"],
  ["GET", "/docs/README.md"],
  ["GET", "/docs/swagger-initializer.js"],
  ["GET", "/docs/%2e%2e/package.json"],
  ["GET", "/docsx"],
  ["POST", "/openapi.json"],
  ["POST", "/docs"],
  ["POST", "/docs/"],
  ["DELETE", "/docs/swagger-ui.css"],
])("leaves %s %s to the app", async (method, path) => {
  const response = await ask(path, { method });
  expect([response.status, await response.json()]).toEqual([404, { method }]);
  expect(response.headers.get("content-security-policy")).not.toContain("script-src"); // express's own 404 has one
});
