import { InventoryApiError } from "./inventory-api-error.ts";
import { Pace } from "./pace.ts";
import { type ApiRequest, createSender } from "./request-sender.ts";

const { jest } = import.meta;

beforeEach(() => void jest.useFakeTimers());
afterEach(() => {
  jest.useRealTimers();
  jest.restoreAllMocks();
});

/** How a request fails. */
type Failure = () => Response;

const refused =
  (status: number, headers: Record<string, string> = {}): Failure =>
  () =>
    new Response("{}", { status, headers });

const cut: Failure = () => {
  throw new TypeError("the connection broke");
};

/** Sends a request that fails this many times. @returns what became of it, and the times between its attempts in ms */
async function sendFailing(failure: Failure, failures: number, request: Partial<ApiRequest> = {}) {
  const times: number[] = [];
  const fetch = async () => {
    times.push(performance.now());
    return times.length > failures ? new Response("done") : failure();
  };
  const send = createSender({ baseUrl: "http://localhost/v1", apiKey: "key", fetch, pace: new Pace() });
  const sent = send({ path: "/inventory", ...request }).catch((error: InventoryApiError) => error);
  await jest.runAllTimersAsync();
  return { outcome: await sent, gapsMs: times.slice(1).map((time, i) => time - times[i]!) };
}

test("a request without an answer fails with the reason, or the code beneath the error of fetch", async () => {
  const unknownHost = Object.assign(new Error("getaddrinfo failed"), { code: "ENOTFOUND" });
  const failed = (cause: Error) => () => {
    throw cause;
  };
  const messageOf = async (failure: Failure) => ((await sendFailing(failure, 100)).outcome as Error).message;
  const words = "no_answer: GET /inventory got no answer";
  expect(await messageOf(failed(new TypeError("fetch failed", { cause: unknownHost })))).toBe(`${words} (ENOTFOUND)`);
  expect(await messageOf(failed(new TypeError("Failed to fetch")))).toBe(`${words} (Failed to fetch)`);
  expect(await messageOf(failed(new DOMException("aborted", "AbortError")))).toBe(`${words} (the time was up)`);
});

/** All draws of a jitter have this value, between 0 and 1. */
const draw = (value: number) => void jest.spyOn(Math, "random").mockReturnValue(value);

const sum = (numbers: readonly number[]) => numbers.reduce((all, one) => all + one, 0);

const failures = [
  { name: "is refused by a 503", failure: refused(503) },
  { name: "gets a 408, because it did not arrive in time,", failure: refused(408) },
  { name: "gets no answer", failure: cut },
];

describe.each(failures)("$name", ({ name, failure }) => {
  test.each([
    { drawn: 0, share: 0.5, count: 16 },
    { drawn: 0.5, share: 0.75, count: 12 },
  ])("it is repeated for a minute; pauses double up to 10 s, and jitter leaves $share of them", async (jitter) => {
    draw(jitter.drawn);
    const { outcome, gapsMs } = await sendFailing(failure, 100);
    expect(outcome).toBeInstanceOf(InventoryApiError);
    const pausesMs = Array.from({ length: jitter.count }, (_, i) => jitter.share * Math.min(200 * 2 ** i, 10_000));
    expect(gapsMs).toEqual(pausesMs);
    expect(sum(gapsMs)).toBeLessThanOrEqual(60_000);
    expect(sum(gapsMs) + jitter.share * 10_000).toBeGreaterThan(60_000);
  });

  test(`a request that ${name} waits longer each time, and not as long as another one`, async () => {
    const [one, other] = [await sendFailing(failure, 5), await sendFailing(failure, 5)];
    for (const { outcome, gapsMs } of [one, other]) {
      expect(outcome).toMatchObject({ status: 200, text: "done" });
      expect(gapsMs).toHaveLength(5);
      expect(gapsMs).toEqual(gapsMs.toSorted((a, b) => a - b));
      expect(gapsMs[4]).toBeGreaterThan(gapsMs[0]!);
    }
    expect(one.gapsMs).not.toEqual(other.gapsMs);
  });

  test(`a request that ${name} is repeated for as long as it takes where its caller is patient`, async () => {
    draw(0);
    const { outcome, gapsMs } = await sendFailing(failure, 100, { isPatient: true });
    expect(outcome).toMatchObject({ status: 200, text: "done" });
    expect(gapsMs).toHaveLength(100);
    expect(new Set(gapsMs.slice(6))).toEqual(new Set([5_000]));
  });
});

