import express, { Router } from "express";
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { errorTable } from "../../gateway/http/api-error.ts";
import { docsPage } from "../../gateway/pages/docs-page.ts";
import { describedApi, serveSite } from "../support/account-site.ts";
import { axeViolations, installTimeoutMs, openPage, startChromium } from "../support/chromium.ts";
import { request } from "../support/http.ts";
import { suiteStack } from "../support/stack.ts";

const stack = suiteStack();
let origin: string;
let browser: Browser;

beforeAll(async () => {
  // Mounted twice, as an embedding app may do it: at the root and below a path.
  const app = express().use(petstore()).use("/api", petstore());
  origin = await serveSite(app, stack);
  browser = await startChromium();
  stack.defer(() => browser.close());
}, installTimeoutMs);

const phone = { width: 390, height: 844 };
const loaded = ["/docs/", "/docs/page.css", "/docs/page.js", "/docs/search.js", "/docs/shared.js"];

test.each(["/docs", "/docs/", "/api/docs", "/api/docs/"])(
  "%s shows the operations and loads nothing from elsewhere",
  async (path) => {
    const { page, faults, requested } = await open(path);
    expect(await page.locator("article .endpoint").allTextContents()).toEqual([
      "GET /v1/inventory",
      "GET /v1/inventory/changes",
      "GET /v1/inventory/{petId}",
      "PATCH /v1/inventory/{petId}",
      "POST /v1/inventory/updates",
      "POST /v1/inventory/adjustments",
      "GET /v1/inventory/{petId}/history",
      "GET /v1/pets/{petId}",
      "GET /v1/store/orders",
      "GET /v1/rate_limit",
      "GET /v1/usage",
      "POST /v1/keys/rotate",
    ]);
    expect(await page.locator(".badge.deprecated").count()).toBe(1);

    const root = path.replace(/\/docs\/?$/, "");
    expect([...new Set(requested.map((url) => url.replace(`${origin}${root}`, "")))].sort()).toEqual(
      [...new Set([path.slice(root.length), ...loaded])].sort(),
    );
    expect(faults).toEqual([]);
  },
);

test("the documentation page is complete without its script, and shows every language", async () => {
  const page = await browser.newPage({ javaScriptEnabled: false });
  await page.goto(`${origin}/docs/`);
  expect(await page.locator("article h3").count()).toBe(12);
  for (const part of ["#authorize", ".search", ".try", ".choices"]) {
    expect(await page.locator(part).first().isVisible()).toBe(false);
  }
  for (const language of ["curl", "JavaScript", "Python", "Go"]) {
    expect(await page.locator(`article [data-lang=${language}]`).first().isVisible()).toBe(true);
  }
  await page.setViewportSize({ width: 390, height: 844 });
  expect(await page.locator("#contents").isVisible()).toBe(true);
});

test("the documentation page and all that it loads take less than 40 KB on the way", async () => {
  const sizes = await Promise.all(
    loaded.map(async (path) => {
      const { headers } = await request(new URL(origin).host, { path, headers: { "accept-encoding": "gzip" } });
      return Number(headers["content-length"]);
    }),
  );
  expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(40_000);
});

test.each([
  { width: 1280, height: 900 },
  { width: 390, height: 844 },
])("one curl and its answer are on the first screen: $width px", async (viewport) => {
  const { page } = await open("/api/docs/", { viewport });
  for (const [label, text] of [
    ["The first request", `${origin}/api/v1/inventory`], // the address of this page's own API
    ["The response to the first request", '[{"petId":1001,'],
  ] as const) {
    const code = page.getByLabel(label, { exact: true });
    expect(await code.textContent()).toContain(text);
    const { y, height } = (await code.boundingBox())!;
    expect(Math.floor(y + height)).toBeLessThanOrEqual(viewport.height);
  }
});

