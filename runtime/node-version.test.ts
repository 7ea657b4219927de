import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Loads the check in a process that says that it is this version. */
function load(version: string) {
  const versions = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } });`;
  return run(process.execPath, ["-e", `${versions} import("./runtime/node-version.ts")`]);
}

test.each(["20.20.2", "24.9.0", "24.18.0"])(
  "Node %s is refused, which misreads too many header lines",
  async (version) => {
    await expect(load(version)).rejects.toThrow("petstore-inventory needs Node 24.18.1 or later");
  },
);

test.each(["24.18.1", "24.100.0", "26.5.1"])("Node %s is new enough", async (version) => {
  await expect(load(version)).resolves.toMatchObject({ stderr: "" });
});
