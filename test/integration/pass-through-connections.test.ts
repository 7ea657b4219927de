import { once } from "node:events";
import { type IncomingMessage, request, type ServerResponse } from "node:http";
import {
  closed,
  closeServers,
  type Gateway,
  get,
  getError,
  open,
  startGateway,
  startTcpUpstream,
  startUpstream,
} from "../support/pass-through-gateway.ts";
import { until } from "../support/until.ts";

afterEach(closeServers);

describe("connections to the upstream", () => {
  test("are used again, even after error responses", async () => {
    const upstream = await startUpstream((_req, res) => res.writeHead(404).end("x".repeat(100_000)));
    const gateway = await startGateway({ upstream: upstream.url });
    for (let count = 0; count < 5; count++) expect(await get(gateway, "/v1/pets/7")).toMatchObject({ status: 404 });
    expect(upstream.connections()).toBe(1);
  });

  test("a connection is closed when an error's body does not end, once the client has its answer", async () => {
    const upstream = await startTcpUpstream((socket) =>
      socket.once("data", () => socket.write("HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n1")),
    );
    const gateway = await startGateway({ upstream: upstream.url, timeoutMs: 100 });
    expect(await getError(gateway)).toEqual({ status: 404, code: "not_found" });
    expect(upstream.open().size).toBe(1);
    await upstream.allClosed();
  });

  test("a connection is closed when the client disconnects before the response head", async () => {
    const upstream = await startUpstream(() => {});
    const gateway = await startGateway({ upstream: upstream.url });
    const arrived = once(upstream.server, "request");
    const client = request(new URL("/v1/pets/7", gateway.url), { agent: false }).on("error", () => {});
    client.end();
    const [req] = (await arrived) as [IncomingMessage];
    client.destroy();
    await closed(req.socket);
    expect(gateway.errors).toEqual([]);
  });

  test("no connection to the upstream is opened for a client that has disconnected already", async () => {
    const upstream = await startUpstream((_req, res) => res.end("{}"));
    const gateway = await startGateway({ upstream: upstream.url });
    const client = request(new URL("/v1/pets/7", gateway.url), { agent: false, headers: { "X-Hold": "1" } });
    client.on("error", () => {}).end();
    const { end } = await gateway.arrived("/v1/pets/7");
    client.destroy();
    await end;
    expect(await get(gateway, "/v1/pets/8")).toMatchObject({ status: 200 });
    expect(upstream.requests.map(({ url }) => url)).toEqual(["/pets/8"]);
    expect(gateway.errors).toEqual([]);
  });

  test("a connection is closed when the client disconnects in the middle of the body", async () => {
    const upstream = await startUpstream((_req, res) => void res.write("1"));
    const gateway = await startGateway({ upstream: upstream.url });
    const arrived = once(upstream.server, "request");
    const response = await open(gateway, "/v1/pets/7");
    const [req] = (await arrived) as [IncomingMessage];
    response.on("error", () => {}).destroy();
    await closed(req.socket);
    expect(gateway.errors).toEqual([]);
  });

  test.each([
    ["nothing", 0],
    ["a byte now and then", 1],
  ])("a connection is closed when a client reads %s, and no body piles up in memory", async (_what, bytes) => {
    const piece = Buffer.alloc(1 << 20, "x");
    let accepted = 0;
    const upstream = await startUpstream((_req, res) => {
      const fill = () => {
        while (accepted < 1_024 && !res.destroyed) {
          accepted += 1;
          if (!res.write(piece)) break;
        }
      };
      res.on("drain", fill);
      fill();
    });
    const gateway = await startGateway({ upstream: upstream.url, clientTimeoutMs: 1_000 });
    const arrived = once(upstream.server, "request");
    const response = await open(gateway, "/v1/store/orders");
    response.on("error", () => {});
    const reading = setInterval(() => response.read(bytes), 100);
    const [req] = (await arrived) as [IncomingMessage];
    await closed(req.socket);
    clearInterval(reading);
    // The kernel buffers this much for four sockets on loopback. Without backpressure it would be all of the body.
    expect(accepted).toBeLessThan(64);
    await closed(response.resume());
    expect(response.complete).toBe(false);
  });

  test("an account has at most half of the connections that others leave, and then gets 503", async () => {
    const held = new Map<string | undefined, () => void>();
    const upstream = await startUpstream((req, res) => void held.set(req.url, () => res.end("{}")));
    const gateway = await startGateway({ upstream: upstream.url, maxConnections: 4 });
    const hold = (path: string, account: string) => {
      const answer = get(gateway, path, { headers: { "X-Account": account } });
      answer.catch(() => {}); // if this test fails, it must not end the whole run
      return answer;
    };
    const answers = [hold("/v1/pets/1", "a"), hold("/v1/pets/2", "a")];
    await until(() => held.size === 2);
    const refused = await get(gateway, "/v1/pets/3", { headers: { "X-Account": "a" } });
    expect([refused.status, JSON.parse(refused.body).code]).toEqual([503, "service_unavailable"]);
    expect(refused.headers["retry-after"]).toBe("1");
    answers.push(hold("/v1/pets/4", "b"), hold("/v1/pets/5", "c"));
    await until(() => held.size === 4);
    for (const end of held.values()) end();
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(upstream.connections()).toBe(4);
  });

  const ends: [
    string,
    (gateway: Gateway) => Promise<unknown>,
    (req: IncomingMessage, res: ServerResponse) => unknown,
  ][] = [
    ["an answer", (gateway) => get(gateway, "/v1/pets/1"), (_req, res) => res.end("{}")],
    ["a refusal", (gateway) => get(gateway, "/v1/pets/1"), (_req, res) => res.writeHead(404).end("none")],
    ["a refusal that breaks off", (gateway) => get(gateway, "/v1/pets/1"), breakOff(404)],
    ["an answer that breaks off", (gateway) => get(gateway, "/v1/pets/1"), breakOff(200)],
    ["a reset", (gateway) => get(gateway, "/v1/pets/1"), (req) => req.socket.resetAndDestroy()],
    ["the end of the time", (gateway) => get(gateway, "/v1/pets/1"), () => {}],
    ["a client that leaves", (gateway) => leave(gateway), (_req, res) => void res.write("1")],
  ];
  test.each(ends)("a connection to the upstream can be had again after %s", async (_what, use, answer) => {
    let requests = 0;
    const upstream = await startUpstream((req, res) => (requests++ < 3 ? answer(req, res) : res.end("{}")));
    const gateway = await startGateway({ upstream: upstream.url, maxConnections: 1, timeoutMs: 300 });
    for (let count = 0; count < 3; count++) {
      await until(async () => {
        const before = requests;
        await use(gateway);
        return requests > before; // else its connection was still in use
      });
    }
    await until(async () => (await get(gateway, "/v1/pets/2")).status === 200);
  });
});

/** Sends the head and a part of the body, and breaks off. */
function breakOff(status: number) {
  return (req: IncomingMessage, res: ServerResponse) =>
    res.writeHead(status, { "Content-Length": 9 }).write("1", () => req.socket.destroy());
}

/** Takes the head of an answer, and disconnects. */
async function leave(gateway: Gateway): Promise<void> {
  const response = await open(gateway, "/v1/pets/1");
  response.on("error", () => {}).destroy();
}