test("the contents stay while the text scrolls, and mark the part that is being read", async () => {
  const { page } = await open("/docs/");
  const top = (await page.locator("#contents").boundingBox())!.y;
  for (const id of ["updateInventory", "api_key_banned", "timeout", "internal_error", "limits"]) {
    await page.evaluate(`document.getElementById("${id}").scrollIntoView()`);
    await page.locator(`#contents a[href="#${id}"][aria-current]`).waitFor();
    expect((await page.locator("#contents").boundingBox())!.y).toBe(top);
    expect(await page.locator("#contents [aria-current]").count()).toBe(1);
  }
});

test("every error code has a section: what it means, what to do, whether to repeat", async () => {
  const { page } = await open("/docs/");
  for (const code of Object.keys(errorTable)) {
    const section = page.locator(`section.error:has(#${code})`);
    expect(await section.locator("dt").allTextContents()).toEqual(["Meaning", "What to do", "Repeat?"]);
    for (const text of await section.locator("dd").allTextContents()) expect(text).toMatch(/\w.*\.$/);
  }
});

test("a search finds parts by words of their text, and Enter goes to the first", async () => {
  const { page } = await open("/docs/");
  await page.keyboard.press("/");
  await page.keyboard.type("kept sending banned");
  expect(await page.locator("#found a").first().textContent()).toContain("api_key_banned");
  expect(await page.locator("#found a").first().locator("mark").allTextContents()).toContain("sending");
  await page.keyboard.press("Enter");
  expect(new URL(page.url()).hash).toBe("#api_key_banned");
  expect(await page.locator("#found").isVisible()).toBe(false);
  await page.getByLabel("Search the documentation").fill("no such words");
  expect(await page.locator("#found").textContent()).toBe('Nothing found for "no such words".');
});

test("the arrow keys move through what a search has found, and Tab closes it", async () => {
  const { page } = await open("/docs/");
  const focused = () => page.evaluate("document.activeElement.hash ?? document.activeElement.id");
  const search = page.getByLabel("Search the documentation");
  await search.fill("429");
  const [first, second] = await page.locator("#found a").evaluateAll((links) => links.map((link) => link.hash));
  for (const [key, at] of [
    ["ArrowDown", first],
    ["ArrowDown", second],
    ["ArrowUp", first],
    ["ArrowUp", "search"],
    ["ArrowDown", first],
    ["Escape", "search"],
  ] as const) {
    await page.keyboard.press(key);
    expect([key, await focused()]).toEqual([key, at]);
  }
  expect(await page.locator("#found").isVisible()).toBe(false);
  await search.fill("429");
  await page.getByLabel("API key, for the requests").focus();
  expect(await page.locator("#found").isVisible()).toBe(false);
  await search.fill("ban");
  await page.mouse.click(1200, 600);
  expect(await page.locator("#found").isVisible()).toBe(false);
  await page.keyboard.press("/");
  await page.keyboard.type("etag");
  expect(await search.inputValue()).toBe("etag");
});

test.each([
  ["429", ["rate_limit_exceeded", "api_key_banned"]],
  ["403", ["insufficient_scope"]],
  ["504", ["upstream_timeout", "timeout"]],
  ["pagination", ["List the stock of all pets"]],
  ["oversell", ["Add to the stock, or take from it", "insufficient_stock"]],
  ["base url", ["Quick start"]],
  ["python", ["A complete program"]],
  ["typescript", ["Client for JavaScript"]],
  ["create", ["Overview"]],
  ["delete", ["Overview"]],
  ["too many requests", ["rate_limit_exceeded", "api_key_banned"]],
  ["401 unauthorized", ["missing_api_key", "invalid_api_key"]],
  ["bad request", ["invalid_request", "invalid_json"]],
  ["updateInventory", ["Set the stock of one pet"]],
  ["who sold", ["Read who changed the stock of one pet"]],
])("a search finds errors by their status, and parts by the words that developers use: %s", async (words, titles) => {
  const { page } = await open("/docs/");
  await page.getByLabel("Search the documentation").fill(words);
  const shown = await page.evaluate(
    "[...document.querySelectorAll('#found a')].map((link) => link.textContent.split(/…|Also found as/)[0])",
  );
  expect((shown as string[]).slice(0, titles.length).sort()).toEqual([...titles].sort());
  for (const link of await page.locator("#found a").all()) {
    const marked = (await link.locator("mark").allTextContents()).length > 0;
    expect([await link.textContent(), marked]).toEqual([await link.textContent(), true]);
  }
});