test.each([429, 503])("a %d is repeated after its Retry-After and a pause that doubles", async (status) => {
  draw(0);
  const { outcome, gapsMs } = await sendFailing(refused(status, { "Retry-After": "3" }), 3);
  expect(outcome).toMatchObject({ status: 200 });
  expect(gapsMs).toEqual([3_100, 3_200, 3_400]);
});

test.each([60, 90, 120])(
  "the end of a window in %d s is awaited, though failures are repeated for a minute",
  async (seconds) => {
    draw(0);
    const { outcome, gapsMs } = await sendFailing(refused(429, { "Retry-After": String(seconds) }), 1);
    expect(outcome).toMatchObject({ status: 200 });
    expect(gapsMs).toEqual([seconds * 1_000 + 100]);
  },
);

test("the end of a window that is more than two minutes away is not awaited", async () => {
  const { outcome, gapsMs } = await sendFailing(refused(429, { "Retry-After": "121" }), 1);
  expect(outcome).toMatchObject({ status: 429, retryAfterMs: 121_000 });
  expect(gapsMs).toEqual([]);
});

test.each(["1.5", "-5", "5, 5", "", "NaN", "Infinity", "Wednesday"])(
  "a Retry-After of %j, which is neither a number nor a date, is ignored",
  async (retryAfter) => {
    draw(0);
    const { outcome, gapsMs } = await sendFailing(refused(503, { "Retry-After": retryAfter }), 1000);
    expect((outcome as InventoryApiError).retryAfterMs).toBeUndefined();
    expect(gapsMs[0]).toBe(100);
  },
);

test.each(["Sun, 06 Nov 2095 08:49:37 GMT", "Sunday, 06-Nov-95 08:49:37 GMT"])(
  "a Retry-After of %j is the time until then",
  async (retryAfter) => {
    jest.setSystemTime(Date.parse(retryAfter) - 3_000);
    draw(0);
    expect((await sendFailing(refused(503, { "Retry-After": retryAfter }), 1)).gapsMs).toEqual([3_100]);
  },
);

const farAway = ["2592000", "99999999999999999999", "9".repeat(400), "Fri, 31 Dec 9999 23:59:59 GMT"];

describe.each(farAway)("a Retry-After of %s, beyond what a timer takes", (retryAfter) => {
  test.each([429, 503])("a %d with a Retry-After beyond what a timer takes is not repeated", async (status) => {
    const { outcome, gapsMs } = await sendFailing(refused(status, { "Retry-After": retryAfter }), 10);
    expect(outcome).toMatchObject({ status, retryAfterMs: 24 * 86_400_000 });
    expect(gapsMs).toEqual([]);
  });

  test.each([429, 503])(
    "a patient request is repeated every two minutes after a %d with such a time",
    async (status) => {
      draw(0);
      const failure = refused(status, { "Retry-After": retryAfter });
      const { outcome, gapsMs } = await sendFailing(failure, 5, { isPatient: true });
      expect(outcome).toMatchObject({ status: 200 });
      expect(gapsMs).toEqual([100, 200, 400, 800, 1_600].map((pauseMs) => 120_000 + pauseMs));
    },
  );
});

test.each([
  { seconds: 0, count: 16 },
  { seconds: 20, count: 3 },
  { seconds: 90, count: 1 },
])(
  "a request that gets 429 again and again is repeated a minute beyond one wait of $seconds s",
  async ({ seconds, count }) => {
    draw(0);
    const { outcome, gapsMs } = await sendFailing(refused(429, { "Retry-After": String(seconds) }), 100);
    expect(outcome).toMatchObject({ status: 429 });
    expect(gapsMs).toHaveLength(count);
  },
);

test("a failure after the end of a window is repeated for the rest of a minute", async () => {
  draw(0);
  let attempts = 0;
  const failure: Failure = () => {
    attempts += 1;
    return attempts === 2 ? refused(429, { "Retry-After": "90" })() : cut();
  };
  const { outcome, gapsMs } = await sendFailing(failure, 5);
  expect(outcome).toMatchObject({ status: 200 });
  expect(gapsMs).toEqual([100, 90_200, 400, 800, 1_600]);
});

