// A long field of a head must not hold up other requests: what reads it takes few steps.
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { refuseUnknownParameters } from "../../gateway/http/query.ts";
import { matchesEtag } from "../../gateway/http/request.ts";
import { readWaitSeconds } from "../../gateway/inventory/input.ts";
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

function requestWith(query: string) {
  const request = new IncomingMessage(new Socket());
  request.url = `/v1/inventory?${query}`;
  return request;
}

const readList = (petIds: string) => readListSelection(requestWith(`petIds=${petIds}`));

test.each<[string, () => void]>([
  ["If-None-Match", () => expect(matchesEtag(fill('""'), '"r1"')).toBe(false)],
  ["Prefer", () => expect(readWaitSeconds(fill(","))).toBeUndefined()],
  ["A list of too many petIds", () => expect(() => readList([...Array(1_000).keys()].join())).toThrow("at most 100")],
  [
    "A passed-on query that shows a key",
    () => expect(queryToSendUp(`/?${key}${fill("&%61")}`)).toBe(`?${fill("&%61").slice(1)}`),
  ],
  ["A passed-on header", () => expect(headersToSendUp({ accept: fill("%61") })).toEqual({ accept: fill("%61") })],
])("%s of 16 KB is read in few steps", (_what, read) => {
  expect(matchesLookedFor(read)).toBeLessThan(1_000);
});

test.each([
  ["the list", readListSelection],
  ["changes", (request: IncomingMessage) => refuseUnknownParameters(request, ["since"])],
])("a query of 16 KB for %s is refused before it is parsed", (_what, read) => {
  const parse = import.meta.jest.spyOn(globalThis, "URLSearchParams");
  const longest = /^The query may have at most 4096 characters\.$/;
  for (const text of ["a&", "since&", "after&limit&"]) expect(() => read(requestWith(fill(text)))).toThrow(longest);
  expect(parse).not.toHaveBeenCalled();
  parse.mockRestore();
});

test("the longest list of 100 petIds is read, also with percent-encoded commas", () => {
  const petIds = Array.from({ length: 100 }, (_, i) => -(2n ** 63n) + BigInt(i));
  expect(readList(petIds.join("%2C"))).toEqual({ petIds });
});
