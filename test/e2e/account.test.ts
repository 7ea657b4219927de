import express from "express";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { AccountStub, accountSite, serveSite } from "../support/account-site.ts";
import { axeViolations, installTimeoutMs, openPage, startChromium } from "../support/chromium.ts";
import { request } from "../support/http.ts";
import { suiteStack } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const apiKey = "ps_test_account_key";
const files = [
  "/account/",
  "/account/page.js",
  "/account/plot.js",
  "/account/rotation.js",
  "/account/uplot.js",
  "/docs/page.css",
  "/docs/shared.js",
];

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
  origin = await serveSite(app, stack);
  browser = await startChromium();
  stack.defer(() => browser.close());
}, installTimeoutMs);

test.each(["/account", "/account/", "/api/account", "/api/account/"])(
  "%s shows the account of the key, and asks no other host",
  async (path) => {
    const { page, faults, requested } = await open(path, { timezoneId: "UTC" });
    expect(await page.locator("#account").isVisible()).toBe(false);
    await give(page);
    expect(await page.locator("[data-window=minute] .used").textContent()).toBe("12 of 300 used, 288 left.");
    expect(await page.locator("[data-window=day] .used").textContent()).toBe("4,012 of 10,000 used, 5,988 left.");
    expect(await page.locator("[data-window=minute] .countdown").textContent()).toMatch(/^Resets in \d+ s\.$/);
    expect(await page.locator("[data-window=day] .countdown").textContent()).toMatch(/^Resets in 2 h 59 min\.$/);
    expect(await page.locator("#plan").textContent()).toBe("plan pro");
    expect(await page.locator("#key-id").textContent()).toBe("key_1");
    expect(await page.locator("#key-scopes").textContent()).toBe("inventory:read, keys:rotate");
    expect(await page.locator("#key-end").textContent()).toBe("1 Jul 2027, 00:00:00 UTC");
    expect(await page.locator("#deprecated").textContent()).toBe("17");
    expect(await page.getByRole("listitem").allTextContents()).toEqual([
      "GET /pets/{petId}: ends on 2027-07-01 (sunset)",
    ]);
    expect(await page.locator("#ban").isVisible()).toBe(false);

    const root = path.replace(/\/account\/?$/, "");
    const paths = new Set(requested.map((url) => url.replace(`${origin}${root}`, "")));
    const asked = ["/v1/rate_limit", "/v1/usage?hours=24"];
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

test("a key that was given to the documentation page opens the account at once", async () => {
  const { page } = await open("/docs/");
  await page.getByLabel("API key").fill(apiKey);
  await page.getByRole("button", { name: "Use" }).click();
  await page.getByRole("link", { name: "Account", exact: true }).click();
  await page.locator("#account").waitFor();
  expect(api.authorizations[0]).toBe(`Bearer ${apiKey}`);
  await page.getByRole("link", { name: "Documentation" }).click();
  await page.getByText(`Key …${apiKey.slice(-4)} in use`).waitFor();
  await page.getByRole("button", { name: "Forget" }).click();
  expect(await page.evaluate("sessionStorage.length")).toBe(0);
});

test("the requests of 24 hours are shown first, and those of 6 hours and of 7 days by choice", async () => {
  const { page, requested } = await open("/account/", { timezoneId: "UTC" });
  await give(page);
  const rows = async () => {
    const all = await page.locator("#sums tr").all();
    return Promise.all(all.map((row) => row.locator("th, td").allTextContents()));
  };
  const hours = await rows();
  expect([hours.length, hours[0], hours.at(-1)]).toEqual([
    24,
    [expect.stringMatching(/^Sun,? 22 Nov, 15:00$/), "100", "1"],
    [expect.stringMatching(/^Mon,? 23 Nov, 14:00$/), "100", "1"],
  ]);
  expect(await page.locator("#reading").textContent()).toBe("In all: 2,400 served, 24 refused");

  await page.getByRole("button", { name: "6 hours" }).click();
  await page.locator("#reading", { hasText: "In all: 36,000 served, 360 refused" }).waitFor(); // 360 minutes
  expect((await rows())[0]).toEqual(["09:00", "1,500", "15"]); // a quarter of an hour

  await page.getByRole("button", { name: "7 days" }).click();
  await page.locator("#reading", { hasText: "In all: 16,800 served, 168 refused" }).waitFor();
  expect((await rows()).map(([day, ...counts]) => [day!.replace(",", ""), ...counts])).toEqual([
    ["Mon 16 Nov", "900", "9"],
    ...["Tue 17", "Wed 18", "Thu 19", "Fri 20", "Sat 21", "Sun 22"].map((day) => [`${day} Nov`, "2,400", "24"]),
    ["Mon 23 Nov", "1,500", "15"],
  ]);
  const asked = requested.flatMap((url) => new URL(url).searchParams.get("hours") ?? []);
  expect([...new Set(asked)]).toEqual(["24", "6", "168"]);
});

test("bars of another time than the chosen one are marked, and their sum is not shown", async () => {
  const { page } = await open("/account/");
  await give(page);
  await page.route(/hours=168/, () => {}); // never answered
  await page.getByRole("button", { name: "7 days" }).click();
  expect(await page.locator("#reading").textContent()).toBe("");
  expect(await page.locator("#plot").getAttribute("aria-busy")).toBe("true");
});

test.each([
  [390, "6 hours", 360],
  [390, "7 days", 168],
  [1280, "6 hours", 360],
])("a bar of the plot has at least 4 pixels, and all requests: %i px, %s", async (width, choice, steps) => {
  api.requestsOf = () => ({ served: 1, refused: 0 });
  const { page } = await open("/account/", { viewport: { width, height: 800 } });
  await give(page);
  await page.getByRole("button", { name: choice }).click();
  await page.locator("#reading", { hasText: `In all: ${steps} served` }).waitFor();
  const bars = 1 + Number(await page.getByRole("slider").getAttribute("aria-valuemax"));
  const plotted = (await page.locator("#plot .u-over").boundingBox())!.width;
  expect((0.8 * plotted) / bars).toBeGreaterThanOrEqual(4);
  await page.getByRole("slider").press("Home");
  expect(await page.locator("#reading").textContent()).toContain(`: ${steps / bars} served`);
  const pointed = (await page.locator("#plot .u-cursor-x").boundingBox())!;
  expect(pointed.width).toBeCloseTo(plotted / bars, 1);
  expect(Math.abs(pointed.x - (await page.locator("#plot .u-over").boundingBox())!.x)).toBeLessThanOrEqual(1);
});

test("an account without requests says so, and names the zone of its times", async () => {
  api.requestsOf = () => ({ served: 0, refused: 0 });
  const { page } = await open("/account/", { timezoneId: "UTC" });
  await give(page);
  expect(await page.locator("#reading").textContent()).toBe("No requests in this time.");
  expect(await page.locator("#zone").textContent()).toBe("Times in UTC");
});

test("the values of a step are shown on hover and by the arrow keys", async () => {
  api.requestsOf = (hour) => ({ served: hour, refused: 168 - hour });
  const { page } = await open("/account/", { timezoneId: "UTC" });
  await give(page);
  const reading = page.locator("#reading");
  const plot = page.getByRole("slider");
  await plot.focus();
  await page.keyboard.press("ArrowLeft");
  expect(await reading.textContent()).toMatch(/^Mon,? 23 Nov, 14:00–15:00: 167 served, 1 refused$/);
  await page.keyboard.press("ArrowLeft");
  expect(await plot.getAttribute("aria-valuetext")).toMatch(/13:00–14:00: 166 served, 2 refused$/);
  await page.keyboard.press("Home");
  expect(await reading.textContent()).toMatch(/^Sun,? 22 Nov, 15:00–16:00: 144 served, 24 refused$/);
  const { width: screen, height } = page.viewportSize()!;
  const drawing = page.locator("#plot .u-over");
  const resize = async (width: number) => {
    const drawn = await drawing.elementHandle();
    await page.setViewportSize({ width, height });
    await drawn!.waitForElementState("hidden"); // the plot is drawn again
    await drawing.waitFor();
  };
  await resize(screen - 40);
  await page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))");
  expect(await reading.textContent()).toMatch(/^Sun,? 22 Nov, 15:00–16:00: 144 served, 24 refused$/);
  await resize(screen);
  await page.keyboard.press("Escape");
  expect(await reading.textContent()).toMatch(/^In all/);
  const { x, y, width } = (await drawing.boundingBox())!;
  await page.mouse.move(x + (width * 1.5) / 24, y + 50); // the middle of the second bar
  await page.locator("#reading", { hasText: "16:00–17:00: 145 served, 23 refused" }).waitFor();
});