test.each([390, 560, 600, 640, 900, 1280])("what a search has found is on a screen of %i px", async (width) => {
  const { page } = await open("/docs/", { viewport: { width, height: 800 } });
  const search = page.getByLabel("Search the documentation");
  await search.fill("key");
  const found = (await page.locator("#found").boundingBox())!;
  expect(found.x).toBeGreaterThanOrEqual(0);
  expect(found.x + found.width).toBeLessThanOrEqual(width);
  expect((await search.boundingBox())!.width).toBeGreaterThanOrEqual(160);
  for (const text of await page.locator("#found small").allTextContents()) expect(text).toMatch(/^… .*[^\s] …$/);
});

test("what a search has found lies above the text on a phone", async () => {
  const { page } = await open("/docs/", { viewport: phone });
  await page.getByLabel("Search the documentation").fill("key");
  const covered = `[...document.querySelectorAll("#found a")].slice(0, 5).filter((link) => {
    const { x, y, width, height } = link.getBoundingClientRect();
    return !link.contains(document.elementFromPoint(x + width / 2, y + height / 2));
  }).length`;
  expect(await page.locator("#found a").count()).toBe(8);
  expect(await page.evaluate(covered)).toBe(0);
});

test("the bar and its contents stay on the screen of a phone, and Escape closes the contents", async () => {
  const { page } = await open("/docs/#updateInventory", { viewport: phone });
  const menu = page.getByRole("button", { name: "Contents" });
  expect(await menu.boundingBox()).toMatchObject({ y: expect.closeTo(8, 0) });
  await menu.click();
  const { y, height } = (await page.locator("#contents").boundingBox())!;
  expect(y + height).toBe(phone.height);
  await page.keyboard.press("Escape");
  expect(await page.locator("#contents").isVisible()).toBe(false);
  await menu.click();
  await page.locator("#contents").getByRole("link", { name: "internal_error" }).click();
  expect(await page.locator("#contents").isVisible()).toBe(false);
  expect((await page.locator("#internal_error").boundingBox())!.y).toBeLessThan(160); // right below the bar
});

test("the code of each operation begins within a screen of its heading on a phone", async () => {
  const { page } = await open("/docs/", { viewport: phone });
  const top = (selector: string) => `article.querySelector("${selector}").getBoundingClientRect().top`;
  const distances = await page.evaluate(
    `[...document.querySelectorAll("article")].map((article) => ${top(".code")} - ${top("h3")})`,
  );
  expect(Math.max(...(distances as number[]))).toBeLessThan(phone.height);
});

test("paper has the responses that are folded away on the screen, and no forms", async () => {
  const { page } = await open("/docs/");
  await page.emulateMedia({ media: "print" });
  expect(await page.locator("article .answer p").first().isVisible()).toBe(true);
  expect(await page.locator(".answer:has(.s2) .fields").first().isVisible()).toBe(true);
  for (const part of ["#search", "#contents", ".try", ".copy", ".answer:has(.s4) .fields"]) {
    expect(await page.locator(part).first().isVisible()).toBe(false);
  }
});

test("a language that was chosen is shown by every sample, also the next time", async () => {
  const { page } = await open("/docs/");
  const visible = "[...document.querySelectorAll('article [data-lang]')].filter((block) => block.offsetParent)";
  const shown = () => page.evaluate(`[...new Set(${visible}.map((block) => block.dataset.lang))]`);
  expect(await shown()).toEqual(["curl"]);
  await page.getByRole("button", { name: "Python" }).first().click();
  expect(await shown()).toEqual(["Python"]);
  await page.reload();
  expect(await shown()).toEqual(["Python"]);
});

