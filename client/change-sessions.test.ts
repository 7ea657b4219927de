import { setTimeout } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import {
  type ChangesStream,
  type ScriptedServiceOptions,
  startScriptedService,
} from "../test/support/scripted-service.ts";
import { suiteStack } from "../test/support/stack.ts";
import { until } from "../test/support/until.ts";
import type { ChangeOutcome, ChangeRequest } from "./change-requests.ts";
import { ChangeSessions } from "./change-sessions.ts";
import type { InventoryError } from "./inventory-error.ts";
import { lateAfterMs } from "./session.ts";

const stack = suiteStack();

const update = (petId: bigint): ChangeRequest => ({ changes: [{ petId, quantity: 1 }] });
const keyed = (petId: bigint): ChangeRequest => ({ ...update(petId), idempotencyKey: { key: "k" } });
const petIdsOf = ({ questions }: ChangesStream, i = questions.length - 1) =>
  questions[i]?.groups.flatMap(({ changes }) => changes.map(({ petId }) => petId));
const item = (petId: bigint, wireStatus = 1) => ({ petId, quantity: 1, status: wireStatus as 1, revision: 9n });
/** Answers the latest question of a stream: each change is done. */
const answer = (stream: ChangesStream) =>
  stream.say({ results: petIdsOf(stream)!.map((petId) => ({ item: item(petId) })) });

async function open(options: ScriptedServiceOptions = {}) {
  const { stub, changes: streams } = await startScriptedService(stack, options);
  const sessions = new ChangeSessions(() => stub.applyChanges());
  stack.defer(() => sessions.close());
  /** Submits a request of one change. @returns its outcome */
  const submit = async (request: ChangeRequest, timeoutMs = 10_000, isWanted = () => true) => {
    const [outcome] = await sessions.submit(request, performance.now() + timeoutMs, isWanted);
    return outcome!;
  };
  return { sessions, streams, submit };
}

test("the changes of one turn share a message, and each caller gets its own outcome", async () => {
  const { streams, submit } = await open({ onQuestion: answer });
  const outcomes = await Promise.all([1n, 2n, 3n].map((petId) => submit(update(petId))));
  expect(outcomes).toMatchObject([{ petId: 1n }, { petId: 2n }, { petId: 3n }]);
  expect(streams.map((stream) => petIdsOf(stream))).toEqual([[1n, 2n, 3n]]);
});

test.each([
  ["fewer results than changes", []],
  ["more results than changes", [{ item: item(1n) }, { item: item(1n) }]],
  ["the entry of another change", [{ item: item(2n) }]],
])("an answer with %s is none, and nothing of its stream is used any more", async (_, results) => {
  const { streams, submit } = await open({ onQuestion: (stream) => stream.say({ results }) });
  expect(await submit(keyed(1n))).toMatchObject({ code: "UNKNOWN", mayHaveHappened: true });
  await until(() => streams[0]!.isCancelled);
});

test("a message has at most 64 changes, and at most four messages are under way", async () => {
  const { streams, submit } = await open();
  const sent = Array.from({ length: 300 }, (_, i) => submit(update(BigInt(i))));
  await until(() => streams.length === 4 && streams.every(({ questions }) => questions.length === 1));
  expect(streams.map((stream) => petIdsOf(stream)!.length)).toEqual([64, 64, 64, 64]);
  answer(streams[0]!);
  await until(() => streams[0]!.questions.length === 2);
  expect(petIdsOf(streams[0]!)).toHaveLength(300 - 4 * 64);
  for (const stream of streams) answer(stream);
  expect(await Promise.all(sent)).toMatchObject(sent.map((_, i) => ({ petId: BigInt(i) })));
  expect(streams).toHaveLength(4);
});

