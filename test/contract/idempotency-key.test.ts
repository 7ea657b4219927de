import { setTimeout as delay } from "node:timers/promises";
import { expectError, expectOutage, header, readLimits } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import type { Response } from "../support/http.ts";
import { startLink } from "../support/link.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const malformedKeys = [
  '""',
  '"',
  '"a',
  "a b",
  "ä",
  "a,b",
  "a;b",
  '"a"b',
  "x".repeat(65),
  `"${"x".repeat(65)}"`,
  "*",
  "(a)",
];

describe("Idempotency-Key", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;
  let keys = 0;
  /** A key that no other test uses. */
  const newKey = () => `key-${keys++}`;

  beforeAll(async () => {
    const petIds = Array.from({ length: 100 }, (_, i) => BigInt(i + 1));
    system = await startSystem({ seed: petIds.map((petId) => ({ petId, quantity: 5, status: "pending" })) });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  /** @param body a text is sent as it is */
  const send = (
    method: string,
    path: string,
    body: unknown,
    headers: Record<string, string | string[]>,
    address?: string,
  ) =>
    callApi(address ?? system.address, {
      method,
      path,
      headers: { authorization, "content-type": "application/json", ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  const patch = (petId: number, quantity: number, key?: string, headers: Record<string, string> = {}) =>
    send("PATCH", `/v1/inventory/${petId}`, { quantity }, { ...(key && { "idempotency-key": key }), ...headers });
  const post = (updates: object[], key: string, address?: string) =>
    send("POST", "/v1/inventory/updates", updates, { "idempotency-key": key }, address);
  const quantityOf = async (petId: number) => (await system.stored(BigInt(petId)))?.quantity;
  const isReplayed = (answer: Response) => answer.headers["idempotency-replayed"] === "true";

  describe("on PATCH", () => {
    test("gives a repeat the first result again, marked as replayed, and changes nothing", async () => {
      const key = newKey();
      const first = await patch(1, 6, key);
      expect(first.headers).not.toHaveProperty("idempotency-replayed");
      await patch(1, 7);
      const again = await patch(1, 6, key);
      expect(again).toMatchObject({ status: 200, text: first.text, headers: { etag: first.headers.etag } });
      expect(isReplayed(again)).toBe(true);
      expect(await quantityOf(1)).toBe(7);
    });

    test("records an update that changed nothing, too", async () => {
      const key = newKey();
      await patch(2, 8);
      const first = await patch(2, 8, key);
      await patch(2, 9);
      const again = await patch(2, 8, key);
      expect([again.text, isReplayed(again)]).toEqual([first.text, true]);
      expect(await quantityOf(2)).toBe(9);
    });

    test.each([
      ["a quantity", 11, {}],
      ["an If-Match", 10, { "if-match": '"r1"' }],
      ["an If-None-Match of *", 10, { "if-none-match": "*" }],
    ])(
      "is 422 for a request with the same key and another %s, and changes nothing",
      async (_what, quantity, headers) => {
        const key = newKey();
        await patch(3, 10, key);
        await patch(3, 12);
        expectError(await patch(3, quantity, key, headers), 422, "idempotency_key_reused");
        expect(await quantityOf(3)).toBe(12);
      },
    );

    test.each([
      ["6.0 in place of 6", '{"quantity":6.0}'],
      ["60e-1 in place of 6", '{"quantity":60e-1}'],
      ["spaces and line breaks", ' {\n\t"quantity" : 6 }\r\n'],
      ["an escaped letter in a name", '{"quantit\\u0079":6}'],
      ["a member that is not known", '{"note":"again","quantity":6}'],
    ])("a repeat of an update that is spelled with %s is a replay", async (_what, spelling) => {
      const key = newKey();
      const first = await send("PATCH", "/v1/inventory/13", '{"quantity":6}', { "idempotency-key": key });
      await patch(13, 7);
      const again = await send("PATCH", "/v1/inventory/13", spelling, { "idempotency-key": key });
      expect([again.status, again.text, isReplayed(again)]).toEqual([200, first.text, true]);
      expect(await quantityOf(13)).toBe(7);
    });

    test("is looked up before If-Match and before 404", async () => {
      const key = newKey();
      const etag = header(await patch(4, 20), "ETag");
      const first = await patch(4, 21, key, { "if-match": etag });
      expect(first.status).toBe(200);
      const again = await patch(4, 21, key, { "if-match": etag }); // which does not hold any more
      expect([again.status, again.text, isReplayed(again)]).toEqual([200, first.text, true]);

      const gone = newKey();
      const before = await patch(99, 21, gone);
      await new Promise((resolve, reject) => {
        system.client.removeInventoryItem({ petId: 99n }, (error) => (error ? reject(error) : resolve(undefined)));
      });
      expect(await patch(99, 21)).toMatchObject({ status: 404 });
      expect(await patch(99, 21, gone)).toMatchObject({ status: 200, text: before.text });
      expectError(await patch(99, 22, gone), 422, "idempotency_key_reused");
    });

    test("does not remember refusals", async () => {
      const key = newKey();
      expectError(await patch(5, 1, key, { "if-match": '"r1"' }), 412, "precondition_failed");
      expectError(await patch(4_711, 1, key), 404, "not_found");
      expectError(await patch(5, -1, key), 400, "invalid_request");
      const first = await patch(5, 30, key);
      expect([first.status, isReplayed(first)]).toEqual([200, false]);
    });

    test("belongs to the account and the petId", async () => {
      const key = newKey();
      const other = { authorization: `Bearer ${(await system.issueKey()).key}` };
      for (const answer of [await patch(6, 1, key), await patch(6, 2, key, other), await patch(7, 3, key)]) {
        expect([answer.status, isReplayed(answer)]).toEqual([200, false]);
      }
      const second = await system.issueKey({ account: "two keys" });
      const third = await system.issueKey({ account: "two keys" });
      await patch(6, 4, key, { authorization: `Bearer ${second.key}` });
      const again = await patch(6, 4, key, { authorization: `Bearer ${third.key}` });
      expect(isReplayed(again)).toBe(true);
    });

    test("may be a quoted string, which is the same key", async () => {
      const key = newKey();
      await patch(8, 40, `"${key}"`);
      expect(isReplayed(await patch(8, 40, key))).toBe(true);
      for (const longest of ["AZaz09_.:-", "x".repeat(64)]) expect((await patch(8, 41, longest)).status).toBe(200);
    });

    test.each(malformedKeys)("is 400 for the key %j, and nothing is changed", async (key) => {
      await patch(9, 50);
      expectError(await patch(9, 51, key), 400, "invalid_request", /^Idempotency-Key must be 1 to 64/);
      expect(await quantityOf(9)).toBe(50);
    });

    test("is 400 when it is empty or there twice", async () => {
      for (const value of ["", ["a", "b"]]) {
        const answer = await callApi(system.address, {
          method: "PATCH",
          path: "/v1/inventory/9",
          headers: { authorization, "content-type": "application/json", "idempotency-key": value },
          body: '{"quantity":51}',
        });
        expectError(answer, 400, "invalid_request", /^Idempotency-Key must be/);
      }
    });

    test("makes the second of two at once wait for the first", async () => {
      for (let round = 0; round < 10; round++) {
        const key = newKey();
        const answers = await Promise.all(Array.from({ length: 8 }, () => patch(10, round, key)));
        expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
        expect(answers.filter((answer) => !isReplayed(answer))).toHaveLength(1);
        expect(new Set(answers.map(({ text, headers }) => text + headers.etag)).size).toBe(1);
      }
    });

    test("lets one of two different requests at once win, and refuses the other", async () => {
      const key = newKey();
      const answers = await Promise.all([patch(11, 1, key), patch(11, 2, key)]);
      expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 422]);
      const winner = answers.find(({ status }) => status === 200)!;
      expect(await quantityOf(11)).toBe(winner.json<{ quantity: number }>().quantity);
    });

    test("holds through another gateway and another service", async () => {
      const key = newKey();
      const first = await patch(12, 60, key);
      await patch(12, 61);
      const gateway = await system.startGateway();
      await system.restartInventory();
      const again = await send(
        "PATCH",
        "/v1/inventory/12",
        { quantity: 60 },
        { "idempotency-key": key },
        gateway.listen,
      );
      expect([again.status, again.text, isReplayed(again)]).toEqual([200, first.text, true]);
      expect(await quantityOf(12)).toBe(61);
    });
  });

  describe("on many updates", () => {
    const updates = (from: number, count: number, quantity: number) =>
      Array.from({ length: count }, (_, i) => ({ petId: from + i, quantity }));
    type Result = { readonly replayed?: true; readonly error?: { readonly code: string } };

    test("gives a repeat the first results again, marks each, and changes nothing", async () => {
      const key = newKey();
      const first = await post(updates(20, 10, 70), key);
      expect(first.text).not.toContain("replayed");
      await patch(22, 71);
      const again = await post(updates(20, 10, 70), key);
      expect(again.status).toBe(200);
      expect(again.text.replaceAll(',"replayed":true', "")).toBe(first.text);
      expect(again.json<Result[]>().map(({ replayed }) => replayed)).toEqual(Array(10).fill(true));
      expect(again.headers).not.toHaveProperty("idempotency-replayed");
      expect(await quantityOf(22)).toBe(71);
    });

    test.each([
      [
        "quantity",
        [
          { petId: 30, quantity: 1 },
          { petId: 31, quantity: 2 },
        ],
      ],
      [
        "ifMatch",
        [
          { petId: 30, quantity: 1 },
          { petId: 31, quantity: 1, ifMatch: '"r1"' },
        ],
      ],
      [
        "order",
        [
          { petId: 31, quantity: 1 },
          { petId: 30, quantity: 1 },
        ],
      ],
      [
        "number of entries",
        [
          { petId: 30, quantity: 1 },
          { petId: 31, quantity: 1 },
          { petId: 32, quantity: 1 },
        ],
      ],
      [
        "set of entries that overlaps",
        [
          { petId: 32, quantity: 1 },
          { petId: 31, quantity: 1 },
        ],
      ],
    ])("is 422 for the whole request when it has another %s, and nothing is written", async (_what, other) => {
      const key = newKey();
      expect(
        await post(
          [
            { petId: 30, quantity: 1 },
            { petId: 31, quantity: 1 },
          ],
          key,
        ),
      ).toMatchObject({ status: 200 });
      for (const petId of [30, 31, 32]) await patch(petId, 900);
      expectError(await post(other, key), 422, "idempotency_key_reused");
      for (const petId of [30, 31, 32]) expect(await quantityOf(petId)).toBe(900);
    });

    test.each([
      [
        "6.0 in place of 6, and a petId with an exponent",
        '[{"petId":6e1,"quantity":6.0,"ifMatch":"*"},{"petId":61,"quantity":60e-1}]',
      ],
      ["spaces and line breaks", ' [ { "petId" : 60 , "quantity":6, "ifMatch":"*" },\r\n{"petId":61,"quantity":6} ]\n'],
      [
        "a member that is not known",
        '[{"petId":60,"quantity":6,"ifMatch":"*","note":"again"},{"petId":61,"quantity":6,"status":"sold"}]',
      ],
      ["another order of the members", '[{"ifMatch":"*","quantity":6,"petId":60},{"quantity":6,"petId":61}]'],
    ])("a repeat of many updates that is spelled with %s is a replay", async (_what, spelling) => {
      const headers = { "idempotency-key": newKey() };
      const request = '[{"petId":60,"quantity":6,"ifMatch":"*"},{"petId":61,"quantity":6}]';
      const first = await send("POST", "/v1/inventory/updates", request, headers);
      await patch(60, 7);
      const again = await send("POST", "/v1/inventory/updates", spelling, headers);
      expect(again.status).toBe(200);
      expect(again.text.replaceAll(',"replayed":true', "")).toBe(first.text);
      expect(again.json<Result[]>().map(({ replayed }) => replayed)).toEqual([true, true]);
      expect(await quantityOf(60)).toBe(7);
    });

    test("is 422 for a PATCH of an entry that it has updated, and the other way round", async () => {
      const key = newKey();
      await post([{ petId: 33, quantity: 1 }], key);
      expectError(await patch(33, 1, key), 422, "idempotency_key_reused");
      await patch(34, 1, key);
      expectError(await post(updates(34, 3, 77), key), 422, "idempotency_key_reused");
      expect(await quantityOf(35)).toBe(5);
    });

    test("decides again what was refused, and replays the rest", async () => {
      const key = newKey();
      const etag = header(await patch(40, 1), "ETag");
      const request = [
        { petId: 40, quantity: 2, ifMatch: '"r1"' },
        { petId: 41, quantity: 2 },
        { petId: 4_711, quantity: 2 },
      ];
      const kinds = (answer: Response) =>
        answer.json<Result[]>().map(({ replayed, error }) => error?.code ?? (replayed ? "replayed" : "done"));
      expect(kinds(await post(request, key))).toEqual(["precondition_failed", "done", "not_found"]);
      expect(kinds(await post(request, key))).toEqual(["precondition_failed", "replayed", "not_found"]);
      expect(header(await patch(40, 1), "ETag")).toBe(etag);
    });

    test.each([...malformedKeys, "", ["a", "b"]])(
      "many updates with the malformed key %j are 400, and nothing is written",
      async (key) => {
        for (const petId of [70, 71]) await patch(petId, 50);
        const answer = await send("POST", "/v1/inventory/updates", updates(70, 2, 51), { "idempotency-key": key });
        expectError(answer, 400, "invalid_request", /^Idempotency-Key must be 1 to 64/);
        for (const petId of [70, 71]) expect(await quantityOf(petId)).toBe(50);
      },
    );

    test("makes the second of two at once wait for the first, with 100 updates each", async () => {
      const key = newKey();
      const answers = await Promise.all(Array.from({ length: 6 }, () => post(updates(1, 98, 800), key)));
      expect(answers.map(({ status }) => status)).toEqual(Array(6).fill(200));
      const replayed = answers.map((answer) => answer.json<Result[]>().filter((result) => result.replayed).length);
      expect(replayed.toSorted((a, b) => a - b)).toEqual([0, 98, 98, 98, 98, 98]);
      expect(new Set(answers.map(({ text }) => text.replaceAll(',"replayed":true', ""))).size).toBe(1);
    });

    test("holds through another gateway", async () => {
      const key = newKey();
      const first = await post(updates(50, 5, 3), key);
      const gateway = await system.startGateway();
      const again = await post(updates(50, 5, 3), key, gateway.listen);
      expect(again.text.replaceAll(',"replayed":true', "")).toBe(first.text);
      expect(again.text).not.toBe(first.text);
    });
  });

  test("is marked as replayed also where the gateway itself had to repeat it", async () => {
    await using own = new AsyncDisposableStack();
    const link = await startLink(own, Number(system.inventory.listen.split(":").at(-1)));
    const env = { INVENTORY_ADDRESS: `127.0.0.1:${link.port}`, INVENTORY_TIMEOUT_MS: "500" };
    const { listen: address } = await system.startGateway(env);
    const key = newKey();
    const update = (to: string) => send("PATCH", "/v1/inventory/90", { quantity: 6 }, { "idempotency-key": key }, to);
    expect(isReplayed(await update(system.address))).toBe(false);
    expect(isReplayed(await update(address))).toBe(true);
    link.silence();
    const repeated = update(address);
    await delay(700); // one attempt at least has had no answer
    link.mend();
    const answer = await repeated;
    expect([answer.status, isReplayed(answer)]).toEqual([200, true]);
  });

  test("makes an update late in place of failing it when the service is away beyond a wait", async () => {
    await using own = new AsyncDisposableStack();
    const seed = [1n, 2n].map((petId) => ({ petId, quantity: 5, status: "sold" as const }));
    const other = await startSystem({ seed, gatewayEnv: { INVENTORY_TIMEOUT_MS: "300" } });
    own.defer(() => other.close());
    authorization = `Bearer ${other.keys.enterprise}`;
    await other.inventory.kill("SIGKILL");
    const keyed = [
      send("PATCH", "/v1/inventory/1", { quantity: 6 }, { "idempotency-key": newKey() }, other.address),
      post(
        [
          { petId: 2, quantity: 6 },
          { petId: 3, quantity: 6 },
        ],
        newKey(),
        other.address,
      ),
    ];
    const plain = await send("PATCH", "/v1/inventory/1", { quantity: 7 }, {}, other.address);
    expectOutage(plain);
    await other.restartInventory();
    const [one, many] = await Promise.all(keyed);
    expect(one).toMatchObject({ status: 200 });
    expect(many!.json()).toMatchObject([{ quantity: 6 }, { error: { code: "not_found" } }]);
    expect(await other.stored(1n)).toMatchObject({ quantity: 6 });
  });

  test("is repeated for KEYED_UPDATE_TIMEOUT_MS, then has the answer of an update without it", async () => {
    const env = { INVENTORY_TIMEOUT_MS: "100", KEYED_UPDATE_TIMEOUT_MS: "1500" };
    await using own = new AsyncDisposableStack();
    const other = await startSystem({ gatewayEnv: env });
    own.defer(() => other.close());
    const headers = { authorization: `Bearer ${other.keys.enterprise}`, "idempotency-key": newKey() };
    await other.inventory.kill("SIGKILL");
    const startedMs = performance.now();
    const answer = await send("PATCH", "/v1/inventory/1", { quantity: 6 }, headers, other.address);
    expectOutage(answer);
    expect(performance.now() - startedMs).toBeGreaterThan(1_400);
  });

  test("is limited to KEYED_UPDATES_PER_DAY entries of an account, by a 429 without a ban", async () => {
    const env = { KEYED_UPDATES_PER_DAY: "5", BAN_REFUSALS_PER_MINUTE: "3" };
    const { listen: address } = await system.startGateway(env);
    const issued = await Promise.all([system.issueKey({ plan: "pro" }), system.issueKey({ plan: "pro" })]);
    const [own, stranger] = issued.map(({ key }) => ({ authorization: `Bearer ${key}` }));
    const keyed = (quantity: number) => ({ ...own, "idempotency-key": `limited-${quantity}` });
    const one = (quantity: number, headers: Record<string, string>) =>
      send("PATCH", "/v1/inventory/60", { quantity }, headers, address);
    const many = [61, 62, 63].map((petId) => ({ petId, quantity: 9 }));
    const key = { ...own, "idempotency-key": newKey() };
    expect(await send("POST", "/v1/inventory/updates", many, key, address)).toMatchObject({ status: 200 });
    const tooMany = await send("POST", "/v1/inventory/updates", many, { ...own, "idempotency-key": newKey() }, address);
    expectError(tooMany, 429, "rate_limit_exceeded");
    expect(readLimits(tooMany)).toMatchObject({ limit: 5, remaining: 0 });
    for (const quantity of [1, 2]) expect(await one(quantity, keyed(quantity))).toMatchObject({ status: 200 });
    for (const quantity of [3, 4, 5, 6, 7]) {
      const refused = await one(quantity, keyed(quantity));
      expectError(refused, 429, "rate_limit_exceeded");
      const { limit, remaining, windows } = readLimits(refused);
      expect({ limit, remaining }).toEqual({ limit: 5, remaining: 0 });
      expect(Object.keys(windows)).toEqual(["keyed-updates"]);
    }
    expectError(await send("POST", "/v1/inventory/updates", many, key, address), 429, "rate_limit_exceeded");
    expect(await quantityOf(60)).toBe(2);
    const plain = await one(8, own!);
    expect(plain).toMatchObject({ status: 200 });
    expect(readLimits(plain)).toMatchObject({ limit: 300, remaining: 300 - 11 });
    expect(await one(9, { ...stranger, "idempotency-key": newKey() })).toMatchObject({ status: 200 });
  });
});