test.each([
  [79, "", "ok"],
  [80, "Nearly used up.", "nearly"],
  [99, "Nearly used up.", "nearly"],
  [100, "Used up: requests get 429 until it resets.", "used up"],
])("a window that is used to %i percent says so, in words and in colour: %s", async (used, words, level) => {
  Object.assign(api.rateLimit.windows[0]!, { limit: 100, used, remaining: 100 - used });
  const { page } = await open("/account/");
  await give(page);
  const window = page.locator("[data-window=minute]");
  expect(await window.locator(".level").textContent()).toBe(words);
  const bar = 'document.querySelector("[data-window=minute] .filled")';
  const colour = await page.evaluate(`getComputedStyle(${bar}).backgroundColor`);
  const colours = { ok: "rgb(4, 120, 87)", nearly: "rgb(161, 69, 11)", "used up": "rgb(180, 35, 24)" };
  expect(colour).toBe(colours[level as keyof typeof colours]);
  expect(await window.getByRole("meter").getAttribute("aria-valuenow")).toBe(String(used));
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
  expect(await page.locator("#sums tr").last().locator("td").allTextContents()).toEqual(["2", "0"]);
  expect(new Set(requested.map((url) => new URL(url).host))).toEqual(new Set([system.address]));
  expect(faults).toEqual([]);
}, 60_000);

