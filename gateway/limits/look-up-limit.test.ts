import { UnusablePlanError } from "../auth/rows.ts";
import { LookUpLimit } from "./look-up-limit.ts";
import type { Decision } from "./windows.ts";

const limit = 60;

/** What every address block has left of its limit. */
const left = (remaining: number) => (): Decision => ({
  admitted: remaining > 0,
  windows: [{ name: "minute", seconds: 60, limit, used: limit - remaining, remaining, resetAtMs: 60_000 }],
  nowMs: 0,
});
const untouched = left(limit);

const block = (network: number, site: number) => `2001:db8:${network.toString(16)}:${site.toString(16)}::/64`;

/** A store that answers when it is told to, in the order of the questions. */
function openStore() {
  const asked: { readonly name: string; readonly answer: PromiseWithResolvers<string> }[] = [];
  let answered = 0;
  return {
    asked,
    get underWay() {
      return asked.length - answered;
    },
    lookUp: (name: string) => () => {
      const answer = Promise.withResolvers<string>();
      asked.push({ name, answer });
      return answer.promise;
    },
    /** Answers the oldest question that is open. */
    answer: async (error?: Error) => {
      const { answer, name } = asked[answered++]!;
      if (error) answer.reject(error);
      else answer.resolve(name);
      for (let turn = 0; turn < 2; turn++) await new Promise(setImmediate); // the next look-up begins a turn later
    },
  };
}

/** 1,000 look-ups that wait, of as many address blocks of one network, and their outcomes. */
function flood(limitOf: LookUpLimit, store: ReturnType<typeof openStore>, network = 1, count = 1_000) {
  return Array.from({ length: count }, (_, site) =>
    limitOf.run(block(network, site), store.lookUp(`flood ${network} ${site}`)).catch((error: Error) => error),
  );
}

describe("look-ups of unknown keys", () => {
  test("look-ups of unknown keys are at most eight at once, from however many addresses they come", async () => {
    const [lookUps, store] = [new LookUpLimit(untouched), openStore()];
    const outcomes = flood(lookUps, store);
    for (let i = 0; i < 1_000; i++) {
      expect(store.underWay).toBe(Math.min(8, 1_000 - i));
      await store.answer();
    }
    expect(await Promise.all(outcomes)).toEqual(store.asked.map(({ name }) => name));
  });

  test("look-ups of unknown keys of an address are at most as many at once as its limit has left", async () => {
    const [lookUps, store] = [new LookUpLimit(left(3)), openStore()];
    const outcomes = Array.from({ length: 10 }, (_, i) => lookUps.run("192.0.2.1", store.lookUp(`${i}`)));
    for (let i = 0; i < 10; i++) {
      expect(store.underWay).toBe(Math.min(3, 10 - i));
      await store.answer();
    }
    expect(await Promise.all(outcomes)).toHaveLength(10);
  });

  test("look-ups of unknown keys from elsewhere wait for one turn of a network that floods", async () => {
    const [lookUps, store] = [new LookUpLimit(untouched), openStore()];
    flood(lookUps, store, 1);
    flood(lookUps, store, 2);
    void lookUps.run("192.0.2.1", store.lookUp("stranger"));
    for (let i = 0; i < 3; i++) await store.answer();
    expect(store.asked.map(({ name }) => name).slice(8)).toContain("stranger");
  });

  test("look-ups of unknown keys from another address of the network wait for one turn of each address before them", async () => {
    const [lookUps, store] = [new LookUpLimit(untouched), openStore()];
    const greedy = Array.from({ length: 50 }, (_, i) => lookUps.run(block(1, 0), store.lookUp(`greedy ${i}`)));
    void lookUps.run(block(1, 1), store.lookUp("neighbour"));
    await store.answer();
    await store.answer();
    expect(store.asked.map(({ name }) => name).slice(8)).toContain("neighbour");
    while (store.underWay > 0) await store.answer();
    expect(await Promise.all(greedy)).toHaveLength(50);
  });

  test("look-ups of unknown keys are refused where most come from, when 10,000 wait", async () => {
    const [lookUps, store] = [new LookUpLimit(untouched), openStore()];
    const floods = Array.from({ length: 300 }, (_, network) => flood(lookUps, store, network, 50)).flat();
    const refused = (error: unknown) => error instanceof Error && error.message.startsWith("too many unknown keys");
    const greedy = Array.from({ length: 60 }, (_, i) => lookUps.run("203.0.113.7", store.lookUp(`greedy ${i}`)));
    const neighbour = lookUps.run("203.0.113.8", store.lookUp("neighbour"));
    const greedyOutcomes = Promise.all(greedy.map((outcome) => outcome.catch((error) => error)));
    while (store.underWay > 0) await store.answer();
    expect((await Promise.all(floods)).filter(refused).length).toBeGreaterThan(4_000);
    expect((await greedyOutcomes).filter(refused).length).toBeGreaterThan(20);
    expect(await neighbour).toBe("neighbour");
    expect(store.asked).toHaveLength(10_000 + 8);
  });

  test("look-ups of unknown keys fail together when the store cannot be asked", async () => {
    const [lookUps, store] = [new LookUpLimit(untouched), openStore()];
    const outcomes = flood(lookUps, store, 1, 100);
    const away = new Error("the store is away");
    await store.answer(away);
    expect((await Promise.all(outcomes.slice(8))).every((outcome) => outcome === away)).toBe(true);
    expect(store.asked).toHaveLength(8);
  });

  test("look-ups of unknown keys go on when the account of one key cannot be used", async () => {
    const [lookUps, store] = [new LookUpLimit(untouched), openStore()];
    const outcomes = flood(lookUps, store, 1, 100);
    await store.answer(new UnusablePlanError("no such plan"));
    while (store.underWay > 0) await store.answer();
    expect((await Promise.all(outcomes)).filter((outcome) => outcome instanceof Error)).toHaveLength(1);
  });
});