test("after a second without an answer, further changes go over another stream", async () => {
  const { streams, submit } = await open({
    onQuestion: (stream, index) => index >= 4 && answer(stream),
  });
  const late: Promise<ChangeOutcome>[] = [];
  for (let i = 0; i < 4; i++) {
    late.push(submit(update(BigInt(i))));
    await until(() => streams[i]?.questions.length === 1);
  }
  expect(await submit(update(7n))).toMatchObject({ petId: 7n });
  for (const stream of streams.slice(0, 4)) answer(stream); // an answer that is late still counts
  expect(await Promise.all(late)).toMatchObject([{ petId: 0n }, { petId: 1n }, { petId: 2n }, { petId: 3n }]);
});

test("a session whose answer was late carries what waits for a stream that is being opened", async () => {
  const { streams, submit } = await open({ onChanges: (stream, index) => index === 0 && stream.accept() });
  const late = submit(update(1n));
  await until(() => streams[0]?.questions.length === 1);
  await setTimeout(lateAfterMs);
  const next = submit(update(2n), lateAfterMs / 2); // it ends before the opening of the other stream is late
  await until(() => streams.length === 2);
  answer(streams[0]!);
  expect(await late).toMatchObject({ petId: 1n });
  await until(() => streams[0]!.questions.length === 2);
  answer(streams[0]!);
  expect(await next).toMatchObject({ petId: 2n });
});

test("a session whose answer was late carries nothing while another one is idle", async () => {
  const { streams, submit } = await open({ onQuestion: (stream, index) => index > 0 && answer(stream) });
  const late = submit(update(1n));
  await until(() => streams[0]?.questions.length === 1);
  await submit(update(2n));
  await setTimeout(lateAfterMs);
  answer(streams[0]!);
  await late;
  for (const petId of [3n, 4n, 5n]) await submit(update(petId));
  expect(streams.map(({ questions }) => questions.length)).toEqual([1, 4]);
});

test("changes wait for no stream that a service does not accept: another one takes them", async () => {
  const { streams, submit } = await open({
    onChanges: (stream, index) => index > 0 && stream.accept(),
    onQuestion: answer,
  });
  expect(await submit(update(1n))).toMatchObject({ petId: 1n });
  expect(streams.map(({ questions }) => questions.length)).toEqual([0, 1]);
});

test("what was sent over a stream that breaks may still happen, so it ends at its deadline", async () => {
  // grpc-js and proxies make such statuses of resets: they look like refusals, and no service has said them.
  for (const code of [status.UNAVAILABLE, status.RESOURCE_EXHAUSTED, status.PERMISSION_DENIED, status.INTERNAL]) {
    const { submit } = await open({ onQuestion: (stream) => stream.fail(code) });
    const startedMs = performance.now();
    const outcome = await submit(update(1n), 300);
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(300);
    expect(outcome).toMatchObject({ code: "DEADLINE_EXCEEDED", mayHaveHappened: true });
    expect(await submit(keyed(1n))).toMatchObject({ code: "UNAVAILABLE", mayHaveHappened: true });
  }
});

test("what a service has not taken before it ended the stream has not happened", async () => {
  const { submit } = await open({ onQuestion: (stream) => stream.end() });
  expect(await submit(update(1n))).toMatchObject({
    code: "UNAVAILABLE",
    errorReason: "NOT_SENT",
    mayHaveHappened: false,
  });
});

test("what waits for a service that is away has not happened", async () => {
  const { submit } = await open({ onChanges: (stream) => stream.fail(status.UNAVAILABLE) });
  expect(await submit(update(1n))).toMatchObject({ code: "UNAVAILABLE", errorReason: "NOT_SENT" });
});

test("a change that times out before it was sent is never sent, and has not happened", async () => {
  const opened = Promise.withResolvers<ChangesStream>();
  const { submit, streams } = await open({ onChanges: opened.resolve, onQuestion: answer });
  expect(await submit(update(1n), 50)).toMatchObject({ code: "DEADLINE_EXCEEDED", mayHaveHappened: false });
  const next = submit(update(2n));
  (await opened.promise).accept();
  await next;
  expect(petIdsOf(streams[0]!)).toEqual([2n]);
});

