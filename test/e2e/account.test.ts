import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import express from "express";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { AccountStub, accountSite } from "../support/account-site.ts";
import { axeViolations, installTimeoutMs, openPage, startChromium } from "../support/chromium.ts";
import { request } from "../support/http.ts";
import { suiteStack } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const apiKey = "ps_test_account_key";
const files = ["/account/", "/account/page.css", "/account/page.js", "/account/uplot.js"];

const stack = suiteStack();
let origin: string;
let browser: Browser;
let api: AccountStub;

beforeEach(() => {
  api = new AccountStub();
});

beforeAll(async () => {
  // Mounted twice, as an embedding app may do it: at the root and below a path.
  const site = accountSite(() => api);
  const app = express().use(site).use("/api", site);
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

test.each(["/account", "/account/", "/api/account", "/api/account/"])(
  "%s shows the account of the key, and asks no other host",
  async (path) => {
    const { page, faults, requested } = await open(path);
    expect(await page.locator("#account").isVisible()).toBe(false);
    await give(page);
    expect(await page.locator("[data-window=minute] .used").textContent()).toBe("12 of 300 used, 288 left.");
    expect(await page.locator("[data-window=day] .used").textContent()).toBe("4,012 of 10,000 used, 5,988 left.");
    expect(await page.locator("[data-window=minute] .countdown").textContent()).toMatch(/^Begins again in \d+ s\.$/);
    expect(await page.locator("[data-window=day] .countdown").textContent()).toMatch(/^Begins again in 2 h 59 min\.$/);
    expect(await page.locator("#plan").textContent()).toBe("pro");
    expect(await page.locator("#key-id").textContent()).toBe("key_1");
    expect(await page.locator("#key-scopes").textContent()).toBe("inventory:read, keys:rotate");
    expect(await page.locator("#key-end").textContent()).toBe("1 Jul 2027, 00:00");
    expect(await page.locator("#deprecated").textContent()).toBe("17");
    expect(await page.getByRole("listitem").allTextContents()).toEqual([
      "GET /pets/{petId}: ends on 2027-07-01 (sunset)",
    ]);
    expect(await page.locator("#ban").isVisible()).toBe(false);

    const root = path.replace(/\/account\/?$/, "");
    const paths = new Set(requested.map((url) => url.replace(`${origin}${root}`, "")));
    const asked = ["/v1/rate_limit", "/v1/usage?hours=168"];
    expect([...paths].sort()).toEqual([...new Set([path.slice(root.length), ...files, ...asked])].sort());
    expect(new Set(api.authorizations)).toEqual(new Set([`Bearer ${apiKey}`]));
    expect(faults).toEqual([]);
  },
);

test("a key that is pasted is used without a further click", async () => {
  const { page } = await open("/account/");
  await page.evaluate(`{
    const field = document.querySelector("#key");
    field.focus();
    field.dispatchEvent(new ClipboardEvent("paste", { clipboardData: new DataTransfer() }));
    document.execCommand("insertText", false, "Bearer ${apiKey} ");
  }`);
  await page.locator("#account").waitFor();
  expect(api.authorizations[0]).toBe(`Bearer ${apiKey}`);
});

test("the key is in sessionStorage alone: not in address, document, localStorage or a cookie", async () => {
  const { page, requested } = await open("/account/");
  await give(page);
  expect(await page.evaluate("Object.values(sessionStorage)")).toEqual([apiKey]);
  expect(await page.evaluate("[localStorage.length, document.cookie]")).toEqual([0, ""]);
  expect(await page.content()).not.toContain(apiKey);
  expect(await page.locator("#key").inputValue()).toBe("");
  expect([page.url(), ...requested].filter((url) => url.includes(apiKey))).toEqual([]);

  await page.reload();
  await page.locator("#account").waitFor();
  await page.getByRole("button", { name: "Forget the key" }).click();
  expect(await page.evaluate("sessionStorage.length")).toBe(0);
  expect(await page.locator("#account").isVisible()).toBe(false);
  await page.reload();
  expect(await page.locator("#open").isVisible()).toBe(true);
});

test("the days of the table are the sums of the plot's hours", async () => {
  const { page } = await open("/account/", { timezoneId: "UTC" });
  await give(page);
  await page.locator("#plot canvas").waitFor();
  const rows = await page.locator("#days tr").all();
  const cells = await Promise.all(rows.map((row) => row.locator("th, td").allTextContents()));
  expect(cells.map(([day, ...counts]) => [day!.replace(",", ""), ...counts])).toEqual([
    ["Mon 16 Nov", "900", "9"],
    ...["Tue 17", "Wed 18", "Thu 19", "Fri 20", "Sat 21", "Sun 22"].map((day) => [`${day} Nov`, "2,400", "24"]),
    ["Mon 23 Nov", "1,500", "15"],
  ]);
});

test("the numbers of a gateway's own page are those of its limit headers", async () => {
  const system = await startSystem();
  stack.defer(() => system.close());
  const headers = { authorization: `Bearer ${system.keys.free}` };
  await request(system.address, { path: "/v1/inventory", headers });
  const charged = await request(system.address, { path: "/v1/inventory", headers });
  const [minute, day] = [...String(charged.headers.ratelimit).matchAll(/r=(\d+)/g)].map(([, left]) => Number(left));
  expect(String(charged.headers["ratelimit-policy"])).toMatch(/q=60;.*q=1000;/);
  const { page, faults, requested } = await openPage(browser, `http://${system.address}/account`);
  await give(page, system.keys.free);
  const used = (limit: number, left: number) =>
    `${limit - left} of ${limit.toLocaleString("en-US")} used, ${left.toLocaleString("en-US")} left.`;
  expect(await page.locator("[data-window=minute] .used").textContent()).toBe(used(60, minute!));
  expect(await page.locator("[data-window=day] .used").textContent()).toBe(used(1_000, day!));
  expect(await page.locator("#days tr").last().locator("td").allTextContents()).toEqual(["2", "0"]);
  expect(new Set(requested.map((url) => new URL(url).host))).toEqual(new Set([system.address]));
  expect(faults).toEqual([]);
}, 60_000);

test("two clicks on a gateway's own page make a key that works, and the old one works for a day", async () => {
  const system = await startSystem({ gatewayEnv: { KEY_ROTATION: "1" } });
  stack.defer(() => system.close());
  const { key } = await system.issueKey({ plan: "pro", scopes: ["inventory:read", "keys:rotate"] });
  const { page, faults } = await openPage(browser, `http://${system.address}/account`);
  await give(page, key);
  await page.getByRole("button", { name: "Rotate this key" }).click();
  await page.getByRole("button", { name: "Make the new key now" }).click();
  await page.locator("#new-key", { hasText: "ps_" }).waitFor();
  const made = (await page.locator("#new-key").textContent())!;
  expect(made).not.toBe(key);
  await page.getByRole("button", { name: "I have stored it" }).click();
  await page.locator("#account").waitFor();
  expect(await page.evaluate("Object.values(sessionStorage)")).toEqual([made]);
  for (const each of [key, made]) {
    const headers = { authorization: `Bearer ${each}` };
    expect(await request(system.address, { path: "/v1/inventory", headers })).toMatchObject({ status: 200 });
  }
  expect(faults).toEqual([]);
}, 60_000);

test("the account page tells of a ban with its end, and the numbers stay", async () => {
  api.rateLimit.ban = { until: "2026-11-23T12:05:00.000Z" };
  const { page } = await open("/account/", { timezoneId: "UTC" });
  await give(page);
  expect(await page.getByRole("alert").textContent()).toBe("This key is banned until 23 Nov 2026, 12:05.");
  expect(await page.locator("[data-window=minute] .used").textContent()).toBe("12 of 300 used, 288 left.");
});

test("a key that is not valid is forgotten, with the reason", async () => {
  api.refusal = { status: 401, code: "invalid_api_key", message: "The API key is not valid." };
  const { page } = await open("/account/");
  await page.getByLabel("API key").fill(apiKey);
  await page.keyboard.press("Enter");
  await page.getByText("The API key is not valid.").waitFor();
  expect(await page.locator("#open").isVisible()).toBe(true);
  expect(await page.evaluate("sessionStorage.length")).toBe(0);
});

test("a window that has ended is asked for again", async () => {
  api.rateLimit.windows[0]!.resetAt = new Date(Date.now() + 1_000).toISOString();
  const { page } = await open("/account/");
  await give(page);
  api = new AccountStub();
  api.rateLimit.windows[0]!.used = 0;
  await page.locator("[data-window=minute] .used", { hasText: /^0 of / }).waitFor();
});

test("two clicks rotate a key, which is shown once and used when the visitor has stored it", async () => {
  const { page, faults } = await open("/account/");
  await give(page);
  await page.getByRole("button", { name: "Rotate this key" }).click();
  expect(api.rotations).toBe(0);
  await page.getByRole("button", { name: "Make the new key now" }).click();
  await page.locator("#new-key", { hasText: "ps_test_new_key_1" }).waitFor();
  expect(await page.evaluate("Object.values(sessionStorage)")).toEqual([apiKey]);
  await page.getByRole("button", { name: "I have stored it" }).click();
  await until(() => api.authorizations.at(-1) === "Bearer ps_test_new_key_1");
  expect(await page.content()).not.toContain("ps_test_new_key_1");
  expect(await page.evaluate("Object.values(sessionStorage)")).toEqual(["ps_test_new_key_1"]);
  expect(faults).toEqual([]);
});

test("rotation is offered only for keys with the scope, and only where the gateway allows it", async () => {
  api.rateLimit.key.scopes = ["inventory:read"];
  const { page } = await open("/account/");
  await give(page);
  expect(await page.locator("#rotation").isVisible()).toBe(false);
  api = new AccountStub();
  const { page: other } = await open("/without-rotation/account/");
  await give(other);
  expect(await other.locator("#rotation").count()).toBe(0);
});

test("the account page can be used by keyboard alone", async () => {
  const { page } = await open("/account/");
  const focused = () => page.evaluate("document.activeElement.id");
  await page.locator("body").press("Tab");
  while ((await focused()) !== "key") await page.keyboard.press("Tab");
  await page.keyboard.type(apiKey);
  await page.keyboard.press("Enter");
  await page.locator("#account").waitFor();
  await until(async () => (await focused()) === "limits");
  while ((await focused()) !== "rotate") await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  expect(await focused()).toBe("confirm");
  await page.keyboard.press("Enter");
  await until(async () => (await focused()) === "new-key");
  while ((await focused()) !== "stored") await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await until(() => api.authorizations.at(-1) === "Bearer ps_test_new_key_1");
});

test("the account page and all that it loads take less than 80 KB on the way", async () => {
  const sizes = await Promise.all(
    files.map(async (path) => {
      const { headers } = await request(new URL(origin).host, { path, headers: { "accept-encoding": "gzip" } });
      return Number(headers["content-length"]);
    }),
  );
  expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(80_000);
});

const looks = [360, 1280].flatMap((width) =>
  (["light", "dark"] as const).map((colorScheme) => ({ width, colorScheme, viewport: { width, height: 800 } })),
);

test.each(looks)(
  "the account page has no fault that axe-core finds, and fits: $width px, $colorScheme",
  async (look) => {
    api.rateLimit.ban = { until: "2026-11-23T12:05:00.000Z" };
    const { page, faults } = await open("/account/", look);
    expect(await axeViolations(page)).toEqual([]);
    await give(page);
    await page.locator("#plot canvas").waitFor();
    expect(await axeViolations(page)).toEqual([]);
    await page.getByRole("button", { name: "Rotate this key" }).click();
    await page.getByRole("button", { name: "Make the new key now" }).click();
    await page.locator("#rotated").waitFor();
    expect(await axeViolations(page)).toEqual([]);
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(look.width);
    expect(faults).toEqual([]);
  },
);

const open = (path: string, options: BrowserContextOptions = {}) => openPage(browser, `${origin}${path}`, options);

/** Gives the key to the page, and waits for the account. */
async function give(page: Page, key = apiKey): Promise<void> {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Show the account" }).click();
  await page.locator("#days tr").first().waitFor();
}
