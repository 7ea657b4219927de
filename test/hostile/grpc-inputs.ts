/** What nobody should send to the gRPC port: messages, framing, headers, and bytes that are no HTTP/2. */
import { type ClientHttp2Session, connect as connectHttp2, constants } from "node:http2";
import { connect } from "node:net";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { Random } from "../simulation/random.ts";
import { damage } from "./http-grammar.ts";

const methods = Object.values(InventoryServiceService).map(({ path }) => path);
const otherPaths = ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/x/y", "/"];
const timeouts = ["1S", "5S", "500m", "0S", "-1S", "99999999H", "1"];
const texts = ["", "r1", "a".repeat(64), "a".repeat(65), "\0", "ä", "__proto__", "4f2c9a01", "a b"];
const numbers = [
  0n,
  1n,
  2n,
  3n,
  99n,
  100n,
  2n ** 31n - 1n,
  2n ** 31n,
  2n ** 53n,
  2n ** 63n - 1n,
  2n ** 63n,
  2n ** 64n - 1n,
];
const patienceMs = 20_000;

/** Statuses that blame the service: an input must not cause them, but for what is no message at all. */
const faultsOfService = new Set(["2", "13", "15"]);
const noMessage = /^(Error deserializing request|Invalid grpc-timeout|Failed to decompress)/;

export interface GrpcAnswer {
  /** The gRPC status, or how the call ended without one. */
  readonly outcome: string;
  readonly fault: string | undefined;
  /** How many were sent. */
  readonly bytes: number;
}

/** A client that sends one input after the other, on connections that the service may end. */
export function grpcClient(address: string): { send(seed: number): Promise<GrpcAnswer>; close(): void } {
  let session: ClientHttp2Session | undefined;
  const open = () => {
    if (session === undefined || session.closed || session.destroyed) {
      session = connectHttp2(`http://${address}`).on("error", () => {});
    }
    return session;
  };
  return {
    send: (seed) => {
      const random = new Random(seed);
      return random.chance(0.1) ? sendBytes(address, rawBytes(random)) : call(open(), random);
    },
    close: () => session?.destroy(),
  };
}

function call(session: ClientHttp2Session, random: Random): Promise<GrpcAnswer> {
  const path = random.chance(0.9) ? random.pick(methods) : random.pick(otherPaths);
  const headers: Record<string, string> = {
    ":method": random.chance(0.97) ? "POST" : "GET",
    ":path": random.chance(0.98) ? path : damage(Buffer.from(path), random).toString("base64"),
    "content-type": random.chance(0.97) ? "application/grpc" : random.pick(["text/plain", "application/grpc+json"]),
    te: "trailers",
    "grpc-timeout": random.pick(timeouts),
  };
  if (random.chance(0.1)) headers["grpc-encoding"] = random.pick(["gzip", "identity", "x"]);
  if (random.chance(0.1)) headers["x-request-id"] = random.pick(["mine", "a".repeat(500)]);
  if (random.chance(0.1)) headers["x-bin"] = random.pick(["AAAA", "%%%"]);
  const body = Buffer.concat(Array.from({ length: random.chance(0.9) ? 1 : random.below(4) }, () => framed(random)));
  const bytes = random.chance(0.15) ? damage(body, random) : body;
  const leavesEarly = random.chance(0.03);
  return new Promise((resolve) => {
    const stream = session.request(headers);
    const end = (outcome: string, fault?: string) => {
      clearTimeout(timer);
      stream.close(constants.NGHTTP2_CANCEL);
      resolve({
        outcome,
        bytes: bytes.length,
        fault: fault && `${path} ${bytes.toString("hex").slice(0, 400)}: ${fault}`,
      });
    };
    const timer = setTimeout(() => end("none", "no answer"), patienceMs);
    const judge = (answer: Record<string, unknown>) => {
      if (answer["grpc-status"] === undefined) return;
      const [status, message] = [
        String(answer["grpc-status"]),
        decodeURIComponent(String(answer["grpc-message"] ?? "")),
      ];
      end(status, faultsOfService.has(status) && !noMessage.test(message) ? `${status} ${message}` : undefined);
    };
    stream.on("response", judge).on("trailers", judge);
    stream.on("data", () => path.includes("Watch") && end("watch"));
    stream.on("error", () => {});
    stream.on("close", () => end(`reset ${stream.rstCode}`));
    stream.end(bytes);
    if (path.includes("Watch") || leavesEarly) setTimeout(() => end("left"), random.below(50));
  });
}

