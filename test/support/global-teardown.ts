import { shared } from "./global-setup.ts";

/** Stops what the setup started. Jest runs this once, after the suites, whether they passed or failed. */
export default async function tearDown(): Promise<void> {
  await shared.disposeAsync();
}
