/** A response of either client in `http.ts`. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text?: string;
  readonly body?: Buffer;
}

/** Returns the value of a header that must occur exactly once. */
export function header({ headers }: Answer, name: string): string {
  const values = [headers[name.toLowerCase()] ?? []].flat();
  if (values.length !== 1) throw new Error(`${name} is there ${values.length} times`);
  return values[0]!;
}

/** Expects the Error body of the contract: `code`, `message` and `status` as in HTTP, and nothing else. */
export function expectError(answer: Answer, status: number, code: string, message?: string | RegExp): void {
  const text = bodyText(answer);
  expect(linkTo(answer, "help")).toMatch(new RegExp(`^(/|\\./|(\\.\\./)+)docs/#${code}$`));
  expect({ status: answer.status, text }).toMatchObject({ status, text: expect.stringMatching(/^\{/) });
  expect(header(answer, "Content-Type")).toBe("application/json");
  expect(header(answer, "Cache-Control")).toBe("no-store");
  expect(Number(header(answer, "Content-Length"))).toBe(Buffer.byteLength(text));
  const error = JSON.parse(text);
  expect(error).toEqual({ code, message: expect.stringMatching(message ?? /./), status });
  // The text reveals no internals.
  expect(text).not.toMatch(/<(!|\/|html|pre)|\bat \S+ \(|node_modules|\.ts\b|Error:|SQL|grpc|127\.0\.0\.1/i);
}

/** The target of a link of the header `Link`, as it is there; undefined without one. */
export function linkTo({ headers }: Answer, relation: string): string | undefined {
  const links = [headers.link ?? []].flat().join(", ");
  return new RegExp(`<([^<>]*)>; rel="${relation}"`).exec(links)?.[1];
}

/** Expects the error of a request that the service did not take, or of one that got no answer in time. */
export function expectOutage(answer: Answer): void {
  if (answer.status === 504) {
    expectError(answer, 504, "timeout");
  } else {
    expectError(answer, 503, "service_unavailable");
    expect(header(answer, "Retry-After")).toBe("1");
  }
}

export function bodyText({ text, body }: Answer): string {
  return text ?? body?.toString("utf8") ?? "";
}

interface WindowLimit {
  readonly limit: number;
  readonly seconds: number;
  readonly remaining: number;
  /** Seconds from the response on. */
  readonly resetSeconds: number;
}

export interface Limits {
  readonly limit: number;
  readonly remaining: number;
  /** Unix seconds. */
  readonly resetAt: number;
  /** By name: `minute`, and for a request with a valid key also `day`; or that of another limit. */
  readonly windows: Readonly<Record<string, WindowLimit>>;
}

/**
 * Reads the limit headers and expects that they agree with each other: `X-RateLimit-*` describes one of the windows of
 * `RateLimit-Policy` and `RateLimit`: the one that binds.
 *
 * @param nowMs the server's clock
 */
export function readLimits(answer: Answer, nowMs: number = Date.now()): Limits {
  const limit = wholeNumber(answer, "X-RateLimit-Limit");
  const remaining = wholeNumber(answer, "X-RateLimit-Remaining");
  const resetAt = wholeNumber(answer, "X-RateLimit-Reset");
  const windows = readWindows(answer);

  expect(limit).toBeGreaterThan(0);
  expect(remaining).toBeLessThanOrEqual(limit);
  const states = Object.values(windows);
  const exhausted = states.filter((state) => state.remaining === 0);
  const binding =
    exhausted.length > 0
      ? exhausted.reduce((a, b) => (b.resetSeconds > a.resetSeconds ? b : a))
      : states.reduce((a, b) => (b.remaining / b.limit < a.remaining / a.limit ? b : a));
  expect({ limit, remaining }).toEqual({ limit: binding.limit, remaining: binding.remaining });
  // Both are rounded up, and the response may have taken a while.
  expect(Math.abs(resetAt - nowMs / 1_000 - binding.resetSeconds)).toBeLessThanOrEqual(5);

  if (answer.status === 429) {
    const retryAfter = wholeNumber(answer, "Retry-After");
    expect(remaining).toBe(0);
    expect(retryAfter).toBe(Math.max(1, binding.resetSeconds));
  }
  return { limit, remaining, resetAt, windows };
}

function readWindows(answer: Answer): Record<string, WindowLimit> {
  const policies = parseItems(header(answer, "RateLimit-Policy"), /^"([\w-]+)";q=(\d+);w=(\d+)$/);
  const states = parseItems(header(answer, "RateLimit"), /^"([\w-]+)";r=(\d+);t=(\d+)$/);
  expect(states.map(([name]) => name)).toEqual(policies.map(([name]) => name));
  return Object.fromEntries(
    policies.map(([name, limit, seconds], i) => {
      const [, remaining, resetSeconds] = states[i]!;
      expect(remaining).toBeLessThanOrEqual(limit);
      expect(resetSeconds).toBeGreaterThanOrEqual(1);
      return [name, { limit, seconds, remaining, resetSeconds }];
    }),
  );
}

function parseItems(text: string, item: RegExp): [string, number, number][] {
  return text.split(", ").map((part) => {
    const match = item.exec(part);
    if (match === null) throw new Error(`not an item of a limit header: ${part}`);
    return [match[1]!, Number(match[2]), Number(match[3])];
  });
}

function wholeNumber(answer: Answer, name: string): number {
  const value = header(answer, name);
  expect({ [name]: value }).toEqual({ [name]: expect.stringMatching(/^(0|[1-9]\d*)$/) });
  return Number(value);
}
