// Restores the link node_modules/.bin/node. npm runs this after an installation, because npm 9 and 10 remove the link
// together with the binary for the other processor, which has a link of the same name.
import { existsSync, rmSync, symlinkSync } from "node:fs";

const bin = new URL("../../node_modules/.bin/", import.meta.url);
const binary = `../node-linux-${process.arch}/bin/node`;
if (process.platform === "linux" && existsSync(new URL(binary, bin)) && !existsSync(new URL("node", bin))) {
  rmSync(new URL("node", bin), { force: true });
  symlinkSync(binary, new URL("node", bin));
}
