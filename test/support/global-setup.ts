import { startDatabaseServer } from "./database-server.ts";
import { isOnMysql } from "./mysqld.ts";
import { installMissing } from "./server-programs.ts";
import { temporaryFolder } from "./stack.ts";

/** Closed by the teardown, which Jest runs in the same process. */
export const shared = new AsyncDisposableStack();

/** Starts the database server that all suites share. Jest runs this once, before the suites. */
export default async function setUp(): Promise<void> {
  // Without these, Ctrl-C would end the run without its exit steps: see atExit().
  process.once("SIGINT", () => process.exit(130));
  process.once("SIGTERM", () => process.exit(143));
  // Before the suites run in parallel, as two package installations at once would collide.
  const others = ["redis", "openssl", "balancer", "prometheus", "systemd", "shells"] as const;
  await installMissing(process.env.TEST_MYSQL_URL || isOnMysql ? others : ["database", ...others]);
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