test("a click copies a sample as it stands", async () => {
  const { page } = await open("/docs/");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByRole("button", { name: "Copy: The first request" }).click();
  await page.locator("button", { hasText: /^Copied$/ }).waitFor();
  expect(await page.evaluate("navigator.clipboard.readText()")).toBe(
    `export KEY='<API_KEY>'\n\ncurl -H "Authorization: Bearer $KEY" \\\n  "${origin}/v1/inventory?limit=2"`,
  );
  expect(await page.evaluate("String(getSelection())")).toBe("");
});

test("a request from the page carries the key, and its petId is exact in both directions", async () => {
  const { page, faults } = await open("/api/docs/");
  await giveKey(page);
  const form = await openForm(page, "PATCH", "/inventory/{petId}");
  await form.getByLabel("petId path, integer").fill("9223372036854775807"); // its type stands beside it
  await form.getByRole("button", { name: "Send" }).click();
  const body = form.getByLabel("Body of the response", { exact: true });
  await body.waitFor();
  const text = String(await body.textContent());
  expect(text).toContain('{\n  "petId": 9223372036854775807,\n  "quantity": 12,\n'); // indented, and no digit is lost
  expect(JSON.parse(text)).toMatchObject({ quantity: 12, authorization: "Bearer ps_test_key", ifMatch: null });
  expect(await form.getByRole("status").textContent()).toMatch(/^200 OK, \d+ ms/);
  expect(faults).toEqual([]);
});

test("an optional header is folded away, and goes into the request when it is filled in", async () => {
  const { page } = await open("/docs/");
  await giveKey(page);
  const form = await openForm(page, "PATCH", "/inventory/{petId}");
  expect(await form.getByLabel("If-Match").isVisible()).toBe(false);
  await form.getByText("Optional headers").click();
  await form.getByLabel("If-Match").fill('"4f2c9a01-7"');
  await form.getByRole("button", { name: "Send" }).click();
  const body = form.getByLabel("Body of the response", { exact: true });
  await body.waitFor();
  expect(JSON.parse(String(await body.textContent()))).toMatchObject({ ifMatch: '"4f2c9a01-7"' });
});

test("a refused request leads to the section of its code, and a 304 is no fault", async () => {
  const { page } = await open("/docs/");
  await giveKey(page);
  const form = await openForm(page, "GET", "/inventory");
  const answers = [{ status: 304 }, { status: 429, json: { code: "rate_limit_exceeded" } }];
  await page.route("**/v1/inventory", (route) => route.fulfill(answers.shift()!));
  await form.getByRole("button", { name: "Send" }).click();
  await form.locator(".fine", { hasText: "304" }).waitFor();
  expect(await form.getByLabel("Body of the response").count()).toBe(0);
  await form.getByRole("button", { name: "Send" }).click();
  await form.getByRole("link", { name: "What to do about rate_limit_exceeded" }).click();
  expect(new URL(page.url()).hash).toBe("#rate_limit_exceeded");
});

test("samples and an open form are on the screen, and no text moves when it opens or closes", async () => {
  for (const height of [900, 720]) {
    const { page } = await open("/docs/", { viewport: { width: 1280, height } });
    const article = page.locator("article:has(#bulkUpdateInventory)");
    const answer = article.locator(".answer").first();
    await answer.scrollIntoViewIfNeeded();
    const { y } = (await answer.boundingBox())!;
    for (const isOpen of [true, false]) {
      await article.locator(".try > summary").click();
      expect(await article.locator(".try[open]").count()).toBe(isOpen ? 1 : 0);
      for (const part of ["> .code", ".try > summary"]) {
        const box = (await article.locator(part).boundingBox())!;
        expect([part, Math.floor(box.y + box.height) <= height]).toEqual([part, true]);
      }
      expect((await answer.boundingBox())!.y).toBe(y);
    }
  }
});

