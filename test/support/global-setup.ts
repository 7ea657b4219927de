import { temporaryFolder } from "./cleanup.ts";
import { startDatabaseServer } from "./database-server.ts";
import { installMissing } from "./server-programs.ts";

/** What teardown ends. Jest runs both in one process. */
export const shared = new AsyncDisposableStack();

/** Jest runs this once, before the suites: it brings up the database server that all of them share. */
export default async function setUp(): Promise<void> {
  // Without these, Ctrl-C would end the run with no exit step: see atExit().
  process.once("SIGINT", () => process.exit(130));
  process.once("SIGTERM", () => process.exit(143));
  // Before the suites run in parallel: two package installations at once would get into each other's way.
  const others = ["redis", "openssl", "balancer", "prometheus"] as const;
  await installMissing(process.env.TEST_MYSQL_URL ? others : ["database", ...others]);
  try {
    // Everything that suites leave in temporary folders, even when they are killed, goes with the folder of the run.
    const folder = await temporaryFolder("tests");
    shared.defer(() => folder.remove());
    process.env.TMPDIR = folder.path;
    const server = await startDatabaseServer();
    shared.defer(() => server.stop());
    process.env.TEST_MYSQL_SERVER_URL = server.url("");
  } catch (error) {
    await shared.disposeAsync(); // Jest runs no teardown after a failed setup
    throw error;
  }
}
