import { suiteStack } from "../test/support/stack.ts";
import { createInventoryClient } from "./index.ts";

const stack = suiteStack();
const wrong = (value: unknown) => value as never;
const position = { epoch: "e", revision: 1n };
const options = "silenceTimeoutMs, signal";
const change = { petId: 1n, quantity: 8 };
const caller = { endMs: () => performance.now() + 1_000, isWanted: () => true, mayRetry: () => true };

function open() {
  const client = createInventoryClient({ address: "127.0.0.1:1", timeoutMs: 1 }); // no service: nothing may be sent
  stack.defer(() => client.close());
  return client;
}

/** Resolves to the message of each call's error. */
const messagesOf = (calls: readonly (() => Promise<unknown>)[]) =>
  Promise.all(
    calls.map((call) =>
      call().then(
        () => "OK",
        ({ message }: Error) => message,
      ),
    ),
  );

test("every call refuses an option that it does not know, one of a wrong type, and null for all", async () => {
  const client = open();
  const calls: ((given: never) => Promise<unknown>)[] = [
    (given) => client.get(1n, given),
    (given) => client.getMany([1n], given),
    (given) => client.update(change, given),
    (given) => client.adjust({ petId: 1n, delta: 1, requestId: "a" }, given),
    (given) => client.adjustMany({ adjustments: [{ petId: 1n, delta: 1 }], requestId: "a" }, given),
    (given) => client.setStatus({ petId: 1n, status: "sold" }, given),
    (given) => client.create(change, given),
    (given) => client.remove(1n, given),
    (given) => client.history({}, given),
    (given) => Array.fromAsync(client.list(given)),
    (given) => client.changesAfter(position, given),
    (given) => Array.fromAsync(client.watch(position, given)),
  ];
  const messages = async (given: unknown) => messagesOf(calls.map((call) => () => call(wrong(given))));
  for (const message of await messages({ timeout: 5 })) {
    expect(message).toMatch(/^INVALID_ARGUMENT: there is no argument timeout, only /);
  }
  expect((await messages({ timeoutMs: "5" })).slice(0, -3)).toEqual(
    calls.slice(3).map(() => "INVALID_ARGUMENT: timeoutMs must be a number"),
  );
  const inParts = (await messages({ silenceTimeoutMs: "5" })).slice(-3, -1); // a list, and what has changed
  expect(inParts).toEqual(inParts.map(() => "INVALID_ARGUMENT: silenceTimeoutMs must be a number"));
  for (const message of await messages({ signal: "now" })) {
    expect(message).toBe("INVALID_ARGUMENT: signal must be an AbortSignal");
  }
  for (const given of [null, 5]) {
    for (const message of await messages(given))
      expect(message).toMatch(/^INVALID_ARGUMENT: an object is needed, with/);
  }
});

const adjustTwo = (client: ReturnType<typeof open>, second: { readonly petId: bigint; readonly delta: number }) =>
  client.adjustMany({ adjustments: [{ petId: 1n, delta: 1 }, second], requestId: "a" });

test.each<[string, (client: ReturnType<typeof open>) => Promise<unknown>, string]>([
  [
    "a misspelt place of a list",
    (client) => Array.fromAsync(client.list(wrong({ afterPetID: 5n }))),
    `there is no argument afterPetID, only ${options}, afterPetId, withRemoved`,
  ],
  [
    "an entry as the options of a list",
    (client) => Array.fromAsync(client.list(wrong({ petId: 5n }))),
    `there is no argument petId, only ${options}, afterPetId, withRemoved`,
  ],
  [
    "the time-out of a watch, which has none",
    (client) => Array.fromAsync(client.watch(position, wrong({ timeoutMs: 5 }))),
    "there is no argument timeoutMs, only signal, onBreak",
  ],
  [
    "a place of a list that is no bigint",
    (client) => Array.fromAsync(client.list(wrong({ afterPetId: 5 }))),
    "afterPetId must be a bigint, such as 1001n",
  ],
  [
    "null in place of an update",
    (client) => client.update(wrong(null)),
    "an object is needed, with petId, quantity, expectedRevision, idempotencyKey, reason",
  ],
  [
    "two adjustments of one entry",
    (client) => adjustTwo(client, { petId: 1n, delta: 2 }),
    "adjustments must name each petId once",
  ],
  [
    "the place of an adjustment that is wrong",
    (client) => adjustTwo(client, { petId: 2n, delta: 0.5 }),
    "adjustments[1].delta must be an integer from -2147483648 to 2147483647",
  ],
])("the client names %s", async (_name, call, message) => {
  expect(await messagesOf([() => call(open())])).toEqual([`INVALID_ARGUMENT: ${message}`]);
});