test("a request without a key is not sent, and leads to the field for the key", async () => {
  for (const viewport of [{ width: 1280, height: 900 }, phone]) {
    const { page, requested } = await open("/docs/", { viewport });
    const form = await openForm(page, "GET", "/inventory");
    const before = requested.length;
    await form.getByRole("button", { name: "Send" }).click();
    expect(await form.getByRole("status").textContent()).toBe("Enter an API key at the top, then send again.");
    expect(await page.evaluate("document.activeElement.id")).toBe("key");
    const { y, height } = (await form.getByRole("status").boundingBox())!;
    expect(Math.floor(y + height)).toBeLessThanOrEqual(viewport.height);
    expect(requested.length).toBe(before);
    await giveKey(page);
    expect(await page.evaluate("document.activeElement.textContent")).toBe("Send GET /inventory");
  }
});

test("a text that cannot be a key is refused with the reason, and the bar keeps its form", async () => {
  const { page } = await open("/docs/", { viewport: { width: 900, height: 800 } });
  const field = page.getByLabel("API key, for the requests from this page");
  const { width } = (await page.locator("#search").boundingBox())!;
  await field.fill("two words");
  await page.getByRole("button", { name: "Use" }).click();
  await page.getByText("An API key has no spaces, and only characters of ASCII: copy it again.").waitFor();
  expect(await field.getAttribute("aria-invalid")).toBe("true");
  expect((await page.locator("#search").boundingBox())!.width).toBeGreaterThanOrEqual(width);
  expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(900);
  await giveKey(page);
  expect(await page.locator("#key-state").textContent()).toBe("Key …_key in use");
  expect(await page.evaluate("document.activeElement.id")).toBe("forget");
});

test("a form that writes says so, and a rotation is left to the account page", async () => {
  const { page } = await open("/docs/");
  const words = "This changes the real stock.";
  for (const method of ["GET", "PATCH", "POST"]) {
    const forms = page.locator(`form[data-method=${method}]`);
    const count = await forms.count();
    expect([method, await forms.filter({ hasText: words }).count()]).toEqual([method, method === "GET" ? 0 : count]);
  }
  expect(await page.locator("form[data-path*=rotate]").count()).toBe(0);
  const rotation = page.locator("article:has(#rotateKey) .try");
  await rotation.locator("summary").click();
  expect(await rotation.getByRole("link").evaluate((link) => (link as unknown as URL).href)).toBe(`${origin}/account/`);
});

test("the contents mark what is deprecated, also for a reader that hears them", async () => {
  const { page } = await open("/docs/");
  const link = page.locator('#contents a[href="#getPet"]');
  expect(await link.textContent()).toBe("Read a petdeprecated GET");
  expect(await link.locator("s").textContent()).toBe("Read a pet");
});

test("the answer to a request from the page is brought to the screen", async () => {
  const { page } = await open("/docs/", { viewport: { width: 1280, height: 700 } });
  await giveKey(page);
  const form = await openForm(page, "PATCH", "/inventory/{petId}");
  const send = form.getByRole("button", { name: "Send" });
  await page.evaluate("document.querySelector('[data-method=PATCH] .send').scrollIntoView({ block: 'end' })");
  expect((await send.boundingBox())!.y).toBeLessThan(700);
  await send.click();
  const body = form.getByLabel("Body of the response", { exact: true });
  await body.waitFor();
  const { y, height } = (await body.boundingBox())!;
  expect(Math.floor(y + height)).toBeLessThanOrEqual(700);
});

test("a query parameter of a request from the page goes into its address, an empty one does not", async () => {
  const { page, faults } = await open("/api/docs/");
  await giveKey(page);
  const addressOf = async (hours: string) => {
    const form = await openForm(page, "GET", "/usage");
    await form.getByLabel("hours").fill(hours);
    await Promise.all([page.waitForResponse(/usage/), form.getByRole("button", { name: "Send" }).click()]);
    const body = form.getByLabel("Body of the response", { exact: true });
    await body.waitFor();
    return JSON.parse(String(await body.textContent()));
  };
  expect(await addressOf("6")).toEqual({ address: "/api/v1/usage?hours=6" });
  await page.reload();
  expect(await addressOf("")).toEqual({ address: "/api/v1/usage" });
  expect(faults).toEqual([]);
});

