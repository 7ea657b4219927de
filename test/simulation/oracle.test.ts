import { type AskedChange, type Commit, type History, judge, type Read, type Version } from "./oracle.ts";
import { Random } from "./random.ts";

const petIds = [1, 2, 3, 4];
const epoch = "11112222-0000";
const row = ({ petId, quantity, status }: Version) => ({ petId, quantity, status });

/** A history in which everything is as promised: updates, adjustments of two entries, and reads between them. */
function goodHistory(random: Random, operations = 60) {
  const entries = new Map<number, Version>();
  const commits: Commit[] = [];
  const changes: AskedChange[] = [];
  const reads: Read[] = [];
  let revision = 0n;
  let nowMs = 0;
  const pass = (ms: number) => {
    nowMs += ms;
    return nowMs;
  };
  const commit = (rows: Version[]) => {
    for (const one of rows) entries.set(one.petId, one);
    commits.push({ atMs: nowMs, epoch, revision, rows, isRestore: false });
  };
  const put = (petId: number, quantity: number): Version => {
    revision += 1n;
    return { petId, revision, quantity, status: "available", removed: false };
  };
  commit(petIds.map((petId) => put(petId, 100)));
  const make = (asked: readonly Omit<AskedChange, "attempts" | "group">[]) => {
    const callMs = pass(2);
    pass(1);
    const rows = asked.map(({ petId, quantity, delta = 0 }) =>
      put(petId, quantity ?? entries.get(petId)!.quantity + delta),
    );
    commit(rows);
    const returnMs = pass(1);
    const group: AskedChange[] = [];
    group.push(
      ...asked.map((change, i): AskedChange => {
        const outcome = { kind: "done", revision: rows[i]!.revision, quantity: rows[i]!.quantity } as const;
        return { ...change, group, attempts: [{ callMs, returnMs, outcome }] };
      }),
    );
    changes.push(...group);
  };
  for (let i = 0; i < operations; i++) {
    const petId = random.pick(petIds);
    const kind = random.pick(["set", "adjust", "list", "entry"] as const);
    if (kind === "set") make([{ kind, petId, quantity: 10_000 * (i + 1) }]);
    else if (kind === "adjust") {
      make([
        { kind, petId, delta: 7 },
        { kind, petId: 1 + (petId % 4), delta: -7 },
      ]);
    } else {
      const callMs = pass(2);
      const entry = entries.get(petId)!;
      const times = { callMs, returnMs: pass(2), status: 200 };
      if (kind === "entry") {
        reads.push({ ...times, kind, petIds: [petId], tag: `r${entry.revision}`, body: row(entry) });
      } else {
        const body = petIds.map((one) => row(entries.get(one)!));
        reads.push({ ...times, kind, tag: `${epoch.slice(0, 8)}-${revision}`, body });
      }
    }
  }
  return { commits, changes, reads } satisfies History;
}

type Damage = (history: ReturnType<typeof goodHistory>, random: Random) => History;

