import { resolve } from "node:path";
import { startChild } from "../support/children.ts";
import { startGalera } from "./galera.ts";
import { startGroupReplication } from "./group-replication.ts";
import { startSemiSynchronousPair } from "./semi-synchronous.ts";
import { startWriterSwitch } from "./writer-switch.ts";

/** `npm run test:cluster` runs the long version: the whole suite, and not only what reads and writes the stock. */
const suites =
  process.env.FAULTS === "long"
    ? ["test/contract"]
    : ["test/contract/list-inventory", "test/contract/update-inventory"];
const root = resolve(import.meta.dirname, "../..");

test.each([
  ["Group Replication", startGroupReplication],
  ["Galera", startGalera],
  ["a semi-synchronous pair", startSemiSynchronousPair],
])(
  "the contract suite passes on %s",
  async (_what, start) => {
    await using stack = new AsyncDisposableStack();
    const cluster = await start(stack);
    const { serverUrl } = await startWriterSwitch(stack, cluster);
    const { FAULTS: _, ...others } = process.env;
    const env = { ...others, TEST_MYSQL_URL: serverUrl, TEST_SYSTEMS: "mysql" };
    const run = startChild("npm", ["test", "--", ...suites], { name: "the contract suite", cwd: root, env });
    const code = await run.exited;
    const output = run.output();
    console.info(output.slice(output.lastIndexOf("Test Suites:")));
    if (code !== 0) throw new Error(output);
    const status = cluster.nodes.map((node) =>
      node.query<{ Value: string }>("SHOW GLOBAL STATUS LIKE 'Com_create_db'"),
    );
    const databases = (await Promise.all(status)).map(([row]) => Number(row?.Value));
    expect(Math.max(...databases)).toBeGreaterThan(1); // the suite was there
  },
  600_000,
);
