/** Jest runs the sources as Node does: types are stripped, nothing is compiled. */
const shared = {
  testEnvironment: process.env.STOP_AT_FAILURE ? "<rootDir>/test/mutants/stop-at-failure.js" : "node",
  extensionsToTreatAsEsm: [".ts"],
  transform: { "\\.ts$": "<rootDir>/test/support/strip-types.js" },
  modulePathIgnorePatterns: ["<rootDir>/dist/"],
};

// These take minutes, so they run only where their folder is named.
const besideOthers = ["test/e2e"];
// The faults take turns, because the first list of a million entries has a deadline. So do database clusters,
// of three servers each, containers, which share one store of images, and Kubernetes, which takes both processors.
const inTurns = ["test/cluster", "test/containers", "test/faults", "test/kubernetes", "test/prove", "test/versions"];
const isNamed = (folder) => process.argv.slice(2).some((argument) => argument.includes(folder));

export default {
  // Most suites start processes of their own, which with more workers only wait for each other.
  maxWorkers: process.env.FAULTS === "long" || inTurns.some(isNamed) ? 1 : 2,
  testTimeout: 60_000,
  projects: [
    {
      ...shared,
      displayName: "unit",
      testMatch: ["<rootDir>/{proto,runtime,client,rest-client,gateway,inventory-svc,deploy}/**/*.test.ts"],
    },
    {
      ...shared,
      displayName: "system",
      testMatch: ["<rootDir>/test/**/*.test.ts"],
      testPathIgnorePatterns: [
        "/node_modules/",
        ...[...besideOthers, ...inTurns].filter((folder) => !isNamed(folder)).map((folder) => `<rootDir>/${folder}/`),
      ],
      globalSetup: "<rootDir>/test/support/global-setup.ts",
      globalTeardown: "<rootDir>/test/support/global-teardown.ts",
    },
  ],
};
