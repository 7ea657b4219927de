// States of both pages that a visitor meets by keyboard, or when a part of the API fails.
import express from "express";
import type { Browser, Locator, Page } from "playwright-core";
import { AccountStub, accountSite, serveSite } from "../support/account-site.ts";
import { installTimeoutMs, openPage, startChromium } from "../support/chromium.ts";
import { suiteStack } from "../support/stack.ts";

const stack = suiteStack();
let origin: string;
let browser: Browser;
let api: AccountStub;

beforeAll(async () => {
  origin = await serveSite(express().use(accountSite(() => api)), stack);
  browser = await startChromium();
  stack.defer(() => browser.close());
}, installTimeoutMs);

beforeEach(() => {
  api = new AccountStub();
});

test("after a link to a part of the documentation Tab goes on in that part", async () => {
  const { page } = await openPage(browser, `${origin}/docs/#getUsage`);
  const marked = page.locator("#contents [aria-current=true]");
  await marked.and(page.locator("[href='#getUsage']")).waitFor();
  await page.keyboard.press("Tab");
  expect(await page.evaluate("document.activeElement.closest('article')?.querySelector('h2, h3').id")).toBe("getUsage");
});

test("a form stays where it is clicked, when it opens and when it closes", async () => {
  const { page } = await openPage(browser, `${origin}/docs/`, { viewport: { width: 1280, height: 900 } });
  const article = page.locator("article:has(#updateInventory)");
  await article.locator(".answer").first().scrollIntoViewIfNeeded();
  const summary = article.locator(".try > summary");
  const { y } = (await summary.boundingBox())!;
  for (const isOpen of [true, false]) {
    await summary.click();
    await page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))");
    expect([isOpen, Math.abs((await summary.boundingBox())!.y - y) < 2]).toEqual([isOpen, true]);
  }
});

test("a search finds the members of an answer, and copying is said to those who listen", async () => {
  const { page } = await openPage(browser, `${origin}/docs/`);
  await page.getByLabel("Search the documentation").fill("previousKeyEndsAt");
  expect(await page.locator("#found a").getAttribute("href")).toBe("#rotateKey");
  await page.getByRole("button", { name: "Copy: The first request" }).click();
  await page
    .getByRole("status")
    .getByText(/^(Copied|Selected)$/)
    .waitFor();
});

test("where the API tells limits but no requests, the account page says what is missing", async () => {
  const { page } = await openPage(browser, `${origin}/account/`);
  await page.route(/\/usage/, (route) => route.fulfill({ status: 503, json: { message: "The API is overloaded." } }));
  await giveKey(page);
  await page.getByText("The requests cannot be shown at the moment").waitFor();
  expect(await page.locator("#status").textContent()).toBe("");
  expect(await page.locator("#deprecated").locator("..").textContent()).toBe("Requests: –");
  expect(await page.locator("[data-window=minute] .used").textContent()).toBe("12 of 300 used, 288 left.");
});

test("a key that is refused leads to what to do, and a new key cannot be forgotten unseen", async () => {
  const { page } = await openPage(browser, `${origin}/account/`);
  api.refusal = { status: 401, code: "invalid_api_key", message: "The API key is not valid." };
  await giveKey(page);
  const help = page.getByRole("alert").getByRole("link", { name: "What to do" });
  expect(await help.getAttribute("href")).toBe("../docs/#invalid_api_key");
  api.refusal = undefined;
  await giveKey(page);
  await page.getByRole("button", { name: "Rotate this key" }).click();
  await page.getByRole("button", { name: "Make the new key" }).click();
  const stored = page.getByRole("button", { name: "I have stored it" });
  await stored.waitFor();
  const forget = page.getByRole("button", { name: "Forget the key" });
  expect(await forget.isVisible()).toBe(false);

  api.refusal = { status: 401, code: "invalid_api_key", message: "The API key is not valid." }; // the old one ended
  await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
  await help.waitFor();
  expect(await page.locator("#new-key").textContent()).toBe("ps_test_new_key_1");
  api.refusal = undefined;
  await stored.click();
  await forget.waitFor();
});

test("a request from the page that is refused says when to send it again", async () => {
  const { page } = await openPage(browser, `${origin}/docs/`);
  const headers = { "Retry-After": "39" };
  const json = { code: "rate_limit_exceeded", message: "The rate limit is exceeded.", status: 429 };
  await page.route(/\/inventory$/, (route) => route.fulfill({ status: 429, headers, json }));
  await giveKey(page);
  const form = await sendList(page);
  await form.getByText(/^429 .*Send again in 39 s/).waitFor();
});

test("a key that the page finds not valid is forgotten, and the page asks for another one", async () => {
  const { page } = await openPage(browser, `${origin}/docs/`);
  const json = { code: "invalid_api_key", message: "The API key is not valid.", status: 401 };
  await page.route(/\/inventory$/, (route) => route.fulfill({ status: 401, json }));
  await giveKey(page);
  await sendList(page);
  await page.getByText("Key …_key is not valid: enter another one").waitFor();
  expect(await page.getByLabel("API key").isVisible()).toBe(true);
  expect(await page.evaluate("Object.values(sessionStorage)")).toEqual([]);
});

test("a late answer to a key that is not valid loses no key that was entered meanwhile", async () => {
  const { page } = await openPage(browser, `${origin}/docs/`);
  const json = { code: "invalid_api_key", message: "The API key is not valid.", status: 401 };
  const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<void>();
  await page.route(/\/inventory$/, async (route) => {
    await mayAnswer;
    await route.fulfill({ status: 401, json });
  });
  await giveKey(page);
  const form = await sendList(page);
  await page.getByRole("button", { name: "Forget" }).click();
  await page.getByLabel("API key").fill("ps_test_other_key");
  await page.keyboard.press("Enter");
  answer();
  await form.getByText(/^401 /).waitFor();
  expect(await page.evaluate("Object.values(sessionStorage)")).toEqual(["ps_test_other_key"]);
});

test("the dialog of a rotation stays until the new key has come", async () => {
  const { page } = await openPage(browser, `${origin}/account/`);
  const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<void>();
  await page.route(/\/keys\/rotate$/, async (route) => {
    await mayAnswer;
    await route.continue();
  });
  await giveKey(page);
  await page.getByRole("button", { name: "Rotate this key" }).click();
  await page.getByRole("button", { name: "Make the new key" }).click();
  const busy = page.getByRole("button", { name: "Making the new key…" });
  await busy.waitFor();
  expect(await busy.isDisabled()).toBe(true);
  await page.clock.install();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Rotate this key" }).click();
  await page.clock.runFor(700); // a dialog that has just opened waits for the end of a double click
  expect(await busy.isDisabled()).toBe(true);
  answer();
  await page.getByRole("button", { name: "I have stored it" }).waitFor();
  expect(await page.getByRole("dialog").count()).toBe(0);
});

/** Asks for the list from the documentation page. @returns the form, which shows the answer */
async function sendList(page: Page): Promise<Locator> {
  const form = page.locator("form[data-method=GET][data-path='/inventory']");
  await page.locator("details.try").filter({ has: form }).locator("> summary").click();
  await form.getByRole("button", { name: "Send" }).click();
  return form;
}

async function giveKey(page: Page): Promise<void> {
  await page.getByLabel("API key").fill("ps_test_account_key");
  await page.keyboard.press("Enter");
}
