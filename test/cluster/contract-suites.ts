/** Runs the contract suite on a database that a test has started. */
import { resolve } from "node:path";
import { startChild } from "../support/children.ts";

/** `npm run test:cluster` runs the long version: the whole suite, and not only what reads and writes the stock. */
const suites =
  process.env.FAULTS === "long"
    ? ["test/contract"]
    : ["test/contract/list-inventory", "test/contract/update-inventory"];
const root = resolve(import.meta.dirname, "../..");

/** @throws Error with the output of a suite that fails */
export async function runContractSuites(serverUrl: string): Promise<void> {
  const { FAULTS: _, ...others } = process.env;
  const env = { ...others, TEST_MYSQL_URL: serverUrl, TEST_SYSTEMS: "mysql" };
  const run = startChild("npm", ["test", "--", ...suites], { name: "the contract suite", cwd: root, env });
  const code = await run.exited;
  const output = run.output();
  console.info(output.slice(output.lastIndexOf("Test Suites:")));
  if (code !== 0) throw new Error(output);
}
