import { randomBytes } from "node:crypto";

/** What a caller may choose as the id of its request: it goes into logs and to the services behind, so it is no key. */
const acceptable = /^(?!.*ps_[a-z0-9]{1,16}_)[\w.:-]{1,64}$/;

// A random start for the process and a counter: as unique as a UUID for each request, at a fraction of the cost.
const prefix = randomBytes(9).toString("base64url");
let count = 0;

/** The caller's `X-Request-Id` where it is acceptable, else a new one. */
export function requestId(header: string | string[] | undefined): string {
  if (typeof header === "string" && acceptable.test(header)) return header;
  count += 1;
  return `${prefix}-${count.toString(36)}`;
}
