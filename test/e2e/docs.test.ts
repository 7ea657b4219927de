import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import express, { Router } from "express";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { contractPlans } from "../../gateway/auth/plans.ts";
import { publishedBanRules } from "../../gateway/limits/bans.ts";
import { openApiDocument } from "../../gateway/openapi/document.ts";
import { docsPage } from "../../gateway/openapi/page.ts";
import { installTimeoutMs, startChromium } from "../support/chromium.ts";
import { suiteStack } from "../support/cleanup.ts";

const document = openApiDocument({
  servers: [],
  plans: contractPlans,
  banRules: publishedBanRules,
  deprecations: {
    getPet: { deprecatedAt: new Date("2026-01-01T00:00:00Z"), sunsetAt: new Date("2027-07-01T00:00:00Z") },
  },
  guardPerMinute: 60,
});

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
  "%s shows the four operations and loads nothing from elsewhere",
  async (path) => {
    const { page, faults, requested } = await open(path);
    const operations = page.locator(".opblock-summary");
    await operations.first().waitFor();
    const shown = await operations
      .locator(".opblock-summary-method, .opblock-summary-path, .opblock-summary-path__deprecated")
      .allTextContents();
    // Swagger UI puts zero-width spaces where a path may be broken.
    expect(shown.map((text) => text.replaceAll("\u200b", ""))).toEqual([
      ...["GET", "/inventory"],
      ...["PATCH", "/inventory/{petId}"],
      ...["GET", "/pets/{petId}"],
      ...["GET", "/store/orders"],
    ]);
    expect(await page.locator(".opblock-deprecated").count()).toBe(1);
    expect(await page.locator(".info").textContent()).toContain("send it as 'Authorization: Bearer <API_KEY>'.");

    const root = path.replace(/\/docs\/?$/, "");
    expect([...new Set(requested.map((url) => url.replace(`${origin}${root}`, "")))].sort()).toEqual(
      [
        ...new Set([path.slice(root.length), "/docs/"]),
        "/docs/favicon-32x32.png",
        "/docs/initializer.js",
        "/docs/page.css",
        "/docs/swagger-ui-bundle.js",
        "/docs/swagger-ui.css",
        "/openapi.json",
      ].sort(),
    );
    expect(faults).toEqual([]);
  },
);

test("a request from the page carries the key, and its petId is exact in both directions", async () => {
  const { page, faults } = await open("/api/docs/");
  await page.locator(".auth-wrapper .authorize").click();
  await page.locator(".auth-container input").fill("ps_test_key");
  await page.locator(".auth-container .authorize").click();
  await page.locator(".btn-done").click();

  const operation = page.locator(".opblock-patch");
  await operation.locator(".opblock-summary-control").click();
  await operation.locator(".try-out__btn").click();
  await operation.locator('[data-param-name="petId"] input').fill("9223372036854775807");
  await operation.locator(".execute").click();
  const body = operation.locator(".live-responses-table .highlight-code code").first();
  await body.waitFor();
  expect(JSON.parse(String(await body.textContent()).replace(/\b9223372036854775807\b/, '"in full"'))).toEqual({
    petId: "in full",
    quantity: 12,
    authorization: "Bearer ps_test_key",
    ifMatch: null,
  });
  expect(faults).toEqual([]);
});

test("the page fits the screen of a phone and follows a dark colour scheme", async () => {
  const { page, faults } = await open("/docs/", { viewport: { width: 360, height: 740 }, colorScheme: "dark" });
  await page.locator(".opblock-patch .opblock-summary-control").click();
  await page.locator(".opblock-patch .responses-table").waitFor();
  expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(360);
  const background = "getComputedStyle(document.documentElement).backgroundColor";
  const dark = String(await page.evaluate(background));
  await page.emulateMedia({ colorScheme: "light" });
  await page.locator("html:not(.dark-mode)").waitFor();
  expect(String(await page.evaluate(background))).not.toBe(dark);
  expect(faults).toEqual([]);
});

/** Serves the documentation, and an API that echoes its requests. */
function petstore(): Router {
  return Router()
    .use(docsPage({ document, admit: async () => {}, stallTimeoutMs: 30_000 }))
    .patch("/v1/inventory/:petId", express.json(), (request, response) => {
      const { authorization, "if-match": ifMatch = null } = request.headers;
      const rest = JSON.stringify({ ...request.body, authorization, ifMatch });
      response.type("json").end(`{"petId":${request.params.petId},${rest.slice(1)}`);
    });
}

interface OpenPage {
  readonly page: Page;
  /** Errors and warnings of the console, including policy violations, exceptions, and failed requests. */
  readonly faults: readonly string[];
  readonly requested: readonly string[];
}

async function open(path: string, options: BrowserContextOptions = {}): Promise<OpenPage> {
  const page = await browser.newPage(options);
  const faults: string[] = [];
  const requested: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("requestfailed", (request) => faults.push(`failed: ${request.url()}`));
  page.on("request", (request) => requested.push(request.url()));
  page.on("response", (response) => {
    if (response.status() >= 400) faults.push(`${response.status()}: ${response.url()}`);
  });
  await page.goto(`${origin}${path}`, { waitUntil: "networkidle" });
  return { page, faults, requested };
}
