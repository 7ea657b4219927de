import { readFile } from "node:fs/promises";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const grantsIn = (text: string) => [...text.matchAll(/^GRANT .*;$/gm)].map(([line]) => line).sort();

test("the database accounts of Compose get the documented grants and no others", async () => {
  const script = await readFile(join(root, "deploy/compose/accounts.sh"), "utf8");
  const text = await readFile(join(root, "docs/operations/databases.md"), "utf8");
  const byDefault = text.replace(/^-- and only with .*\n.*;$/gm, "");
  expect(grantsIn(script)).toEqual(grantsIn(byDefault));
});
