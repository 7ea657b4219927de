import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { Router } from "express";
import { startPublicServer } from "../../test/support/public-server.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { until } from "../../test/support/until.ts";

const stack = suiteStack();
const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: g\r\n\r\n`;

/** Starts a server that answers each request at once, and notes which it was and in which turn of the event loop. */
async function start({ maxConnections = 100, isProxy = true, onClose = (_url: string, _socket: Socket) => {} } = {}) {
  const requests: { readonly url: string; readonly turn: number }[] = [];
  let turn = 0;
  let counting = setImmediate(function count() {
    turn += 1;
    counting = setImmediate(count);
  });
  stack.defer(() => clearImmediate(counting));
  const { server, port } = await startPublicServer(stack, {
    router: Router().use(({ url, socket }, response) => {
      response.on("close", () => onClose(url, socket));
      requests.push({ url, turn });
      response.end(url);
    }),
    maxConnections,
    isProxy: () => isProxy,
    keepAliveTimeoutMs: 600_000,
  });
  return {
    requests,
    /** Opens a client, and waits for the server's side of its connection. */
    open: async (from = "127.0.0.1") => {
      const socket = connect({ port, host: "127.0.0.1", localAddress: from }).on("error", () => {});
      stack.defer(() => void socket.destroy());
      let received = "";
      socket.on("data", (chunk) => {
        received += chunk;
      });
      const [accepted] = (await once(server, "connection")) as [Socket];
      return {
        socket,
        accepted,
        received: () => received,
        answers: () => received.match(/HTTP\/1.1 \d+/g)?.length ?? 0,
      };
    },
  };
}

test("requests that wait behind one are answered in a turn of the event loop each", async () => {
  const { requests, open } = await start();
  const { socket, answers } = await open();
  socket.write(get("/").repeat(200));
  await until(() => answers() === 200);
  expect(new Set(requests.map(({ turn }) => turn)).size).toBe(200);
});

test("what arrives while requests wait for their turn is answered after them, and before the end", async () => {
  const { requests, open } = await start({
    onClose: (url, socket) => {
      if (url !== "/1") return;
      socket.push(get("/3")); // now the second one waits for its turn
      socket.push(null);
    },
  });
  const { socket, answers } = await open();
  socket.write(get("/1") + get("/2"));
  await once(socket, "end");
  expect(requests.map(({ url }) => url)).toEqual(["/1", "/2", "/3"]);
  expect(answers()).toBe(3);
});

const head = `GET /whole HTTP/1.1\r\nHost: g\r\nX: ${"v".repeat(14_000)}\r\n`;
const room = 32 * 1024 * 1024;
const roomOfHead = head.length - 4 * 1024;

test("heads that have not ended take no more than their room, and give it back", async () => {
  const most = Math.floor(room / roomOfHead) - 1; // the last connection has half of what the others have left
  const { requests, open } = await start({ maxConnections: most + 100 });
  const clients: Awaited<ReturnType<typeof open>>[] = [];
  const bring = async (count: number) => {
    for (const end = clients.length + count; clients.length < end; ) {
      const client = await open();
      client.socket.write(head);
      clients.push(client);
    }
    await until(() => clients.every(({ accepted }) => accepted.destroyed || accepted.bytesRead === head.length));
  };
  await bring(most);
  expect(clients.filter(({ accepted }) => accepted.destroyed)).toHaveLength(0);
  await bring(20);
  expect(clients.map(({ accepted }) => accepted.destroyed)).toEqual([
    ...Array(most).fill(false),
    ...Array(20).fill(true),
  ]);

  const whole = await open();
  whole.socket.write(`${head}\r\n`);
  const inTwo = await open();
  inTwo.socket.write("GET /two HTTP/1.1\r\n");
  await until(() => inTwo.accepted.bytesRead > 0);
  inTwo.socket.write("Host: g\r\n\r\n");
  clients[0]!.socket.write("\r\n");
  await until(() => [whole, inTwo, clients[0]!].every((client) => client.answers() === 1));
  expect(requests).toHaveLength(3);
  clients[1]!.socket.destroy();
  await once(clients[1]!.accepted, "close");
  clients.length = 0;
  await bring(3);
  expect(clients.map(({ accepted }) => accepted.destroyed)).toEqual([false, false, true]);
}, 120_000);

test("a head of a usual size arrives in pieces while the clients of 40 addresses fill the room", async () => {
  const { open } = await start({ maxConnections: 10_000, isProxy: false });
  const fill = async (owner: number, bytes: number) => {
    const { socket, accepted } = await open(`127.0.0.${owner}`);
    socket.write(head.slice(0, bytes));
    await until(() => accepted.destroyed || accepted.bytesRead === bytes, { everyMs: 1 });
    return !accepted.destroyed;
  };
  for (let owner = 2; owner < 32; owner++) while (await fill(owner, head.length));
  for (let owner = 32; owner < 42; owner++) for (let i = 0; i < 20; i++) await fill(owner, 1_000);
  const { socket, accepted, answers } = await open("127.0.0.42");
  for (const piece of [`GET / HTTP/1.1\r\nX: ${"v".repeat(3_900)}`, "\r\nHost: g\r\n", "\r\n"]) {
    const { bytesRead } = accepted;
    socket.write(piece);
    await until(() => accepted.bytesRead === bytesRead + piece.length);
  }
  await until(() => answers() === 1);
}, 120_000);

test("an address takes half of the room for heads and pipelined bytes, and others go on", async () => {
  const most = Math.floor(room / 2 / roomOfHead);
  const { open } = await start({ maxConnections: 4 * most, isProxy: false });
  const clients: Awaited<ReturnType<typeof open>>[] = [];
  const send = async (bytes: string, from?: string) => {
    const client = await open(from);
    client.socket.write(bytes);
    await until(() => client.accepted.destroyed || client.accepted.bytesRead === bytes.length, { everyMs: 1 });
    clients.push(client);
    return client;
  };
  while (clients.length < most + 20) await send(head);
  expect(clients.filter(({ accepted }) => !accepted.destroyed)).toHaveLength(most);
  const greedy = await open();
  greedy.socket.write(get("/").repeat(1_500));
  await once(greedy.socket, "end");
  expect(greedy.answers()).toBeLessThan(1_500);

  const inTwo = await send(head, "127.0.0.2");
  inTwo.socket.write("\r\n");
  const ahead = await send(get("/").repeat(1_500), "127.0.0.2");
  await until(() => inTwo.answers() === 1 && ahead.answers() === 1_500);
}, 120_000);

test("an idle connection may send four empty lines between requests; with more it is closed", async () => {
  const { open } = await start();
  const { socket, accepted, answers } = await open();
  for (const count of [1, 2]) {
    for (let i = 0; i < 4; i++) {
      const { bytesRead } = accepted;
      socket.write("\r\n");
      await until(() => accepted.bytesRead === bytesRead + 2);
    }
    socket.write(get("/"));
    await until(() => answers() === count);
  }
  socket.write("\r\n".repeat(5));
  await once(socket, "end");
  expect(answers()).toBe(2);
});
