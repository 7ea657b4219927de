import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import {
  type ChecksStream,
  type ScriptedServiceOptions,
  startScriptedService,
} from "../test/support/scripted-service.ts";
import { suiteStack } from "../test/support/stack.ts";
import { until } from "../test/support/until.ts";
import { Checks } from "./checks.ts";
import { createInventoryClient } from "./index.ts";

const stack = suiteStack();
const position = { epoch: "e", revision: 1n };
const item = (petId: bigint, quantity = 1, wireStatus = 1) => {
  return { petId, quantity, status: wireStatus as 1, revision: 2n };
};
const answer = (stream: ChecksStream) => stream.say({ epoch: "e", revision: 2n });

async function open(options: ScriptedServiceOptions, silenceMs = 5_000) {
  const { stub, checks: streams } = await startScriptedService(stack, options);
  const checks = new Checks(() => stub.checkInventory(), silenceMs);
  stack.defer(() => checks.close());
  return { checks, streams };
}

test("an answer in parts has the latest state of each entry, and its parts are reported", async () => {
  const { checks } = await open({
    onQuestion: (stream) => {
      const part = { epoch: "e", more: true };
      stream.say({ ...part, revision: 2n, items: [item(1n), item(2n), { ...item(3n), removed: true }] });
      stream.say({ ...part, revision: 3n, items: [item(3n, 7), { ...item(2n), removed: true }] });
      stream.say({ epoch: "e", revision: 4n, items: [item(1n, 8)], floor: 1n });
    },
  });
  let parts = 0;
  const onPart = () => {
    parts += 1;
  };
  expect(await checks.ask(position, { onPart })).toMatchObject({
    kind: "changes",
    position: { epoch: "e", revision: 4n },
    items: [
      { petId: 1n, quantity: 8, removed: false },
      { petId: 2n, removed: true },
      { petId: 3n, quantity: 7, removed: false },
    ],
    floor: 1n,
  });
  expect(parts).toBe(2);
});

test("an answer with many changes is cut off after a part, and another stream gives the rest", async () => {
  const { checks, streams } = await open({
    onQuestion: (stream) => {
      const { revision: from } = (stream as ChecksStream).questions.at(-1)!;
      if (from === 6n) stream.say({ epoch: "e", revision: from });
      for (let revision = from + 1n; revision <= 6n; revision++) {
        stream.say({ epoch: "e", revision, more: revision < 6n, items: [item(revision)] });
      }
    },
  });
  const petIds = [];
  let at = { epoch: "e", revision: 0n };
  for (const revision of [2n, 4n, 6n]) {
    const changes = await checks.ask(at, { maxChanges: 2 });
    expect(changes).toMatchObject({ position: { revision }, more: revision < 6n });
    if (changes.kind === "reset") break;
    petIds.push(...changes.items.map(({ petId }) => petId));
    at = changes.position;
  }
  expect(petIds).toEqual([1n, 2n, 3n, 4n, 5n, 6n]);
  expect(streams).toHaveLength(3);
  await until(() => streams[0]!.isCancelled && streams[1]!.isCancelled);
  await checks.ask(at);
  expect(streams).toHaveLength(3); // the answer that was complete leaves its stream to the next check
});

test("checks share a stream for as long as the service keeps it open, then take another one", async () => {
  const { checks, streams } = await open({
    onQuestion: (stream) => {
      answer(stream);
      if (stream.questions.length === 2) stream.end();
    },
  });
  for (let i = 0; i < 5; i++) expect(await checks.ask(position)).toMatchObject({ kind: "changes" });
  expect(streams.map(({ questions }) => questions.length)).toEqual([2, 2, 1]);
});

test("a check is asked again in a short outage, and each setback is reported", async () => {
  const { checks, streams } = await open({
    onQuestion: (stream, index) => [stream.end, () => stream.fail(), () => answer(stream)][index]!(),
  });
  const setbacks: unknown[] = [];
  expect(await checks.ask(position, { onSetback: ({ code }) => setbacks.push(code) })).toMatchObject({
    kind: "changes",
  });
  expect(setbacks).toEqual(["UNAVAILABLE", "UNAVAILABLE"]);
  expect(streams).toHaveLength(3);
});

test("after a second another stream is asked, too, and the first to answer is kept", async () => {
  const { checks, streams } = await open({ onQuestion: (stream, index) => index === 1 && answer(stream) });
  expect(await checks.ask(position)).toMatchObject({ kind: "changes" });
  await until(() => streams[0]!.isCancelled);
  expect(await checks.ask(position)).toMatchObject({ kind: "changes" });
  expect(streams).toHaveLength(2);
});