test("the wait for a window that another call has found spent is no part of the repeats", async () => {
  draw(0);
  const pace = new Pace();
  const times: number[] = [];
  const spent = { "RateLimit-Policy": '"minute";q=60;w=60', RateLimit: '"minute";r=0;t=58' };
  const fetch = async (url: string | URL | Request) => {
    if (String(url).endsWith("/other")) return new Response("{}", { headers: spent });
    times.push(performance.now());
    return times.length === 12 ? new Response("done") : cut();
  };
  const send = createSender({ baseUrl: "http://localhost/v1", apiKey: "key", fetch, pace });
  const sent = send({ path: "/inventory" });
  await jest.advanceTimersByTimeAsync(50);
  await send({ path: "/other", isUncharged: true });
  await jest.runAllTimersAsync();
  expect(await sent).toMatchObject({ status: 200 });
  expect(times[1]! - times[0]!).toBeGreaterThan(57_000);
  expect(times.at(-1)! - times[1]!).toBeGreaterThan(30_000);
});

test("a pause ends with the reason of the signal", async () => {
  const stop = new AbortController();
  const failing = sendFailing(refused(503, { "Retry-After": "50" }), 1, { signal: stop.signal });
  setTimeout(() => stop.abort(new Error("enough")), 1_000);
  expect(await failing).toMatchObject({ outcome: { message: "enough" }, gapsMs: [] });
  expect(performance.now()).toBeLessThan(50_000);
});

/** An API that refuses all requests until it is told otherwise, for `seconds` by its Retry-After. */
function refusingApi(code: string, seconds: number) {
  const api = { isOpen: false, count: 0 };
  const fetch = async () => {
    api.count += 1;
    const tell = (left: number) => ({
      "RateLimit-Policy": '"minute";q=60;w=60, "day";q=1000;w=86400',
      RateLimit: `"minute";r=${Math.min(left, 59)};t=${seconds}, "day";r=${left};t=${seconds}`,
      "Retry-After": String(seconds),
    });
    if (api.isOpen) return new Response("done", { headers: tell(900) });
    return new Response(JSON.stringify({ code }), { status: 429, headers: tell(0) });
  };
  return { api, send: createSender({ baseUrl: "http://localhost/v1", apiKey: "key", fetch, pace: new Pace() }) };
}

test.each([
  { code: "rate_limit_exceeded", seconds: 40_000, name: "a day is spent" },
  { code: "api_key_banned", seconds: 3_600, name: "the key is banned" },
])("while $name, one call a minute is sent, and one that is not refused ends that", async ({ code, seconds }) => {
  const { api, send } = refusingApi(code, seconds);
  const call = () =>
    send({ path: "/inventory" }).then(
      () => "done",
      (error: InventoryApiError) => error.code,
    );
  for (let i = 0; i < 600; i++) {
    expect(await call()).toBe(code);
    await jest.advanceTimersByTimeAsync(1_000);
  }
  expect(api.count).toBe(10);
  api.isOpen = true;
  expect(await Promise.all([call(), call()])).toEqual(["done", code]); // the first one finds out
  expect(await Promise.all([call(), call()])).toEqual(["done", "done"]);
});

test("patient requests ask for a spent day once a minute at most, and go on after a raise", async () => {
  const { api, send } = refusingApi("rate_limit_exceeded", 40_000);
  const done = jest.fn();
  for (let i = 0; i < 5; i++) void send({ path: "/inventory", isPatient: true }).then(done);
  await jest.advanceTimersByTimeAsync(3_600_000);
  expect(api.count).toBeGreaterThan(20);
  expect(api.count).toBeLessThanOrEqual(61);
  api.isOpen = true;
  await jest.advanceTimersByTimeAsync(200_000);
  expect(done).toHaveBeenCalledTimes(5);
});