test("the changes of a caller that has left are not sent", async () => {
  const opened = Promise.withResolvers<ChangesStream>();
  const { submit, streams } = await open({ onChanges: opened.resolve, onQuestion: answer });
  let isHere = true;
  const left = submit(update(1n), 10_000, () => isHere);
  const stays = submit(update(2n));
  const stream = await opened.promise;
  isHere = false;
  stream.accept();
  expect(await left).toMatchObject({ code: "CANCELLED", mayHaveHappened: false });
  await stays;
  expect(petIdsOf(streams[0]!)).toEqual([2n]);
});

test("a caller that is found to have left one turn later has nothing sent", async () => {
  const { submit, streams } = await open({ onQuestion: answer });
  await submit(update(1n));
  await new Promise(setImmediate); // the session is free
  const before = submit(update(2n));
  await new Promise(setImmediate);
  let isHere = true;
  const left = submit(update(3n), 10_000, () => isHere);
  setImmediate(() => {
    isHere = false;
  });
  expect(await left).toMatchObject({ code: "CANCELLED", mayHaveHappened: false });
  await before;
  expect(streams.flatMap(({ questions }) => questions.flatMap(({ groups }) => groups.length))).toEqual([1, 1]);
});

test("a deadline is earlier than its caller's, by a service's clock that is 0.5 % slow, too", async () => {
  let acceptedMs = Number.NaN;
  const { submit, streams } = await open({
    onChanges: (stream) => {
      acceptedMs = performance.now();
      stream.accept();
    },
    onQuestion: answer,
  });
  const endMs = performance.now() + 5_000;
  await submit(update(1n), 5_000);
  const deadlineMs = streams[0]!.questions[0]!.groups[0]!.deadlineMs;
  expect(acceptedMs + deadlineMs / 0.995).toBeLessThanOrEqual(endMs + 1);
  expect(acceptedMs + deadlineMs).toBeGreaterThan(endMs - 1_000);
});

test("an entry that cannot be read fails its own caller alone", async () => {
  const { submit } = await open({
    onQuestion: (stream) => stream.say({ results: [{ item: item(1n, 99) }, { item: item(2n) }] }),
  });
  expect(await Promise.all([submit(update(1n)), submit(update(2n))])).toMatchObject([
    { code: "INTERNAL" },
    { petId: 2n },
  ]);
});

test("an account has at most half of the 10,000 places for changes that the others leave", async () => {
  const { sessions } = await open({ onChanges: () => {} });
  const changes = Array.from({ length: 100 }, (_, i) => ({ petId: BigInt(i), quantity: 1 }));
  const send = (account?: string) => {
    const actor = account === undefined ? undefined : { account, keyId: "k" };
    return sessions.submit({ changes, actor }, performance.now() + 10_000, () => true);
  };
  const sent = ["a", "b", undefined].flatMap((account) => Array.from({ length: 60 }, () => send(account)));
  expect(sessions.changesInFlight).toBe(5_000 + 2_500 + 1_200);
  sessions.close();
  const outcomes = (await Promise.all(sent)).map(([first]) => (first as InventoryError).code);
  const ends = [50, 25, 12].flatMap((places) => {
    return [...Array(places).fill("CANCELLED"), ...Array(60 - places).fill("RESOURCE_EXHAUSTED")];
  });
  expect(outcomes).toEqual(ends);
  expect(sessions.changesInFlight).toBe(0);
});

test("after its close a client sends nothing more, and what was sent still gets its outcome", async () => {
  const { sessions, streams, submit } = await open();
  const sent = submit(update(1n));
  await until(() => streams[0]?.questions.length === 1);
  sessions.close();
  expect(await submit(update(2n))).toMatchObject({ code: "CANCELLED", mayHaveHappened: false });
  answer(streams[0]!);
  expect(await sent).toMatchObject({ petId: 1n });
  await until(() => streams[0]!.isCancelled);
});
