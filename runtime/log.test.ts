import { createLogger } from "./log.ts";
import type { LogOutput } from "./log-output.ts";
import { OperatorError } from "./operator-error.ts";

test.each([
  [
    "an operator's error has no stack, because its message explains it",
    new OperatorError("A: is away"),
    "error",
    false,
  ],
  ["an operator's error has its stack at the level debug", new OperatorError("A: is away"), "debug", true],
  ["a bug has its stack, which shows where it is", new Error("A: is away"), "error", true],
] as const)("in the log %s", (_what, err, level, hasStack) => {
  const lines: string[] = [];
  const output = { write: (line: string) => void lines.push(line) } as LogOutput;
  createLogger("test", level, output).error({ err }, "failed");
  expect(JSON.parse(lines[0]!).err.message).toBe("A: is away");
  expect("stack" in JSON.parse(lines[0]!).err).toBe(hasStack);
});