test.each([
  { status: 429, code: "rate_limit_exceeded", isUncharged: false },
  { status: 429, code: "rate_limit_exceeded", isUncharged: true },
  { status: 408, code: "timeout", isUncharged: false },
  { status: 401, code: "invalid_api_key", isUncharged: false },
])(
  "a $status whose window is not the account's stops no other call (uncharged: $isUncharged)",
  async ({ status, code, isUncharged }) => {
    const ofAccount = {
      "RateLimit-Policy": '"minute";q=1000;w=60, "day";q=10000;w=86400',
      RateLimit: '"minute";r=900;t=50, "day";r=9000;t=80000',
    };
    const ofAddress = {
      "RateLimit-Policy": '"minute";q=60;w=60',
      RateLimit: '"minute";r=0;t=60',
      "Retry-After": "60",
    };
    let count = 0;
    const fetch = async () => {
      count += 1;
      if (count === 2) return new Response(JSON.stringify({ code }), { status, headers: ofAddress });
      return new Response("done", { headers: ofAccount });
    };
    const send = createSender({ baseUrl: "http://localhost/v1", apiKey: "key", fetch, pace: new Pace() });
    await send({ path: "/inventory" });
    const refused = send({ path: "/inventory", isUncharged }).catch(() => undefined);
    await jest.advanceTimersByTimeAsync(0);
    const done = jest.fn();
    for (let i = 0; i < 10; i++) void send({ path: "/inventory" }).then(done);
    await jest.advanceTimersByTimeAsync(0);
    expect(done).toHaveBeenCalledTimes(10);
    await jest.runAllTimersAsync();
    await refused;
  },
);

test("an outage with more attempts than a day's limit uses nothing of it up", async () => {
  let attempts = 0;
  let left = 1_000;
  let isOut = false;
  const fetch = async () => {
    attempts += 1;
    if (isOut) return cut();
    left -= 1;
    const headers = { "RateLimit-Policy": '"day";q=1000;w=86400', RateLimit: `"day";r=${left};t=80000` };
    return new Response("done", { headers });
  };
  const send = createSender({ baseUrl: "http://localhost/v1", apiKey: "key", fetch, pace: new Pace() });
  let done = 0;
  const sendTwenty = (request: Partial<ApiRequest>) => {
    for (let i = 0; i < 20; i++) void send({ path: "/inventory", ...request }).then(() => (done += 1));
  };
  await send({ path: "/inventory" });
  isOut = true;
  sendTwenty({ isPatient: true });
  await jest.advanceTimersByTimeAsync(3_600_000);
  expect(attempts).toBeGreaterThan(1_000);
  expect(done).toBe(0);
  isOut = false;
  await jest.advanceTimersByTimeAsync(10_000);
  expect(done).toBe(20);
  sendTwenty({});
  await jest.advanceTimersByTimeAsync(0);
  expect(done).toBe(40);
});

/** An answer whose body has these parts, each this long after the one before it; then it goes silent, or ends. */
function slowAnswer(signal: AbortSignal, parts: number, gapMs: number, isCut: boolean): Response {
  let sent = 0;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      signal.addEventListener("abort", () => controller.error(signal.reason));
      await new Promise((resolve) => setTimeout(resolve, gapMs));
      if (sent < parts) controller.enqueue(new TextEncoder().encode("€").slice(sent % 3, (sent % 3) + 1));
      else if (isCut) await new Promise(() => {});
      else controller.close();
      sent += 1;
    },
  });
  return new Response(body);
}

test("an answer may take as long as it needs while parts of it come", async () => {
  const fetch = async (_address: unknown, { signal }: RequestInit = {}) => slowAnswer(signal!, 30, 40_000, false);
  const sent = createSender({ baseUrl: "http://localhost/v1", apiKey: "key", fetch, pace: new Pace() })({
    path: "/inventory",
  });
  await jest.runAllTimersAsync();
  expect(await sent).toMatchObject({ status: 200, text: "€".repeat(10) });
});

test("a request whose answer goes silent within its body is sent again after 45 s", async () => {
  const times: number[] = [];
  const fetch = async (_address: unknown, { signal }: RequestInit = {}) => {
    times.push(performance.now());
    return slowAnswer(signal!, 3, 1_000, times.length === 1);
  };
  draw(0);
  const sent = createSender({ baseUrl: "http://localhost/v1", apiKey: "key", fetch, pace: new Pace() })({
    path: "/inventory",
  });
  await jest.advanceTimersByTimeAsync(120_000);
  expect(times.map((time) => time - times[0]!)).toEqual([0, 48_100]); // three parts, and a pause of 0.1 s
  expect(await sent).toMatchObject({ status: 200, text: "€" });
});

test("a request whose signal was aborted before is not sent, though no limit counts it", async () => {
  let count = 0;
  const fetch = async () => {
    count += 1;
    return new Response("{}");
  };
  const send = createSender({ baseUrl: "http://localhost/v1", apiKey: "key", fetch, pace: new Pace() });
  const signal = AbortSignal.abort(new Error("enough"));
  await expect(send({ path: "/rate_limit", isUncharged: true, signal })).rejects.toThrow("enough");
  expect(count).toBe(0);
});
