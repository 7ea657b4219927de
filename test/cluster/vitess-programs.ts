/** The program of Vitess that holds all of its parts, built from its Go module. */
import { buildPrograms, goPrograms } from "../support/go-programs.ts";

const vitess = "0.24.4";

const programs = await goPrograms(`vitess-${vitess}`, "test:cluster", (folder) =>
  buildPrograms(folder, { module: "vitess.io/vitess", version: `v${vitess}`, packages: ["go/cmd/vtcombo"] }),
);

export const { missing, folder: vitessPrograms } = programs;