test("a rotation on a gateway's own page makes a key that works, and the old one works for a day", async () => {
  const system = await startSystem({ gatewayEnv: { KEY_ROTATION: "1" } });
  stack.defer(() => system.close());
  const { key } = await system.issueKey({ plan: "pro", scopes: ["inventory:read", "keys:rotate"] });
  const { page, faults } = await openPage(browser, `http://${system.address}/account`);
  await give(page, key);
  await page.getByRole("button", { name: "Rotate this key" }).click();
  await page.getByRole("button", { name: "Make the new key" }).click();
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

test("a ban is shown with its time left, the reason and what to do, and the numbers stay", async () => {
  const end = new Date(Date.now() + 299_000);
  api.rateLimit.ban = { until: end.toISOString() };
  const { page } = await open("/account/", { timezoneId: "UTC" });
  await give(page);
  expect(await page.locator("#ban").getByRole("alert").textContent()).toContain(
    `, ${end.toISOString().slice(11, 19)} UTC.`,
  );
  expect(await page.locator("#ban h2").textContent()).toMatch(/^This key is banned for another 4 min \d+ s$/);
  const told = await page.locator("#ban").textContent();
  for (const part of ["kept sending requests", "What to do: stop every client"]) expect(told).toContain(part);
  const { origin: here } = new URL(page.url());
  expect(await page.evaluate('document.querySelector("#ban a").href')).toBe(`${here}/docs/#api_key_banned`);
  expect(await page.locator("[data-window=minute] .used").textContent()).toBe("12 of 300 used, 288 left.");
  expect(await page.locator("[data-window=minute] .level").textContent()).toBe("Requests get 429 until the ban ends.");
  expect(await page.locator("#rotate").isVisible()).toBe(false);
});

test("a rotation that fails says why beside its button", async () => {
  const { page } = await open("/account/");
  await give(page);
  api.refusal = { status: 429, code: "rate_limit_exceeded", message: "The rate limit is exceeded." };
  await page.getByRole("button", { name: "Rotate this key" }).click();
  await page.getByRole("button", { name: "Make the new key" }).click();
  const fault = page.getByRole("alert").filter({ hasText: "The rate limit is exceeded." });
  await fault.waitFor();
  const box = (await fault.boundingBox())!;
  expect(box.y - (await page.locator("#rotate").boundingBox())!.y).toBeLessThan(100);
  expect(box.y + box.height).toBeLessThanOrEqual(page.viewportSize()!.height);
});

test("a page that shows a new key asks before it is left, and not once the key is stored", async () => {
  const { page } = await open("/account/");
  await give(page);
  await page.getByRole("button", { name: "Rotate this key" }).click();
  await page.getByRole("button", { name: "Make the new key" }).click();
  await page.locator("#new-key", { hasText: "ps_test_new_key_1" }).waitFor();
  const questions: string[] = [];
  page.on("dialog", (dialog) => {
    questions.push(dialog.type());
    void dialog.dismiss();
  });
  await page.evaluate("location.reload()");
  await until(() => questions.length === 1);
  expect(questions).toEqual(["beforeunload"]);
  expect(await page.locator("#new-key").textContent()).toBe("ps_test_new_key_1");
  await page.getByRole("button", { name: "I have stored it" }).click();
  await page.locator("#sums tr").first().waitFor({ state: "attached" });
  await page.reload();
  expect(questions).toHaveLength(1);
});

test("the account page asks again when a ban has ended", async () => {
  api.rateLimit.ban = { until: new Date(Date.now() + 1_000).toISOString() };
  const { page } = await open("/account/");
  await give(page);
  api = new AccountStub();
  await page.locator("#ban").waitFor({ state: "hidden" });
});

test("a key that is not valid is forgotten, with the reason", async () => {
  api.refusal = { status: 401, code: "invalid_api_key", message: "The API key is not valid." };
  const { page } = await open("/account/");
  await page.getByLabel("API key").fill(apiKey);
  await page.keyboard.press("Enter");
  await page.locator("#open").getByText("The API key is not valid.").waitFor();
  expect(await page.getByLabel("API key").getAttribute("aria-invalid")).toBe("true");
  expect(await page.evaluate("sessionStorage.length")).toBe(0);
  await page.getByLabel("API key").fill("two words");
  await page.keyboard.press("Enter");
  expect(await page.getByRole("alert").textContent()).toMatch(/^An API key has no spaces/);
});

test("numbers that cannot be renewed stay, with a warning that tells their time", async () => {
  const { page } = await open("/account/");
  await give(page);
  api.refusal = { status: 503, code: "service_unavailable", message: "The API is overloaded." };
  await page.getByRole("button", { name: "7 days" }).click();
  const status = page.locator("#status.warning");
  await status.waitFor();
  expect(await status.textContent()).toMatch(/^The API is overloaded\. The numbers are those of [\d:]{8}\.$/);
  expect(await page.locator("#account").isVisible()).toBe(true);
});

test("a page that has a key shows no form for one while it loads", async () => {
  const { page } = await open("/account/");
  await give(page);
  await page.route(/rate_limit/, () => {}); // never answered
  await page.reload();
  await page.getByText("Loading").waitFor();
  expect(await page.locator("#open").isVisible()).toBe(false);
});

test("a window that has ended is asked for again", async () => {
  api.rateLimit.windows[0]!.resetAt = new Date(Date.now() + 1_000).toISOString();
  const { page } = await open("/account/");
  await give(page);
  api = new AccountStub();
  api.rateLimit.windows[0]!.used = 0;
  await page.locator("[data-window=minute] .used", { hasText: /^0 of / }).waitFor();
});

test("a rotation is confirmed, and the key is shown once and used when the visitor has stored it", async () => {
  const { page, faults } = await open("/account/");
  await give(page);
  await page.getByRole("button", { name: "Rotate this key" }).click();
  expect(api.rotations).toBe(0);
  await page.getByRole("button", { name: "Make the new key" }).click();
  await page.locator("#new-key", { hasText: "ps_test_new_key_1" }).waitFor();
  for (const name of ["Copy: The new key", "I have stored it: use it here"]) {
    const { y, height } = (await page.getByRole("button", { name }).boundingBox())!;
    expect(y).toBeGreaterThan(0);
    expect(y + height).toBeLessThanOrEqual(page.viewportSize()!.height);
  }
  expect(await page.evaluate("Object.values(sessionStorage)")).toEqual([apiKey]);
  await page.getByRole("button", { name: "I have stored it" }).click();
  await until(() => api.authorizations.at(-1) === "Bearer ps_test_new_key_1");
  expect(await page.content()).not.toContain("ps_test_new_key_1");
  expect(await page.evaluate("Object.values(sessionStorage)")).toEqual(["ps_test_new_key_1"]);
  expect(faults).toEqual([]);
});

test("a double click rotates nothing, and neither do Cancel and Escape", async () => {
  const { page } = await open("/account/");
  await give(page);
  const rotate = page.getByRole("button", { name: "Rotate this key" });
  const dialog = page.getByRole("dialog", { name: "Rotate this key?" });
  // The worst case: the button of the dialog lies where the first click was.
  await rotate.scrollIntoViewIfNeeded();
  const { x, y } = (await rotate.boundingBox())!;
  await page.evaluate(`Object.assign(document.querySelector("#rotate-now").style, {
    position: "fixed", left: "${x}px", top: "${y}px", width: "200px", height: "60px" })`);
  await page.mouse.dblclick(x + 20, y + 10);
  expect(await dialog.isVisible()).toBe(true);
  await page.getByRole("button", { name: "Cancel" }).click();
  expect(await dialog.isVisible()).toBe(false);
  await rotate.focus();
  await page.keyboard.press("Enter");
  expect(await dialog.isVisible()).toBe(true);
  await page.keyboard.press("Escape");
  expect(await dialog.isVisible()).toBe(false);
  expect(api.rotations).toBe(0);
});

test("rotation is offered only for keys with the scope, and only where the gateway allows it", async () => {
  api.rateLimit.key.scopes = ["inventory:read"];
  const { page } = await open("/account/");
  await give(page);
  expect(await page.locator("#rotate").isVisible()).toBe(false);
  api = new AccountStub();
  const { page: other } = await open("/without-rotation/account/");
  await give(other);
  expect(await other.locator("#rotate").count()).toBe(0);
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
  expect(await focused()).toBe("cancel"); // what does no harm
  await page.keyboard.press("Tab");
  expect(await focused()).toBe("rotate-now");
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

const looks = [390, 1280, 1920].flatMap((width) =>
  (["light", "dark"] as const).map((colorScheme) => ({ width, colorScheme, viewport: { width, height: 800 } })),
);

test.each(looks)(
  "the account page has no fault that axe-core finds, and fits: $width px, $colorScheme",
  async (look) => {
    api.rateLimit.ban = { until: "2030-11-23T12:05:00.000Z" };
    Object.assign(api.rateLimit.windows[0]!, { used: 300, remaining: 0 });
    Object.assign(api.rateLimit.windows[1]!, { used: 9_000, remaining: 1_000 });
    const { page, faults } = await open("/account/", look);
    expect(await axeViolations(page)).toEqual([]);
    await give(page);
    await page.locator("#plot canvas").waitFor();
    expect(await axeViolations(page)).toEqual([]);
    await page.getByText("As a table").click();
    api.rateLimit.ban = null; // a banned key cannot be rotated
    await page.getByRole("button", { name: "7 days" }).click();
    await page.locator("#ban").waitFor({ state: "hidden" });
    await page.getByRole("button", { name: "Rotate this key" }).click();
    expect(await axeViolations(page)).toEqual([]);
    await page.getByRole("button", { name: "Make the new key" }).click();
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
  await page.locator("#sums tr").first().waitFor({ state: "attached" });
}
