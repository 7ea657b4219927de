import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import express from "express";
import { request } from "../../test/support/http.ts";
import { accountPage } from "./account-page.ts";

const document = { openapi: "3.1.0", info: { title: "", version: "", description: "" }, paths: {}, servers: [] };
const files = ["/account/", "/account/page.js", "/account/plot.js", "/account/uplot.js"];
const app = express()
  .use("/api", accountPage({ document, admit: async () => {} }))
  .use((_request, response) => void response.status(404).end("the app's own answer"));
const server = createServer(app);
let address: string;

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

const ask = (path: string, method = "GET") => request(address, { method, path: `/api${path}` });

test("/account redirects to the page by a relative address", async () => {
  const { status, headers } = await ask("/account");
  expect([status, headers.location]).toEqual([302, "account/"]);
});

test.each(files)("%s may run only scripts of its own origin, and send requests only there", async (path) => {
  const { status, headers } = await ask(path);
  expect([status, headers["referrer-policy"], headers["cache-control"]]).toEqual([
    200,
    "no-referrer",
    "private, no-cache",
  ]);
  const policy = String(headers["content-security-policy"]).split("; ");
  expect(policy).toEqual(expect.arrayContaining(["default-src 'none'", "script-src 'self'", "connect-src 'self'"]));
  expect(policy.join()).not.toMatch(/unsafe|https?:|\*/);
  expect(headers).not.toHaveProperty("access-control-allow-origin");
});

test("the account page has no script or style within it, and names no other host", async () => {
  const { text } = await ask("/account/");
  expect(text).not.toMatch(/<style|style=|<script(?![^>]* src=)|\son\w+=|https?:/);
});

test.each([
  ["POST", "/account/"],
  ["OPTIONS", "/account"],
  ["GET", "/account/browser.js"],
  ["GET", "/account/uplot"],
  ["GET", "/accounts"],
])("%s %s is left to the app", async (method, path) => {
  expect(await ask(path, method)).toMatchObject({ status: 404, text: "the app's own answer" });
});
