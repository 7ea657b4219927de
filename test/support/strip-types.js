// Jest's transform: the type stripping of `node file.ts`, so that tests run what production runs.
import { createHash } from "node:crypto";
import { stripTypeScriptTypes } from "node:module";

export default {
  process: (source, path) => ({ code: stripTypeScriptTypes(source, { mode: "strip", sourceUrl: path }) }),
  getCacheKey: (source, path) => createHash("sha256").update(process.version).update(path).update(source).digest("hex"),
};
