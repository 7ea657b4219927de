import { request } from "node:http";

/** Asks Podman's HTTP API. @returns the body, whatever the status */
export function askPodman(socket: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath: socket, path: `/v4.0.0/libpod/${path}` }, async (response) => {
      let text = "";
      for await (const part of response) text += part;
      resolve(text);
    });
    asked.on("error", reject);
    asked.end();
  });
}

/**
 * Runs the health checks of Podman's containers, until the stack ends. Podman leaves that to systemd, which a machine
 * of tests may not have; Docker's engine does it by itself.
 */
export function followHealth(stack: AsyncDisposableStack, socket: string): void {
  const checkAll = async () => {
    const containers: { Id: string }[] = JSON.parse((await askPodman(socket, "containers/json")) || "null") ?? [];
    // One after another: each is a process in a container.
    for (const { Id } of containers) await askPodman(socket, `containers/${Id}/healthcheck`);
  };
  const stop = new AbortController();
  const loop = async () => {
    while (!stop.signal.aborted) {
      await checkAll().catch(() => {}); // a container may end meanwhile
      await pause(2_000, stop.signal);
    }
  };
  const ended = loop();
  stack.defer(async () => {
    stop.abort();
    await ended;
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}
