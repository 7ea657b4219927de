/** What every answer of the public API has, whatever it says. */

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

const labels = ["x-request-id", "ratelimit", "ratelimit-policy"];

/** @returns what an answer lacks of its labels and, for an error, of the shape of one; nothing for a good answer */
export function formFaults({ status, headers, body }: Answer): string[] {
  const faults = labels.filter((name) => headers[name] === undefined).map((name) => `${status} without ${name}`);
  if (status === 500) faults.push(`500 ${body}`);
  else if (status >= 400 && membersOf(body) !== "code,message,status") faults.push(`${status} with ${body}`);
  return faults;
}

function membersOf(body: string): string {
  try {
    return Object.keys(JSON.parse(body)).sort().join();
  } catch {
    return "";
  }
}
