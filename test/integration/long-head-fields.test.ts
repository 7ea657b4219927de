// A long field of a head must not hold up other requests: what reads it takes few steps.
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { matchesEtag } from "../../gateway/http/request.ts";
import { readWait } from "../../gateway/inventory/input.ts";
import { readListSelection } from "../../gateway/inventory/reads/read-query.ts";
import { headersToSendUp, queryToSendUp } from "../../gateway/passthrough/forwarded-headers.ts";
import { key } from "../support/pass-through-gateway.ts";

/** As long as a field of a head may be. */
const fill = (text: string) => text.repeat(16 * 1024).slice(0, 16 * 1024);

/** The matches of regular expressions that are looked for while something runs, also by `replace` and `match`. */
function matchesLookedFor(run: () => void): number {
  const exec = import.meta.jest.spyOn(RegExp.prototype, "exec");
  try {
    run();
    return exec.mock.calls.length;
  } finally {
    exec.mockRestore();
  }
}

function readList(petIds: string) {
  const request = new IncomingMessage(new Socket());
  request.url = `/v1/inventory?petIds=${petIds}`;
  return readListSelection(request);
}

test.each<[string, () => void]>([
  ["If-None-Match", () => expect(matchesEtag(fill('""'), '"r1"')).toBe(false)],
  ["Prefer", () => expect(readWait(fill(","))).toBeUndefined()],
  ["A list of too many petIds", () => expect(() => readList([...Array(3_000).keys()].join())).toThrow("at most 100")],
  [
    "A passed-on query that shows a key",
    () => expect(queryToSendUp(`/?${key}${fill("&%61")}`)).toBe(`?${fill("&%61").slice(1)}`),
  ],
  ["A passed-on header", () => expect(headersToSendUp({ accept: fill("%61") })).toEqual({ accept: fill("%61") })],
])("%s of 16 KB is read in few steps", (_what, read) => {
  expect(matchesLookedFor(read)).toBeLessThan(1_000);
});
