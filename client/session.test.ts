import { randomBytes } from "node:crypto";
import {
  type ChecksStream,
  type ScriptedServiceOptions,
  startScriptedService,
} from "../test/support/scripted-service.ts";
import { suiteStack } from "../test/support/stack.ts";
import { until } from "../test/support/until.ts";
import { Session } from "./session.ts";

const stack = suiteStack();
const question = { epoch: "e", revision: 1n, traceparent: undefined };
const isLast = ({ more }: { more: boolean }) => !more;

async function open(options: ScriptedServiceOptions, timeoutMs = 5_000) {
  const { stub, checks: streams } = await startScriptedService(stack, options);
  return { session: await Session.open(stub.checkInventory(), timeoutMs), streams };
}

test("a question that a service has not taken before it ended the stream is known not to be done", async () => {
  const { session } = await open({ onQuestion: (stream) => stream.end() });
  const error = { code: "UNAVAILABLE", errorReason: "NOT_SENT", mayHaveHappened: false };
  await expect(session.ask(question, isLast, 5_000)).rejects.toMatchObject(error);
  expect(session.isOver).toBe(true);
  await expect(session.ask(question, isLast, 5_000)).rejects.toMatchObject(error);
});

test("a question whose stream breaks has an unknown outcome, whatever the status of the stream", async () => {
  for (const code of [14, 99, -1]) {
    const { session } = await open({ onQuestion: (stream) => stream.fail(code) });
    await expect(session.ask(question, isLast, 5_000)).rejects.toMatchObject({ mayHaveHappened: true });
  }
});

test.each<[string, (stream: ChecksStream) => void]>([
  ["says nothing", () => {}],
  ["ends it with OK", (stream) => stream.end()],
  ["breaks it", (stream) => stream.fail()],
])("a stream that the service does not accept is no session: it %s", async (_what, onChecks) => {
  await expect(open({ onChecks }, 300)).rejects.toMatchObject({ code: "UNAVAILABLE", errorReason: "NOT_SENT" });
});

test("a refusal of a stream keeps its status", async () => {
  const refused = open({ onChecks: (stream) => stream.fail(7) });
  await expect(refused).rejects.toMatchObject({ code: "PERMISSION_DENIED", mayHaveHappened: false });
});

test("a part of an answer that arrives while the thread is busy is taken, however late that is", async () => {
  const { session, streams } = await open({});
  const asked = session.ask(question, isLast, 2_000);
  await until(() => streams[0]!.questions.length === 1);
  streams[0]!.say({ more: true });
  await new Promise((resolve) => setTimeout(resolve, 100));
  randomBytes(1, () => streams[0]!.say({ more: true }));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_200);
  await new Promise((resolve) => setTimeout(resolve, 100));
  streams[0]!.say({ more: false });
  await asked;
});

test("an answer that nobody has asked for is not taken for that of the next question", async () => {
  const { session, streams } = await open({
    onQuestion: (stream) => {
      stream.say({ more: false });
      stream.say({ more: false });
    },
  });
  await session.ask(question, isLast, 5_000);
  await until(() => session.isOver && streams[0]!.isCancelled);
});
