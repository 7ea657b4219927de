import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { PlainStock } from "../../../test/support/plain-stock.ts";
import { ApiError } from "../../http/api-error.ts";
import { type RequestContext, setContext } from "../../http/request-context.ts";
import { isAt, StockList } from "../list/stock-list.ts";
import { LongPolls, type LongPollsOptions } from "./long-polls.ts";

const { jest } = import.meta;

/** A list of one entry, and the requests that wait for its next change. */
async function open(admission: Partial<LongPollsOptions["admission"]> = {}) {
  const stock = new PlainStock();
  stock.set(1n, 1);
  const list = new StockList(stock, 60_000);
  const seen = await list.readFresh();
  const since = { epochTag: seen.etag.slice(1, 9), revision: seen.revision };
  const always = { isKeyKnownGood: () => true, reverifyKeyAndBan: async () => {}, readmit: async () => {} };
  const requests = new LongPolls({ list, max: 1_000, admission: { ...always, ...admission } });

  /** @returns what the wait of a request gives */
  function ask(seconds: number, prefetched?: Promise<unknown>) {
    const request = new IncomingMessage(new Socket());
    request.headers.prefer = `wait=${seconds}`;
    const response = new ServerResponse(request);
    const principal = { accountId: "a" };
    const clientAddress = "192.0.2.1";
    const arrivedMs = performance.now();
    const context = { arrivedMs, token: "", clientAddress, principal, prefetched } as RequestContext;
    setContext(response, context);
    const applied = requests.holdUntilChange(request, response, {
      petId: undefined,
      isUnchanged: (snapshot) => isAt(snapshot, since),
    });
    return { context, applied };
  }

  /** Asks, and returns once the request is held. */
  async function hold(seconds: number) {
    const count = requests.count;
    const asked = ask(seconds);
    while (requests.count === count) await setImmediate();
    return asked;
  }

  /** Changes the entry, and gives the requests that wait some turns of the event loop. */
  async function change() {
    stock.set(1n, 2);
    await list.readFresh();
    for (let turn = 0; turn < 10; turn++) await setImmediate();
  }
  return { stock, list, requests, ask, hold, change };
}

test.each([[1], [250]])("a change lets all requests go on that wait for it: %i", async (count) => {
  const { requests, hold, change } = await open();
  const helds = [];
  for (let i = 0; i < count; i++) helds.push(await hold(60));
  await change();
  expect(requests.count).toBe(0);
  for (const { applied } of helds) expect(await applied).toEqual(["Preference-Applied", "wait=60"]);
  requests.close();
});

test("a change that was found after the check of a request is in its answer", async () => {
  const { list, ask, change } = await open();
  const prefetched = list.readFresh();
  await prefetched;
  await change();
  const { context, applied } = ask(60, prefetched);
  expect(await applied).toEqual(["Preference-Applied", "wait=60"]);
  expect(await context.prefetched).toBe(list.last!.snapshot);
});

describe("held requests as time passes", () => {
  beforeEach(() => void jest.useFakeTimers({ doNotFake: ["setImmediate"] }));
  afterEach(() => void jest.useRealTimers());

  test("a request goes on within a second of a change that nothing else finds", async () => {
    const { stock, requests, hold } = await open();
    const { applied } = await hold(60);
    await jest.advanceTimersToNextTimerAsync(); // a check, so that all of the time to the next one is ahead
    expect(requests.count).toBe(1);
    stock.set(1n, 2);
    await jest.advanceTimersByTimeAsync(950);
    await setImmediate(); // those that go on do so in a turn of their own
    expect(requests.count).toBe(0);
    await applied;
    requests.close();
  });

  test("a request ends within seconds when its key was revoked, and is held when no look-up works", async () => {
    const faults = new Map<RequestContext, ApiError>();
    const { requests, hold } = await open({
      isKeyKnownGood: (context) => !faults.has(context),
      reverifyKeyAndBan: async (context) => {
        throw faults.get(context);
      },
    });
    const [revoked, unknown] = [await hold(60), await hold(60)];
    faults
      .set(revoked.context, new ApiError("invalid_api_key"))
      .set(unknown.context, new ApiError("service_unavailable"));
    const ended = expect(revoked.applied).rejects.toMatchObject({ code: "invalid_api_key" });
    await jest.advanceTimersByTimeAsync(5_000);
    expect(requests.count).toBe(1);
    const waits = [revoked, unknown].map(({ context }) => context.waitsForOthersFromMs <= performance.now());
    expect(waits).toEqual([false, true]);
    await ended;
    requests.close();
  });

  test("a change does not start the time again of a request that went on at the end of its wait", async () => {
    const { requests, hold, change } = await open();
    const [short, long] = [await hold(1), await hold(60)];
    await jest.advanceTimersByTimeAsync(1_000);
    await short.applied;
    const { arrivedMs } = short.context;
    jest.advanceTimersByTime(100);
    await change();
    await long.applied;
    expect(long.context.arrivedMs).toBeGreaterThan(arrivedMs);
    expect(short.context.arrivedMs).toBe(arrivedMs);
    requests.close();
  });
});
