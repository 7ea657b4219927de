// Adds the missing entries of other platforms to package-lock.json. Run it after every change of a dependency:
// node .ci/complete-lock.mjs
//
// A registry that mirrors only some platforms makes npm leave out the optional packages of the others. Then `npm ci`
// rejects the lock ("Missing: @biomejs/cli-darwin-arm64@ from lock file").
import { readFileSync, writeFileSync } from "node:fs";

const lockFile = new URL("../package-lock.json", import.meta.url);
const lock = JSON.parse(readFileSync(lockFile, "utf8"));
const systems = ["android", "darwin", "freebsd", "linux", "openharmony", "win32"];
const processors = {
  arm64: "arm64",
  x64: "x64",
  ia32: "ia32",
  ppc64: "ppc64",
  riscv64: "riscv64",
  loong64: "loong64",
  s390x: "s390x",
  arm: "arm",
  armv7: "arm",
};

for (const [path, parent] of Object.entries(lock.packages)) {
  for (const [name, version] of Object.entries(parent.optionalDependencies ?? {})) {
    const entry = `node_modules/${name}`;
    if (path === "" || lock.packages[entry] || lock.packages[`${path}/${entry}`]) continue;
    const words = name.split("/").at(-1).split("-");
    const os = systems.filter((system) => words.includes(system));
    const cpu = words.flatMap((word) => processors[word] ?? []);
    if (os.length === 0) continue;
    lock.packages[entry] = {
      version,
      ...(cpu.length > 0 && { cpu }),
      ...(parent.dev && { dev: true }),
      optional: true,
      os,
    };
  }
}
lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(lockFile, `${JSON.stringify(lock, null, 2)}\n`);