test("a request for changes from the page begins at the list that was read on it", async () => {
  const { page } = await open("/docs/");
  expect(await page.locator("[data-name=since]").inputValue()).toBe("");
  await giveKey(page);
  const list = await openForm(page, "GET", "/inventory");
  await list.getByRole("button", { name: "Send" }).click();
  await list.getByLabel("Body of the response", { exact: true }).waitFor();
  const changes = await openForm(page, "GET", "/inventory/changes");
  expect(await changes.getByLabel("since").inputValue()).toBe('"4f2c9a01-7"');
});

test("a request that needs an Idempotency-Key has one, and a new one after its answer", async () => {
  const { page } = await open("/docs/");
  await giveKey(page);
  const form = await openForm(page, "POST", "/inventory/adjustments");
  const keys = [];
  for (let i = 0; i < 2; i++) {
    keys.push(await form.getByLabel("Idempotency-Key").inputValue());
    await form.getByRole("button", { name: "Send" }).click();
    await form.getByLabel("Body of the response", { exact: true }).filter({ hasText: keys[i]! }).waitFor();
  }
  expect(keys[0]).toMatch(/^try-\d+$/);
  expect(keys[1]).not.toBe(keys[0]);
});

const screens = [
  ["a phone", phone],
  ["a wide screen", { width: 1280, height: 900 }],
  ["a large screen", { width: 1920, height: 1080 }],
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
    // No code in a text goes on in another line within a word.
    const broken = "[...document.querySelectorAll('.text code, .error code')].filter((code) => !code.closest('pre'))";
    expect(
      await page.evaluate(
        `${broken}.filter((code) => code.getClientRects().length > 1).map((code) => code.textContent)`,
      ),
    ).toEqual([]);
    expect(await axeViolations(page)).toEqual([]);
    expect(faults).toEqual([]);
  },
  180_000,
);

test("the language that is chosen has the colours of a selection in forced colours", async () => {
  const { page } = await open("/docs/");
  await page.emulateMedia({ forcedColors: "active" });
  const colors = (element: string) =>
    page.evaluate(`(({ color, backgroundColor }) => [color, backgroundColor])(getComputedStyle(${element}))`);
  const selection = `document.body.appendChild(Object.assign(document.createElement("p"), {
    style: "forced-color-adjust: none; color: highlighttext; background: highlight" }))`;
  const chosen = `document.querySelector('.choices [aria-pressed="true"]')`;
  expect(await colors(chosen)).toEqual(await colors(selection));
});

/** Gives the key at the top of the page. */
async function giveKey(page: Page): Promise<void> {
  await page.getByLabel("API key, for the requests from this page").fill("Bearer ps_test_key");
  await page.getByRole("button", { name: "Use" }).click();
}

/** Opens the form of an operation. */
async function openForm(page: Page, method: string, path: string): Promise<Locator> {
  const form = page.locator(`form[data-method=${method}][data-path="${path}"]`);
  await page.locator("details.try").filter({ has: form }).locator("> summary").click();
  return form;
}

const open = (path: string, options: BrowserContextOptions = {}) => openPage(browser, `${origin}${path}`, options);

/** Serves the documentation, and an API that echoes its requests. */
function petstore(): Router {
  return Router()
    .use(docsPage({ document: describedApi, admit: async () => {} }))
    .get("/v1/inventory", (_received, response) => void response.set("ETag", '"4f2c9a01-7"').json([]))
    .post("/v1/inventory/adjustments", (received, response) => {
      response.json([received.headers["idempotency-key"]]);
    })
    .get("/v1/usage", (received, response) => void response.json({ address: received.originalUrl }))
    .patch("/v1/inventory/:petId", express.json(), (received, response) => {
      const { authorization, "if-match": ifMatch = null } = received.headers;
      const rest = JSON.stringify({ ...received.body, authorization, ifMatch });
      response.type("json").end(`{"petId":${received.params.petId},${rest.slice(1)}`);
    });
}