test("apply refuses what is misspelt or of a wrong type, at each level of its request", async () => {
  const client = open();
  const requests: [unknown, string][] = [
    [{ changes: [{ ...change, expectedRevision: 1n }] }, "there is no argument expectedRevision, only petId, quantity"],
    [{ changes: [{ ...change, expectedRevisions: 1n }] }, "expectedRevisions must be an array of 1 to 20"],
    [{ changes: [{ ...change, expectedRevisions: [] }] }, "expectedRevisions must be an array of 1 to 20"],
    [{ changes: [{ petId: 1, quantity: 8 }] }, "petId must be a bigint, such as 1001n"],
    [{ changes: [{ petId: 1n, delta: "1", requestId: "a" }] }, "delta must be an integer"],
    [{ changes: [] }, "changes must be an array of 1 to 100"],
    [{ change }, "there is no argument change, only changes"],
    [{ changes: [change], idempotencyKey: "a" }, "an object is needed, with account, key, fingerprint"],
    [{ changes: [change], idempotencyKey: { keys: "a" } }, "there is no argument keys, only account, key"],
    [{ changes: [change], idempotencyKey: {} }, "key must be a string"],
    [{ changes: [change], actor: { account: "a", key: "b" } }, "there is no argument key, only account, keyId"],
    [{ changes: [change], actor: { keyId: "b" } }, "account must be a string"],
    [{ changes: [change], actor: { account: "a" } }, "keyId must be a string"],
    [{ changes: [change], isAllOrNothing: "no" }, "isAllOrNothing must be true or false"],
    [undefined, "an object is needed, with changes"],
  ];
  const messages = await messagesOf(
    requests.map(
      ([request]) =>
        () =>
          client.apply(wrong(request), caller),
    ),
  );
  expect(messages).toEqual(requests.map(([, message]) => expect.stringContaining(`INVALID_ARGUMENT: ${message}`)));
});

test("apply refuses what it would leave out: a requestId or a delta beside a quantity", async () => {
  const client = open();
  const requestId = "a";
  const messages = await messagesOf([
    // @ts-expect-error an update has a key
    () => client.apply({ changes: [{ ...change, requestId }] }, caller),
    // @ts-expect-error one or the other
    () => client.apply({ changes: [{ ...change, delta: 1, requestId }] }, caller),
    // @ts-expect-error neither
    () => client.apply({ changes: [{ petId: 1n, requestId }] }, caller),
  ]);
  expect(messages).toEqual([
    "INVALID_ARGUMENT: requestId must not be there beside quantity: use an idempotencyKey",
    "INVALID_ARGUMENT: quantity must not be there beside delta: use one of them",
    "INVALID_ARGUMENT: quantity must be an integer from 0 to 2147483647",
  ]);
});

test("a member of a change that is undefined is one that is not there", async () => {
  const client = open();
  const [delta, quantity, requestId] = [undefined, undefined, undefined];
  const outcomes = await Promise.all([
    client.apply({ changes: [{ ...change, delta, requestId }] }, caller),
    client.apply({ changes: [{ petId: 1n, delta: 1, quantity, requestId }] }, caller),
  ]);
  expect(outcomes).toMatchObject([[{ code: "UNAVAILABLE" }], [{ code: "UNAVAILABLE" }]]);
});

test("apply needs the three members of its caller, and takes no options in their place", async () => {
  const client = open();
  const { mayRetry: _, ...without } = caller;
  const callers: [unknown, string][] = [
    [undefined, "an object is needed, with endMs, isWanted, mayRetry"],
    [{ timeoutMs: 5_000 }, "there is no argument timeoutMs, only endMs, isWanted, mayRetry"],
    [without, "mayRetry must be a function"],
    [{ ...caller, endMs: 5_000 }, "endMs must be a function"],
  ];
  const messages = await messagesOf(
    callers.map(
      ([given]) =>
        () =>
          client.apply({ changes: [change] }, wrong(given)),
    ),
  );
  expect(messages).toEqual(callers.map(([, message]) => `INVALID_ARGUMENT: ${message}`));
});

test("a client is not made with a setting that it does not know, or with TLS that lacks a file", () => {
  const [address, cert, key, ca] = ["h:1", "/cert", "/key", "/ca"];
  const all: [unknown, string][] = [
    [undefined, "an object is needed, with address, tls, log, onCertificate, timeoutMs"],
    [{ address, timeout: 5 }, "there is no argument timeout, only address, tls, log, onCertificate, timeoutMs"],
    [{ address, timeoutMs: "5" }, "timeoutMs must be a number"],
    [{ address, tls: null }, "an object is needed, with cert, key, ca, serverName"],
    [{ address, tls: { cert, key, ca, servername: "h" } }, "there is no argument servername, only cert"],
    [{ address, tls: { key, ca } }, "tls.cert must be the path of a PEM file"],
    [{ address, tls: { cert, ca } }, "tls.key must be the path of a PEM file"],
    [{ address, tls: { cert, key, ca: undefined } }, "tls.ca must be the path of a PEM file"],
  ];
  for (const [given, message] of all) {
    expect(() => createInventoryClient(wrong(given)).close()).toThrow(`INVALID_ARGUMENT: ${message}`);
  }
});