/** A message in its frame, whose head may lie. */
function framed(random: Random): Buffer {
  const bytes = message(random, 0);
  const head = Buffer.alloc(5);
  head[0] = random.chance(0.97) ? 0 : random.below(3);
  head.writeUInt32BE(random.chance(0.97) ? bytes.length : random.pick([0, bytes.length + 1, 2 ** 24, 2 ** 32 - 1]), 1);
  return Buffer.concat([head, bytes]);
}

function varint(value: bigint): number[] {
  return value < 128n ? [Number(value)] : [Number(value & 127n) | 128, ...varint(value >> 7n)];
}

/** Fields with the numbers of the contract, seldom of the right type everywhere. */
function message(random: Random, depth: number): Buffer {
  const fields: Buffer[] = [];
  const field = (number: number, type: number, bytes: Iterable<number>) =>
    fields.push(Buffer.from([...varint(BigInt(number * 8 + type)), ...bytes]));
  const sized = (number: number, bytes: Buffer) => field(number, 2, [...varint(BigInt(bytes.length)), ...bytes]);
  for (let number = 1; number < 9; number++) {
    if (random.chance(0.4)) continue;
    const kind = random.weighted({ number: 8, text: 4, message: depth < 3 ? 4 : 0, list: 1, fixed: 0.3, odd: 0.2 });
    if (kind === "number") field(number, 0, varint(random.pick(random.chance(0.7) ? numbers.slice(0, 6) : numbers)));
    else if (kind === "text") sized(number, Buffer.from(random.pick(texts)));
    else if (kind === "message") {
      for (let left = random.below(3); left > 0; left--) sized(number, message(random, depth + 1));
    } else if (kind === "list") {
      sized(number, Buffer.from(Array.from({ length: random.below(2_000) }, (_, i) => varint(BigInt(i))).flat()));
    } else if (kind === "fixed") field(number, random.pick([1, 5]), Buffer.alloc(8, 255));
    else field(random.pick([0, 1, 2 ** 20]), random.below(8), [255]);
  }
  return random.chance(0.05) ? damage(Buffer.concat(fields), random) : Buffer.concat(fields);
}

/** HTTP/2 as bytes: a preface, settings, the head of a call and its message, all of which may be damaged. */
function rawBytes(random: Random): Buffer {
  const frame = (type: number, flags: number, stream: number, payload: Buffer) => {
    const head = Buffer.alloc(9);
    head.writeUIntBE(payload.length, 0, 3);
    head[3] = type;
    head[4] = flags;
    head.writeUInt32BE(stream, 5);
    return Buffer.concat([head, payload]);
  };
  const text = (value: string) => Buffer.concat([Buffer.from([value.length]), Buffer.from(value)]);
  const head = (path: string) => {
    const type = [Buffer.from([0x0f, 0x10]), text("application/grpc")];
    return Buffer.concat([Buffer.from([0x83, 0x86, 0x04]), text(path), Buffer.from([0x01]), text("g"), ...type]);
  };
  const frames = [frame(4, 0, 0, Buffer.alloc(0))];
  for (let stream = 1; stream < 2 + random.below(20); stream += 2) {
    frames.push(frame(1, 4, stream, head(random.pick(methods))), frame(0, 1, stream, framed(random)));
    if (random.chance(0.2)) frames.push(frame(3, 0, stream, Buffer.alloc(4)));
    if (random.chance(0.2))
      frames.push(frame(random.below(12), random.below(256), random.below(9), message(random, 3)));
  }
  const bytes = Buffer.concat([Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ...frames]);
  return random.chance(0.8) ? damage(bytes, random) : bytes;
}

/** Nothing is promised to who speaks no HTTP/2, so only the end of its connection is waited for. */
function sendBytes(address: string, bytes: Buffer): Promise<GrpcAnswer> {
  const { hostname, port } = new URL(`http://${address}`);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname).on("error", () => {});
    socket.resume().setTimeout(200, () => socket.destroy());
    socket.once("close", () => resolve({ outcome: "bytes", bytes: bytes.length, fault: undefined }));
    socket.end(bytes);
  });
}
