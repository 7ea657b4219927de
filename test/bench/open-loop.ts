// Sends GET /v1/inventory at a steady rate, whether or not earlier requests are answered.
// It takes an OpenLoop as JSON in its argument and prints Arrivals as JSON. As a process it has a core to itself.
import { execFile } from "node:child_process";
import { connect, type Socket } from "node:net";
import { promisify } from "node:util";

export interface OpenLoop {
  /** Of the gateways, which get equal shares. */
  readonly ports: readonly number[];
  readonly headers: Readonly<Record<string, string>>;
  readonly perSecond: number;
  readonly seconds: number;
  readonly connections: number;
  /** An answer that comes later than this after its request was due counts as bad. */
  readonly boundMs: number;
}

export interface Arrivals {
  readonly offered: number;
  /** 200 or 304 within the bound. */
  readonly good: number;
  readonly refused: number;
  /** 200 or 304 too late, other statuses, connections lost, and requests that had no answer at the end. */
  readonly bad: number;
  /** Latency of the requests that got 200 or 304, from when they were due. */
  readonly p50Ms: number;
  readonly p99Ms: number;
}

interface Connection {
  readonly socket: Socket;
  dueMs: number;
  status: number;
  /** Bytes of the response that are still to come; -1 before its head. */
  left: number;
}

/** Runs a load in a process of its own. */
export async function offer(load: OpenLoop): Promise<Arrivals> {
  const { stdout } = await promisify(execFile)(process.execPath, [import.meta.filename, JSON.stringify(load)]);
  return JSON.parse(stdout);
}

if (import.meta.main) console.log(JSON.stringify(await run(JSON.parse(process.argv[2]!))));

async function run({ ports, headers, perSecond, seconds, connections, boundMs }: OpenLoop): Promise<Arrivals> {
  const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const request = `GET /v1/inventory HTTP/1.1\r\nHost: bench\r\n${fields.join("")}\r\n`;
  const free: Connection[] = [];
  const due: number[] = [];
  const latencies: number[] = [];
  let [offered, good, refused] = [0, 0, 0];

  const send = (connection: Connection, dueMs: number) => {
    connection.dueMs = dueMs;
    connection.left = -1;
    connection.socket.write(request);
  };
  const answered = (connection: Connection) => {
    const latencyMs = performance.now() - connection.dueMs;
    const isAnswered = connection.status === 200 || connection.status === 304;
    if (connection.status === 503) refused += 1;
    if (isAnswered) latencies.push(latencyMs);
    if (isAnswered && latencyMs <= boundMs) good += 1;
    const next = due.shift();
    if (next === undefined) free.push(connection);
    else send(connection, next);
  };
  const take = (connection: Connection, length: number, buffer: Buffer) => {
    if (connection.left < 0) {
      // The gateway writes the head together with the beginning of the body.
      const head = buffer.toString("latin1", 0, Math.min(length, 2_048));
      const body = head.indexOf("\r\n\r\n") + 4;
      connection.status = Number(head.slice(9, 12));
      connection.left = body + Number(/\r\nContent-Length: (\d+)/.exec(head)?.[1] ?? 0); // 304 has none
    }
    connection.left -= length;
    if (connection.left === 0) answered(connection);
  };
  const buffer = Buffer.alloc(256 * 1024); // shared by all connections: each piece is handled before the next is read
  await Promise.all(
    Array.from({ length: connections }, async (_, i) => {
      const socket = connect({
        host: "127.0.0.1",
        port: ports[i % ports.length]!,
        onread: {
          buffer,
          callback: (length) => {
            take(connection, length, buffer);
            return true;
          },
        },
      });
      const connection: Connection = { socket, dueMs: 0, status: 0, left: 0 };
      await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
      socket.on("error", () => {}); // counted as bad, as no answer comes
      free.push(connection);
    }),
  );

  const startMs = performance.now();
  await new Promise<void>((resolve) => {
    const timer = setInterval(() => {
      const nowMs = performance.now();
      const until = Math.min(seconds, (nowMs - startMs) / 1_000) * perSecond;
      for (; offered < until; offered++) {
        const connection = free.shift();
        const dueMs = startMs + (offered / perSecond) * 1_000;
        if (connection) send(connection, dueMs);
        else due.push(dueMs);
      }
      if (nowMs - startMs < (seconds + 1) * 1_000) return;
      clearInterval(timer);
      resolve();
    }, 1);
  });
  setImmediate(() => process.exit(0));
  latencies.sort((a, b) => a - b);
  const at = (share: number) => latencies[Math.floor(latencies.length * share)] ?? Number.NaN;
  return { offered, good, refused, bad: offered - good - refused, p50Ms: at(0.5), p99Ms: at(0.99) };
}
