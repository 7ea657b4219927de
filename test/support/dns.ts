import { createSocket } from "node:dgram";
import { once } from "node:events";
import { isIPv4 } from "node:net";

export interface DnsServer {
  /** `host:port`. */
  readonly address: string;
  /** The IPv4 addresses of every name. */
  addresses: readonly string[];
  close(): Promise<void>;
}

const typeA = 1;
const answerFlags = 0x8180; // a response, recursion available, no error
const pointerToQuestion = 0xc00c;

/** Starts a name server that has the same addresses for every name. Clients must not cache its answers. */
export async function startDnsServer(): Promise<DnsServer> {
  const socket = createSocket("udp4");
  let addresses: readonly string[] = [];
  socket.on("message", (query, sender) => {
    // RFC 1035 section 4.1: a head of 12 bytes, then the name in labels up to an empty one, its type and its class.
    let end = 12;
    while (query[end]! > 0) end += query[end]! + 1;
    const question = query.subarray(12, end + 5);
    const records = query.readUInt16BE(end + 1) === typeA ? addresses.map(record) : [];
    const head = Buffer.from(query.subarray(0, 12));
    head.writeUInt16BE(answerFlags, 2);
    for (const [offset, count] of [
      [4, 1],
      [6, records.length],
      [8, 0],
      [10, 0],
    ] as const)
      head.writeUInt16BE(count, offset);
    socket.send(Buffer.concat([head, question, ...records]), sender.port, sender.address);
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  return {
    address: `127.0.0.1:${socket.address().port}`,
    get addresses() {
      return addresses;
    },
    set addresses(all) {
      if (!all.every(isIPv4)) throw new Error("not all of these are IPv4 addresses");
      addresses = all;
    },
    close: () => new Promise((resolve) => socket.close(() => resolve())),
  };
}

function record(address: string): Buffer {
  const bytes = Buffer.alloc(16);
  bytes.writeUInt16BE(pointerToQuestion, 0);
  bytes.writeUInt16BE(typeA, 2);
  bytes.writeUInt16BE(1, 4); // Internet
  bytes.writeUInt32BE(0, 6); // time to live in seconds
  bytes.writeUInt16BE(4, 10);
  bytes.set(address.split(".").map(Number), 12);
  return bytes;
}
