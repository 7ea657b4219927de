import { rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export type Stack = AsyncDisposableStack;

/**
 * Returns a stack for what a suite opens: `stack.defer(() => server.stop())`. After the tests its steps run in reverse
 * order, each of them even after one that failed. Call it once, first in a `describe`.
 */
export function suiteStack(): Stack {
  const stack = new AsyncDisposableStack();
  afterAll(() => stack.disposeAsync());
  return stack;
}

const lastSteps = new Set<() => void>();
process.on("exit", () => {
  for (const step of [...lastSteps].reverse()) step();
});

/**
 * Runs a synchronous step when this process exits, the latest first.
 *
 * Inside a Jest suite it never runs, since Jest gives suites a copy of `process`. There, servers end by themselves
 * (`children.ts`) and folders go with the folder of the whole run (`global-setup.ts`).
 * @returns a function that takes the step back
 */
export function atExit(step: () => void): () => void {
  lastSteps.add(step);
  return () => lastSteps.delete(step);
}

export interface TemporaryFolder {
  readonly path: string;
  remove(): Promise<void>;
}

/** A new folder that only this user can read. */
export async function temporaryFolder(name: string): Promise<TemporaryFolder> {
  const path = await mkdtemp(join(tmpdir(), `petstore-${name}-`));
  // A server that was killed a moment ago may still be writing, so the removal is retried for a while.
  const options = { recursive: true, force: true, maxRetries: 10, retryDelay: 50 };
  const forget = atExit(() => rmSync(path, options));
  return {
    path,
    remove: async () => {
      await rm(path, options);
      forget();
    },
  };
}
