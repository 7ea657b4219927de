import { Command, InvalidArgumentError } from "commander";
import { exitUsage } from "../../runtime/command-line.ts";

/** Makes a command for developers, `npm run NAME`, which refuses wrong arguments as the product's commands do. */
export function createTool(name: string, description: string): Command {
  return new Command(`npm run ${name} --`)
    .description(description)
    .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : exitUsage)); // it has said why
}

/** Reads a whole number of an argument. @throws InvalidArgumentError */
export function count(text: string): number {
  if (!/^[1-9]\d{0,7}$/.test(text)) throw new InvalidArgumentError("must be a whole number from 1 to 99999999.");
  return Number(text);
}
