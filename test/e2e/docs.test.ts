import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import express, { Router } from "express";
import type { Browser, BrowserContextOptions } from "playwright-core";
import { docsPage } from "../../gateway/pages/docs-page.ts";
import { describedApi } from "../support/account-site.ts";
import { axeViolations, installTimeoutMs, openPage, startChromium } from "../support/chromium.ts";
import { request } from "../support/http.ts";
import { suiteStack } from "../support/stack.ts";

const stack = suiteStack();
let origin: string;
let browser: Browser;

beforeAll(async () => {
  // Mounted twice, as an embedding app may do it: at the root and below a path.
  const app = express().use(petstore()).use("/api", petstore());
  const server = createServer(app).listen(0, "127.0.0.1");
  stack.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  await once(server, "listening");
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  browser = await startChromium();
  stack.defer(() => browser.close());
}, installTimeoutMs);

test.each(["/docs", "/docs/", "/api/docs", "/api/docs/"])(
  "%s shows the operations and loads nothing from elsewhere",
  async (path) => {
    const { page, faults, requested } = await open(path);
    expect(await page.locator("article h3").allTextContents()).toEqual([
      "GET /inventory",
      "GET /inventory/changes",
      "GET /inventory/{petId}",
      "PATCH /inventory/{petId}",
      "POST /inventory/updates",
      "GET /pets/{petId}",
      "GET /store/orders",
      "GET /rate_limit",
      "GET /usage",
      "POST /keys/rotate",
    ]);
    expect(await page.locator(".badge").allTextContents()).toEqual(["deprecated"]);
    expect(await page.locator("main").textContent()).toContain("send it as 'Authorization: Bearer <API_KEY>'.");

    const root = path.replace(/\/docs\/?$/, "");
    expect([...new Set(requested.map((url) => url.replace(`${origin}${root}`, "")))].sort()).toEqual(
      [...new Set([path.slice(root.length), "/docs/"]), "/docs/page.css", "/docs/page.js"].sort(),
    );
    expect(faults).toEqual([]);
  },
);

test("the documentation page is complete without its script", async () => {
  const page = await browser.newPage({ javaScriptEnabled: false });
  await page.goto(`${origin}/docs/`);
  expect(await page.locator("article h3").count()).toBe(10);
  expect(await page.locator("#authorize").isVisible()).toBe(false);
});

test("the documentation page and all that it loads take less than 40 KB on the way", async () => {
  const sizes = await Promise.all(
    ["/docs/", "/docs/page.css", "/docs/page.js"].map(async (path) => {
      const { headers } = await request(new URL(origin).host, { path, headers: { "accept-encoding": "gzip" } });
      return Number(headers["content-length"]);
    }),
  );
  expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(40_000);
});

test("a request from the page carries the key, and its petId is exact in both directions", async () => {
  const { page, faults } = await open("/api/docs/");
  await page.getByLabel("API key, for the requests from this page").fill("ps_test_key");
  const form = page.locator("form.try[data-method=PATCH]");
  await form.getByLabel("petId").fill("9223372036854775807");
  await form.getByRole("button").click();
  const body = form.getByLabel("Body of the answer");
  await body.waitFor();
  expect(JSON.parse(String(await body.textContent()).replace(/\b9223372036854775807\b/, '"in full"'))).toEqual({
    petId: "in full",
    quantity: 12,
    authorization: "Bearer ps_test_key",
    ifMatch: null,
  });
  expect(await form.getByRole("status").textContent()).toMatch(/^200 OK, \d+ ms/);
  expect(faults).toEqual([]);
});

test("a query parameter of a request from the page goes into its address, an empty one does not", async () => {
  const { page, faults } = await open("/api/docs/");
  const form = page.locator("form.try[data-path='/usage']");
  const addressOf = async (hours: string) => {
    await form.getByLabel("hours").fill(hours);
    await Promise.all([page.waitForResponse(/usage/), form.getByRole("button").click()]);
    const body = form.getByLabel("Body of the answer");
    await body.waitFor();
    return JSON.parse(String(await body.textContent()));
  };
  expect(await addressOf("6")).toEqual({ address: "/api/v1/usage?hours=6" });
  await page.reload();
  expect(await addressOf("")).toEqual({ address: "/api/v1/usage" });
  expect(faults).toEqual([]);
});

const screens = [
  ["a phone", { width: 390, height: 844 }],
  ["a wide screen", { width: 1280, height: 900 }],
] as const;
const looks = screens.flatMap(([screen, viewport]) =>
  (["light", "dark"] as const).map((colorScheme) => ({ screen, viewport, colorScheme })),
);

test.each(looks)(
  "the documentation page has no fault that axe-core finds, and fits: $screen, $colorScheme",
  async ({ viewport, colorScheme }) => {
    const { page, faults } = await open("/docs/", { viewport, colorScheme });
    await page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true");
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(viewport.width);
    // The message column of the table of errors ends within the screen.
    const table = page.locator("table").filter({ hasText: "missing_api_key" }).first();
    const { x, width } = (await table.boundingBox())!;
    expect(x + width).toBeLessThanOrEqual(viewport.width);
    expect(await axeViolations(page)).toEqual([]);
    expect(faults).toEqual([]);
  },
);

const open = (path: string, options: BrowserContextOptions = {}) => openPage(browser, `${origin}${path}`, options);

/** Serves the documentation, and an API that echoes its requests. */
function petstore(): Router {
  return Router()
    .use(docsPage({ document: describedApi, admit: async () => {} }))
    .get("/v1/usage", (received, response) => void response.json({ address: received.originalUrl }))
    .patch("/v1/inventory/:petId", express.json(), (received, response) => {
      const { authorization, "if-match": ifMatch = null } = received.headers;
      const rest = JSON.stringify({ ...received.body, authorization, ifMatch });
      response.type("json").end(`{"petId":${received.params.petId},${rest.slice(1)}`);
    });
}
