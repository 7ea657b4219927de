// Run by npm after an installation. npm 9 and 10 remove node_modules/.bin/node again, together with the binary for the
// other processor, which has a link of the same name. This puts it back.
import { existsSync, rmSync, symlinkSync } from "node:fs";

const bin = new URL("../../node_modules/.bin/", import.meta.url);
const binary = `../node-linux-${process.arch}/bin/node`;
if (process.platform === "linux" && existsSync(new URL(binary, bin)) && !existsSync(new URL("node", bin))) {
  rmSync(new URL("node", bin), { force: true });
  symlinkSync(binary, new URL("node", bin));
}
