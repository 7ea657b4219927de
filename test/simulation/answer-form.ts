/** What every answer of the public API has, whatever it says. */

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

const labels = [
  "x-request-id",
  "x-ratelimit-limit",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
  "ratelimit",
  "ratelimit-policy",
];

/** What answers of a status have beside their labels. */
const headersByStatus: Readonly<Record<number, readonly string[]>> = {
  304: ["etag", "cache-control"],
  401: ["www-authenticate"],
  403: ["www-authenticate"],
  405: ["allow"],
  429: ["retry-after"],
};

/** @returns what an answer lacks of its labels and, for an error, of the shape of one; nothing for a good answer */
export function formFaults({ status, headers, body }: Answer): string[] {
  const wanted = [...labels, ...(headersByStatus[status] ?? [])];
  const faults = wanted.filter((name) => headers[name] === undefined).map((name) => `${status} without ${name}`);
  if (status === 500) faults.push(`500 ${body}`);
  else if (status >= 400 && !isError(body, status)) faults.push(`${status} with ${body}`);
  if (status >= 400 && headers["cache-control"] !== "no-store") faults.push(`${status} that a cache may keep`);
  const isGzip = headers["content-encoding"] === "gzip";
  if (isGzip && !String(headers.etag).endsWith('-gzip"')) faults.push("gzip with the ETag of the plain body");
  return faults.length > 0 ? faults : limitFaults(status, headers);
}

/**
 * @param unixMs when the request began and when its answer came, by the clock of the day
 * @returns why `X-RateLimit-Reset` is not the end of the window that has the least left
 */
export function resetFault(headers: Answer["headers"], unixMs: { readonly call: number; readonly return: number }) {
  const { ratelimit, "x-ratelimit-remaining": binding, "x-ratelimit-reset": reset } = headers;
  const isEnd = windowsOf(headers).some(([, , left, seconds]) => {
    if (left !== binding) return false;
    const endMs = 1_000 * (Number(reset) - Number(seconds));
    return endMs > unixMs.call - resetSlackMs && endMs < unixMs.return + resetSlackMs;
  });
  return isEnd
    ? undefined
    : `the reset at ${reset}, ${reset && Number(reset) - unixMs.call / 1_000} s on: ${ratelimit}`;
}

/** Both are whole seconds, and the clock of Redis is read before its answer comes. */
const resetSlackMs = 2_000;

function isError(body: string, status: number): boolean {
  try {
    const error: unknown = JSON.parse(body);
    return Object.keys(error!).sort().join() === "code,message,status" && (error as Answer).status === status;
  } catch {
    return false;
  }
}

/** @returns for each window its name, what is left of it and its seconds, behind the text of all */
function windowsOf({ ratelimit }: Answer["headers"]): readonly RegExpExecArray[] {
  return [...String(ratelimit).matchAll(/"([\w-]+)";r=(\d+);t=(\d+)/g)];
}

/** @returns why the limit headers do not agree with each other, and with `Retry-After` */
function limitFaults(status: number, headers: Answer["headers"]): string[] {
  const textOf = (name: string) => String(headers[name]);
  const quotas = [...textOf("ratelimit-policy").matchAll(/"([\w-]+)";q=(\d+);w=\d+/g)];
  const windows = windowsOf(headers);
  const binding = windows.find(([, name, left, seconds]) => {
    if (status === 429 && (left !== "0" || seconds !== textOf("retry-after"))) return false;
    const quota = quotas.find(([, other]) => other === name)?.[2];
    return quota === textOf("x-ratelimit-limit") && left === textOf("x-ratelimit-remaining");
  });
  const isTime = /^\d{10}$/.test(textOf("x-ratelimit-reset")); // Unix seconds
  if (binding && isTime && quotas.length === windows.length) return [];
  const shown = [...labels.slice(1), "retry-after"].map((name) => `${name}: ${headers[name]}`);
  return [`${status} with limits that do not agree: ${shown.join(", ")}`];
}
