/** Makes the pictures of the two pages in docs/screenshots, or in a folder that is given (npm run docs:screenshots). */
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import express from "express";
import type { Page } from "playwright-core";
import { smallPicture } from "../observability/png.ts";
import { AccountStub, accountSite } from "../support/account-site.ts";
import { openPage, startChromium } from "../support/chromium.ts";

const looks = (["light", "dark"] as const).flatMap((colorScheme) => [
  { colorScheme, viewport: { width: 1280, height: 900 } },
  { colorScheme, viewport: { width: 390, height: 844 } },
]);

/**
 * What is done on a page before its picture is taken. The account is shown in full, of the documentation the beginning.
 */
const pages: Readonly<Record<string, (page: Page) => Promise<void>>> = {
  docs: async () => {},
  account: async (page) => {
    await page.getByLabel("API key").fill("ps_live_a_key_of_the_shop");
    await page.getByRole("button", { name: "Show the account" }).click();
    await page.locator("#plot canvas").waitFor();
  },
};

const stub = new AccountStub();
const { key } = stub.rateLimit;
Object.assign(key, { id: "key_4ad45618dd2caa5e92df", scopes: ["inventory:read", "inventory:write", "keys:rotate"] });
stub.requestsOf = (hour) => ({
  served: Math.round(260 - 220 * Math.cos((hour - 9) * (Math.PI / 12))),
  refused: hour % 48 === 20 ? 35 : 0,
});
const server = createServer(express().use(accountSite(() => stub))).listen(0, "127.0.0.1");
await once(server, "listening");
const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const browser = await startChromium();
const folder = process.argv[2] ?? join(import.meta.dirname, "../../docs/screenshots");
mkdirSync(folder, { recursive: true });
for (const [name, prepare] of Object.entries(pages)) {
  for (const look of looks) {
    const { page } = await openPage(browser, `${origin}/${name}/`, { ...look, timezoneId: "UTC" });
    await prepare(page);
    const file = `${name}-${look.colorScheme}-${look.viewport.width}.png`;
    await writeFile(join(folder, file), await smallPicture(page, name === "account"));
    await page.close();
  }
}
await browser.close();
server.close();
server.closeAllConnections();