test("a service that has begun to answer is waited for, part by part, and no other one is asked", async () => {
  const { checks, streams } = await open({ onQuestion: () => {} }, 1_500);
  const asked = checks.ask(position);
  await until(() => streams[0]?.questions.length === 1);
  for (let part = 0; part < 3; part++) {
    streams[0]!.say({ epoch: "e", revision: 2n, more: true, items: [item(BigInt(part))] });
    await new Promise((resolve) => setTimeout(resolve, 700));
  }
  answer(streams[0]!);
  expect(await asked).toMatchObject({ items: { length: 3 } });
  expect(streams).toHaveLength(1);
});

test("a check ends when no service answers, and when an answer stops in the middle", async () => {
  const { checks } = await open({ onQuestion: () => {} }, 300);
  await expect(checks.ask(position)).rejects.toMatchObject({ code: "DEADLINE_EXCEEDED" });
  const half = await open({ onQuestion: (stream) => stream.say({ epoch: "e", more: true }) }, 1_000);
  await expect(half.checks.ask(position)).rejects.toMatchObject({ code: "DEADLINE_EXCEEDED" });
});

test("a check ends when a service accepts connections and no streams, as a frozen one does", async () => {
  const frozen = createServer((socket) => {
    socket.on("error", () => {}).resume();
    stack.defer(() => void socket.destroy()); // grpc-js leaves a connection open that gets no answer
  }).listen(0, "127.0.0.1");
  stack.defer(() => void frozen.close());
  await once(frozen, "listening");
  const client = createInventoryClient({
    address: `127.0.0.1:${(frozen.address() as AddressInfo).port}`,
    timeoutMs: 1_200,
  });
  stack.defer(() => client.close());
  await expect(client.changesAfter(position)).rejects.toMatchObject({ code: "UNAVAILABLE", errorReason: "NOT_SENT" });
});

test("an answer that arrives while the thread is busy is taken, however late that is", async () => {
  const { checks, streams } = await open(
    { onQuestion: (stream) => stream.questions.length === 1 && answer(stream) },
    800,
  );
  await checks.ask(position);
  const asked = checks.ask(position);
  await until(() => streams[0]!.questions.length === 2);
  randomBytes(1, () => answer(streams[0]!));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 950);
  expect(await asked).toMatchObject({ kind: "changes" });
});

test.each([[false], [true]])(
  "an entry with an unknown status fails its check and no other (more messages follow: %s)",
  async (more) => {
    const { checks } = await open({
      onQuestion: (stream, index) => {
        if (index === 0 && stream.questions.length === 1) {
          stream.say({ epoch: "e", items: [item(1n, 1, 99)], more });
          if (more) stream.say({ epoch: "e", items: [item(2n)] });
        } else stream.say({ epoch: "e", items: [item(3n)] });
      },
    });
    await expect(checks.ask(position)).rejects.toThrow("does not understand");
    expect(await checks.ask(position)).toMatchObject({ items: [{ petId: 3n }] });
  },
);

test("a stream that is accepted after the end of its check is not asked", async () => {
  const { checks, streams } = await open({ onChecks: (stream, index) => index === 0 && stream.accept() }, 1_800);
  await expect(checks.ask(position)).rejects.toMatchObject({ code: "DEADLINE_EXCEEDED" });
  await until(() => streams.length === 2);
  streams[1]!.accept();
  await until(() => streams[1]!.isCancelled);
  expect(streams[1]!.questions).toEqual([]);
});

test("a refusal of the service ends a check at once", async () => {
  const { checks, streams } = await open({ onQuestion: (stream) => stream.refuse("ROLE_REQUIRED") });
  await expect(checks.ask(position)).rejects.toMatchObject({ code: "PERMISSION_DENIED" });
  expect(streams).toHaveLength(1);
});

test("a check ends with its signal's reason, in its own time, and gives its stream up", async () => {
  const { checks, streams } = await open({ onQuestion: () => {} });
  const giveUp = new AbortController();
  const asked = checks.ask(position, { signal: giveUp.signal });
  await until(() => streams[0]?.questions.length === 1);
  giveUp.abort("not wanted");
  await expect(asked).rejects.toBe("not wanted");
  await until(() => streams[0]!.isCancelled);
  await expect(checks.ask(position, { signal: giveUp.signal })).rejects.toBe("not wanted");
  const startedMs = performance.now();
  await expect(checks.ask(position, { silenceTimeoutMs: 200 })).rejects.toMatchObject({ code: "DEADLINE_EXCEEDED" });
  expect(performance.now() - startedMs).toBeLessThan(1_000);
});

test("a close ends the check that is under way, and every later one", async () => {
  const { checks, streams } = await open({ onQuestion: () => {} });
  const asked = checks.ask(position);
  await until(() => streams[0]?.questions.length === 1);
  checks.close();
  await expect(asked).rejects.toMatchObject({ code: "CANCELLED" });
  await expect(checks.ask(position)).rejects.toMatchObject({ code: "CANCELLED" });
  await until(() => streams[0]!.isCancelled);
});
