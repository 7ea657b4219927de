import { type ProcessOptions, type RunningProcess, startProcess } from "./processes.ts";
import type { System } from "./system.ts";

/** A process that can be killed and started again on the same addresses. */
export interface Restartable {
  readonly current: RunningProcess;
  /** Starts it again, when it has ended. */
  start(): Promise<void>;
  /** Ends it with SIGKILL and starts it again. */
  crash(): Promise<void>;
}

/** Starts a process, which the stack ends. Its addresses must be in its environment. */
export async function startRestartable(stack: AsyncDisposableStack, options: ProcessOptions): Promise<Restartable> {
  let current = await startProcess(options);
  stack.defer(async () => void (await current.stop()));
  return restartable(
    () => current,
    async () => {
      current = await startProcess(options);
    },
  );
}

/** The first inventory service of a system, which the system ends. */
export function firstService(system: System): Restartable {
  return restartable(
    () => system.inventory,
    async () => void (await system.restartInventory()),
  );
}

function restartable(current: () => RunningProcess, start: () => Promise<void>): Restartable {
  return {
    get current() {
      return current();
    },
    start,
    crash: async () => {
      await current().kill("SIGKILL");
      await start();
    },
  };
}