/** How a broken system would have answered. */
const damages: Readonly<Record<string, Damage>> = {
  "a read is older": ({ reads, ...rest }, random) => {
    const lists = reads.filter(({ kind }) => kind === "list");
    const { tag, body } = lists[0]!;
    const later = random.pick(lists.filter((list) => list.tag !== tag));
    return { ...rest, reads: reads.map((read) => (read === later ? { ...read, tag, body } : read)) };
  },
  "a list is torn": ({ reads, ...rest }, random) => {
    const torn = random.pick(reads.filter(({ kind }) => kind === "list"));
    const body = (torn.body as { quantity: number }[]).map((one, i) => (i === 2 ? { ...one, quantity: 5 } : one));
    return { ...rest, reads: reads.map((read) => (read === torn ? { ...read, body } : read)) };
  },
  "an acknowledged change is not there": ({ commits, ...rest }, random) => {
    const lost = random.pick(commits.slice(1));
    return { ...rest, commits: commits.map((one) => (one === lost ? { ...one, rows: one.rows.slice(1) } : one)) };
  },
  "a change happens that nobody asked for": ({ changes, ...rest }, random) => {
    const dropped = random.pick(changes);
    return { ...rest, changes: changes.filter((change) => change !== dropped) };
  },
  "an effect is doubled": ({ commits, changes, reads }, random) => {
    const at = 1 + random.below(commits.length - 1);
    const last = commits.at(-1)!;
    const rows = commits[at]!.rows.map((one, i) => ({ ...one, revision: last.revision + 1n + BigInt(i) }));
    const again = { ...last, atMs: last.atMs + 50, revision: rows.at(-1)!.revision, rows };
    return { commits: [...commits, again], changes, reads };
  },
  "an answer shows what the entry never was": ({ changes, ...rest }, random) => {
    const { attempts } = random.pick(changes);
    const { outcome } = attempts[0]!;
    attempts[0]!.outcome = { ...(outcome as Extract<typeof outcome, { kind: "done" }>), status: "sold" };
    return { ...rest, changes };
  },
  "a revision changes nothing": ({ commits, ...rest }) => {
    const last = commits.at(-1)!;
    const rows = [{ ...last.rows[0]!, revision: last.revision + 1n }];
    return { ...rest, commits: [...commits, { ...last, atMs: last.atMs + 50, revision: last.revision + 1n, rows }] };
  },
  "removals are forgotten too early": ({ commits, reads, ...rest }) => {
    const since = `${epoch.slice(0, 8)}-${commits[1]!.revision}`;
    const { atMs } = commits.at(-1)!;
    const refused = {
      kind: "changes",
      since,
      callMs: atMs,
      returnMs: atMs + 1,
      status: 410,
      tag: "",
      body: undefined,
    } as const;
    const floors = [{ atMs, revision: commits[1]!.revision }];
    return { ...rest, commits, floors, reads: [...reads, refused] };
  },
  "an adjustment is made by half": ({ commits, changes, reads }, random) => {
    const { group = [] } = random.pick(changes.filter(({ group = [] }) => group.length === 2));
    const { revision } = group[1]!.attempts[0]!.outcome as { revision: bigint };
    for (const { attempts } of group) attempts[0]!.outcome = { kind: "unknown", isAnswered: true };
    const half = commits.map((one) => {
      const rows = one.rows.filter((each) => each.revision !== revision);
      return rows.length === one.rows.length ? one : { ...one, rows, revision: rows[0]!.revision };
    });
    return { commits: half, changes, reads: reads.slice(0, 0) };
  },
};

test("the oracle of the simulation finds nothing in a good history", () => {
  for (let seed = 1; seed <= 50; seed++) expect(judge(goodHistory(new Random(seed)))).toEqual([]);
});

test("the oracle knows that one commit can hold an entry's creation and its removal", () => {
  const { commits, changes, reads } = goodHistory(new Random(1));
  const { atMs, revision } = commits.at(-1)!;
  const unanswered = { callMs: atMs, returnMs: atMs + 9, outcome: { kind: "unknown", isAnswered: true } } as const;
  const row = { petId: 9, revision: revision + 2n, quantity: 5, status: "available", removed: true };
  const commit: Commit = { atMs: atMs + 1, epoch, revision: row.revision, rows: [row], isRestore: false };
  const kinds = [{ kind: "create", quantity: 5 } as const, { kind: "remove" } as const];
  const made = kinds.map((change): AskedChange => ({ ...change, petId: 9, attempts: [unanswered] }));
  expect(judge({ commits: [...commits, commit], changes: [...changes, ...made], reads })).toEqual([]);
  expect(judge({ commits: [...commits, commit], changes: [...changes, made[0]!], reads })).toHaveLength(1);
});

test("the oracle judges a million operations, some of them without an answer, in a minute", () => {
  const { changes, ...rest } = goodHistory(new Random(1), 800_000); // a quarter of them change two entries
  for (const [i, { kind, attempts }] of changes.entries()) {
    if (kind === "set" && i % 100 === 0) attempts[0]!.outcome = { kind: "unknown", isAnswered: false };
  }
  expect(changes.length + rest.reads.length).toBeGreaterThan(990_000);
  expect(judge({ ...rest, changes })).toEqual([]);
}, 60_000);

test.each(Object.keys(damages))("the oracle of the simulation finds that %s", (name) => {
  for (let seed = 1; seed <= 170; seed++) {
    const random = new Random(seed);
    const damaged = damages[name]!(goodHistory(random), random);
    if (judge(damaged).length === 0) throw new Error(`not found in the history of seed ${seed}`);
  }
});

test("the oracle judges real processes, too: it brings no virtual clock and no chance of its own", () => {
  expect(String(Math.random)).toContain("[native code]");
});
