/** Jest runs the sources as Node does: types are stripped, nothing is compiled. */
const shared = {
  testEnvironment: "node",
  extensionsToTreatAsEsm: [".ts"],
  transform: { "\\.ts$": "<rootDir>/test/support/strip-types.js" },
  modulePathIgnorePatterns: ["<rootDir>/dist/"],
};

export default {
  // Most suites start processes of their own, which with more workers only wait for each other.
  // The long faults take turns, because the first list of a million entries has a deadline.
  maxWorkers: process.env.FAULTS === "long" ? 1 : 2,
  testTimeout: 60_000,
  projects: [
    {
      ...shared,
      displayName: "unit",
      testMatch: ["<rootDir>/{proto,runtime,client,gateway,inventory-svc,deploy}/**/*.test.ts"],
    },
    {
      ...shared,
      displayName: "system",
      testMatch: ["<rootDir>/test/**/*.test.ts"],
      globalSetup: "<rootDir>/test/support/global-setup.ts",
      globalTeardown: "<rootDir>/test/support/global-teardown.ts",
    },
  ],
};
