import type { ItemInput } from "../../proto/pet.ts";
import { expectError, expectOutage, header } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import type { Response } from "../support/http.ts";
import { startLink } from "../support/link.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const path = "/v1/inventory/adjustments";
const exactIds = ["9007199254740993", "9223372036854775807", "-9223372036854775808"];
const maxQuantity = 2_147_483_647;

const seed: readonly ItemInput[] = [
  ...["9007199254740992", ...exactIds].map((id) => ({ petId: BigInt(id), quantity: 5, status: "sold" as const })),
  ...Array.from({ length: 100 }, (_, i) => ({ petId: BigInt(i + 1), quantity: 5, status: "pending" as const })),
];

describe("POST /v1/inventory/adjustments", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;
  let keys = 0;
  /** A key that no other test uses. */
  const newKey = () => `adjust-${keys++}`;

  beforeAll(async () => {
    system = await startSystem({ seed });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  const post = (body: string | Buffer, headers: Record<string, string | string[]> = {}, address = system.address) =>
    callApi(address, {
      method: "POST",
      path,
      headers: { authorization, "content-type": "application/json", "idempotency-key": newKey(), ...headers },
      body,
    });
  const adjust = (adjustments: readonly object[], key = newKey(), address?: string) =>
    post(JSON.stringify(adjustments), { "idempotency-key": key }, address);
  const set = async (petId: number, quantity: number, headers: Record<string, string> = {}) => {
    const answer = await callApi(system.address, {
      method: "PATCH",
      path: `/v1/inventory/${petId}`,
      headers: { authorization, "content-type": "application/json", ...headers },
      body: JSON.stringify({ quantity }),
    });
    return header(answer, "ETag");
  };
  const quantitiesOf = (...petIds: number[]) =>
    Promise.all(petIds.map(async (petId) => (await system.stored(BigInt(petId)))?.quantity));
  const list = async (address = system.address) => {
    const answer = await callApi(address, { path: "/v1/inventory", headers: { authorization } });
    return { etag: header(answer, "ETag"), text: answer.text };
  };
  const isReplayed = (answer: Response) => answer.headers["idempotency-replayed"] === "true";

  test("answers with the entries in the order of the request, with the ETag that a PATCH gives", async () => {
    for (const petId of [1, 2, 3]) await set(petId, 10);
    const answer = await adjust([
      { petId: 3, delta: -10 },
      { petId: 1, delta: 5 },
      { petId: 2, delta: -1 },
    ]);
    expect(answer.status).toBe(200);
    expect(header(answer, "Content-Type")).toBe("application/json");
    expect(answer.headers).not.toHaveProperty("etag");
    expect(answer.headers).not.toHaveProperty("idempotency-replayed");
    expect(answer.text).toMatch(
      /^\[\{"petId":3,"quantity":0,"status":"pending","etag":"\\"r\d+\\""\},\{"petId":1,"quantity":15,.*\},\{"petId":2,"quantity":9,.*\}\]$/,
    );
    for (const { petId, quantity, etag } of answer.json<{ petId: number; quantity: number; etag: string }[]>()) {
      expect(await quantitiesOf(petId)).toEqual([quantity]);
      expect(await set(petId, quantity, { "if-match": etag })).toBe(etag);
    }
  });

  test("reads and writes petIds exactly, beyond 2^53 too", async () => {
    const answer = await post(`[${exactIds.map((id) => `{"petId":${id},"delta":2}`)}]`);
    expect(answer.text.match(/(?<="petId":)-?\d+/g)).toEqual(exactIds);
    for (const id of exactIds) expect(await system.stored(BigInt(id))).toMatchObject({ quantity: 7 });
    expect(await system.stored(9_007_199_254_740_992n)).toMatchObject({ quantity: 5 });
  });

  test("makes 100 adjustments in one request, which counts once against the limits", async () => {
    const { key } = await system.issueKey({ plan: "free" });
    for (let petId = 1; petId <= 100; petId++) await set(petId, 1_000 + petId);
    const adjustments = Array.from({ length: 100 }, (_, i) => ({ petId: i + 1, delta: -(i + 1) }));
    const answer = await post(JSON.stringify(adjustments), { authorization: `Bearer ${key}` });
    expect(answer).toMatchObject({ status: 200, headers: { "x-ratelimit-remaining": "59" } });
    const quantities = answer.json<{ quantity: number }[]>().map(({ quantity }) => quantity);
    expect(quantities).toEqual(Array(100).fill(1_000));
  });

  describe("all or nothing", () => {
    /** What no request of these tests may change. */
    const petIds = [10, 11, 12] as const;
    beforeEach(async () => {
      await set(10, 4);
      await set(11, 0);
      await set(12, maxQuantity);
    });

    test.each([
      ["an entry that is not there", { petId: 4_711, delta: 1 }, 404, "not_found", /\b4711\b.*nothing was changed/],
      [
        "more than there is",
        { petId: 11, delta: -1 },
        409,
        "insufficient_stock",
        /There are 0 of petId 11\b.*nothing was changed/,
      ],
      [
        "more than a quantity holds",
        { petId: 12, delta: 1 },
        409,
        "quantity_overflow",
        /There are 2147483647 of petId 12\b.*nothing was changed/,
      ],
      [
        "an ifMatch that does not hold",
        { petId: 11, delta: 1, ifMatch: '"r1"' },
        412,
        "precondition_failed",
        /^petId 11: .*ifMatch.*Nothing was changed/,
      ],
      ["a weak ifMatch", { petId: 11, delta: 1, ifMatch: 'W/"r1"' }, 412, "precondition_failed", /^petId 11: .*weak/],
    ])("%s refuses all, wherever it is among them", async (_what, refused, status, code, message) => {
      const before = await list();
      const good = [
        { petId: 10, delta: -4 },
        { petId: 1, delta: 1 },
      ];
      for (const place of [0, 1, 2]) {
        expectError(await adjust(good.toSpliced(place, 0, refused)), status, code, message);
      }
      expectError(await adjust([refused]), status, code, message);
      expect(await list()).toEqual(before);
    });

    test("the first adjustment that is refused is the one that the error names", async () => {
      const answer = await adjust([
        { petId: 10, delta: -1 },
        { petId: 11, delta: -3 },
        { petId: 4_711, delta: 1 },
        { petId: 12, delta: 5 },
      ]);
      expectError(answer, 409, "insufficient_stock", /petId 11\b/);
      expect(await quantitiesOf(...petIds)).toEqual([4, 0, maxQuantity]);
    });

    test("what there is counts, to the last piece and to the highest quantity", async () => {
      expectError(await adjust([{ petId: 10, delta: -5 }]), 409, "insufficient_stock", "There are 4 of petId 10,");
      const answer = await adjust([
        { petId: 10, delta: -4 },
        { petId: 11, delta: maxQuantity },
        { petId: 12, delta: -maxQuantity },
      ]);
      expect(answer.json()).toMatchObject([{ quantity: 0 }, { quantity: maxQuantity }, { quantity: 0 }]);
    });

    test("an ifMatch that holds takes a list of ETags, and * any entry", async () => {
      const etag = await set(10, 7);
      const answer = await adjust([
        { petId: 10, delta: 1, ifMatch: `"r1", ${etag}` },
        { petId: 11, delta: 1, ifMatch: "*" },
      ]);
      expect(answer.json()).toMatchObject([{ quantity: 8 }, { quantity: 1 }]);
    });

    test("a refused request is decided again, with its key", async () => {
      const key = newKey();
      const request = [
        { petId: 10, delta: -1 },
        { petId: 11, delta: -1 },
      ];
      expectError(await adjust(request, key), 409, "insufficient_stock");
      await set(11, 1);
      const again = await adjust(request, key);
      expect([again.status, isReplayed(again)]).toEqual([200, false]);
      expect(await quantitiesOf(10, 11)).toEqual([3, 0]);
    });
  });

  test("no read of the list and none of the changes ever shows half of a request", async () => {
    const petIds = [20, 21, 22, 23];
    for (const petId of petIds) await set(petId, 50);
    const second = await system.startGateway();
    const addresses = [system.address, second.listen];
    const sums = new Set<number>();
    let isOver = false;
    const read = async (turn: number) => {
      const quantities = new Map<number, number>();
      let since = "";
      for (let n = turn; !isOver || n < turn + 20; n++) {
        const isList = since === "" || n % 2 === 0;
        const query = isList ? "" : `/changes?since=${encodeURIComponent(since)}`;
        const options = { path: `/v1/inventory${query}`, headers: { authorization } };
        const answer = await callApi(addresses[n % 2]!, options);
        const body = answer.json<ItemInput[] & { changed: ItemInput[]; etag: string }>();
        since = isList ? header(answer, "ETag") : body.etag;
        for (const { petId, quantity } of isList ? body : body.changed) quantities.set(Number(petId), quantity);
        sums.add(petIds.reduce((sum, petId) => sum + quantities.get(petId)!, 0));
      }
    };
    const write = async (turn: number) => {
      for (let n = 0; n < 60; n++) {
        const [from, to] = [petIds[(turn + n) % 4]!, petIds[(turn + n + 1 + (n % 3)) % 4]!];
        const moved = [
          { petId: from, delta: -1 },
          { petId: to, delta: 1 },
        ];
        const answer = await adjust(moved, newKey(), addresses[(turn + n) % 2]);
        if (answer.status !== 200) expectError(answer, 409, "insufficient_stock");
      }
    };
    const reading = Promise.all([0, 1, 2, 3].map(read));
    await Promise.all([0, 1, 2, 3].map(write)).finally(() => {
      isOver = true;
    });
    await reading;
    expect([...sums]).toEqual([200]);
    const quantities = await quantitiesOf(...petIds);
    expect(quantities.reduce((sum, quantity) => sum! + quantity!, 0)).toBe(200);
  });

  test("four callers that sell the same pets at once never sell one twice", async () => {
    await set(24, 10);
    await set(25, 10);
    const sale = [
      { petId: 24, delta: -1 },
      { petId: 25, delta: -1 },
    ];
    const answers = await Promise.all(Array.from({ length: 40 }, () => adjust(sale)));
    const sold = answers.filter(({ status }) => status === 200);
    expect(sold).toHaveLength(10);
    for (const answer of answers) {
      if (!sold.includes(answer)) expectError(answer, 409, "insufficient_stock", "There are 0 of petId 24,");
    }
    expect(await quantitiesOf(24, 25)).toEqual([0, 0]);
  });

  describe("Idempotency-Key of adjustments", () => {
    const request = [
      { petId: 30, delta: 1 },
      { petId: 31, delta: 2 },
    ];
    beforeEach(async () => {
      for (const petId of [30, 31, 32]) await set(petId, 5);
    });

    test("is required, and the message names the header", async () => {
      const before = await list();
      const answer = await callApi(system.address, {
        method: "POST",
        path,
        headers: { authorization, "content-type": "application/json" },
        body: JSON.stringify(request),
      });
      expectError(answer, 400, "invalid_request", /^Idempotency-Key is required/);
      expect(await list()).toEqual(before);
    });

    test.each(["", '""', "a b", "ä", "a,b", "x".repeat(65), "*", "#0"])("is 400 for the key %j", async (key) => {
      expectError(await adjust(request, key), 400, "invalid_request", /^Idempotency-Key must be 1 to 64/);
      expect(await quantitiesOf(30, 31)).toEqual([5, 5]);
    });

    test("gives a repeat the first result again, with Idempotency-Replayed, and changes nothing", async () => {
      const key = newKey();
      const first = await adjust(request, key);
      await set(30, 0);
      const before = await list();
      for (const spelled of [key, `"${key}"`]) {
        const again = await adjust(request, spelled);
        expect(again).toMatchObject({ status: 200, text: first.text });
        expect(header(again, "Idempotency-Replayed")).toBe("true");
        expect(again.text).not.toContain("replayed");
      }
      expect(await list()).toEqual(before);
    });

    test("a repeat that could not be made any more gets the first result all the same", async () => {
      const key = newKey();
      const etag = await set(32, 3);
      const sale = [{ petId: 32, delta: -3, ifMatch: etag }];
      const first = await adjust(sale, key);
      const again = await adjust(sale, key);
      expect([again.status, again.text, isReplayed(again)]).toEqual([200, first.text, true]);
    });

    test.each([
      ["another delta", [request[0]!, { petId: 31, delta: 3 }]],
      ["another pet", [request[0]!, { petId: 32, delta: 2 }]],
      ["other pets only", [{ petId: 32, delta: 1 }]],
      ["another order", request.toReversed()],
      ["more adjustments", [...request, { petId: 32, delta: 1 }]],
      ["fewer adjustments", request.slice(0, 1)],
      ["the last ones only", request.slice(1)],
      ["an ifMatch", [{ ...request[0]!, ifMatch: '"r1"' }, request[1]!]],
      ["a reason", [{ ...request[0]!, reason: "order 17" }, request[1]!]],
      ["an entry that is not there", [{ petId: 4_711, delta: 1 }]],
    ])("is 422 for a request with the same key and %s, and nothing is changed", async (_what, other) => {
      const key = newKey();
      expect(await adjust(request, key)).toMatchObject({ status: 200 });
      const before = await list();
      expectError(await adjust(other, key), 422, "idempotency_key_reused");
      expect(await list()).toEqual(before);
      expect(isReplayed(await adjust(request, key))).toBe(true);
    });

    test.each([
      ["2.0 in place of 2", '[{"petId":30,"delta":1},{"petId":31,"delta":2.0}]'],
      ["spaces and another order of the members", ' [ {"delta":1,"petId":30},\n{"delta":20e-1,"petId":3.1e1} ]'],
      ["a member that is not known", '[{"petId":30,"delta":1,"note":"x"},{"petId":31,"delta":2,"quantity":9}]'],
      ["an ifMatch of *", '[{"petId":30,"delta":1,"ifMatch":"*"},{"petId":31,"delta":2}]'],
    ])("a repeat that is spelled with %s is a replay", async (_what, spelling) => {
      const key = newKey();
      const first = await adjust(request, key);
      const again = await post(spelling, { "idempotency-key": key });
      expect([again.status, again.text, isReplayed(again)]).toEqual([200, first.text, true]);
    });

    test("is one key for the keys of an account, and another one for each account", async () => {
      const key = newKey();
      const body = JSON.stringify(request);
      const owners = ["one shop", "one shop", "another shop"].map((account) => system.issueKey({ account }));
      const answers: Response[] = [];
      for (const { key: own } of await Promise.all(owners)) {
        answers.push(await post(body, { "idempotency-key": key, authorization: `Bearer ${own}` }));
      }
      expect(answers.map(isReplayed)).toEqual([false, true, false]);
      expect(await quantitiesOf(30, 31)).toEqual([7, 9]);
    });

    test("is not the key of an update, also of the same pet", async () => {
      const key = newKey();
      await set(30, 1, { "idempotency-key": key });
      const answer = await adjust([{ petId: 30, delta: 1 }], key);
      expect([answer.status, isReplayed(answer)]).toEqual([200, false]);
      await set(30, 1, { "idempotency-key": key });
      expect(await quantitiesOf(30)).toEqual([2]);
    });

    test("makes the second of two at once wait for the first, with 100 adjustments each", async () => {
      const key = newKey();
      for (let petId = 1; petId <= 100; petId++) await set(petId, 5);
      const all = Array.from({ length: 100 }, (_, i) => ({ petId: i + 1, delta: 1 }));
      const answers = await Promise.all(Array.from({ length: 6 }, () => adjust(all, key)));
      expect(answers.map(({ status }) => status)).toEqual(Array(6).fill(200));
      expect(answers.filter((answer) => !isReplayed(answer))).toHaveLength(1);
      expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    });

    test("lets one of two different requests at once win, and refuses the other", async () => {
      const key = newKey();
      const answers = await Promise.all([adjust([{ petId: 30, delta: 1 }], key), adjust(request.slice(1), key)]);
      expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 422]);
    });

    test("holds through another gateway and a service that was restarted", async () => {
      const key = newKey();
      const first = await adjust(request, key);
      const gateway = await system.startGateway();
      await system.restartInventory();
      const again = await adjust(request, key, gateway.listen);
      expect([again.status, again.text, isReplayed(again)]).toEqual([200, first.text, true]);
      expect(await quantitiesOf(30, 31)).toEqual([6, 7]);
    });

    test("has the gateway repeat by itself what got no answer, once and late in place of a 504", async () => {
      await using own = new AsyncDisposableStack();
      const link = await startLink(own, Number(system.inventory.listen.split(":").at(-1)));
      const env = { INVENTORY_ADDRESS: `127.0.0.1:${link.port}`, INVENTORY_TIMEOUT_MS: "500" };
      const { listen: address } = await system.startGateway(env);
      const isSet = adjust([{ petId: 30, delta: 1 }], newKey(), address);
      expect(await isSet).toMatchObject({ status: 200 });
      link.silence();
      const repeated = adjust(request, newKey(), address);
      const mending = Promise.race([repeated, new Promise((resolve) => setTimeout(resolve, 700))]);
      await mending; // one attempt at least has had no answer
      link.mend();
      expect(await repeated).toMatchObject({ status: 200 });
      expect(await quantitiesOf(30, 31)).toEqual([7, 7]);
    });
  });

  test("has the answer of an outage once the gateway no longer repeats it", async () => {
    await using own = new AsyncDisposableStack();
    const other = await startSystem({ gatewayEnv: { INVENTORY_TIMEOUT_MS: "300", KEYED_UPDATE_TIMEOUT_MS: "900" } });
    own.defer(() => other.close());
    await other.inventory.kill("SIGKILL");
    const bearer = { authorization: `Bearer ${other.keys.enterprise}` };
    expectOutage(await post('[{"petId":1,"delta":1}]', bearer, other.address));
    expectOutage(await callApi(other.address, { path: "/v1/inventory/1/history", headers: bearer }));
  });

  test.each([
    ["an empty array", "[]", "JSON array of 1 to 100 adjustments"],
    ["101 adjustments", JSON.stringify(Array(101).fill({ petId: 1, delta: 1 })), "JSON array of 1 to 100"],
    ["an object", '{"petId":1,"delta":1}', "JSON array of 1 to 100"],
    ["null", "null", "JSON array of 1 to 100"],
    [
      "a number for an adjustment",
      '[{"petId":1,"delta":1},7]',
      /^adjustments\[1\] must be an object with petId and delta/,
    ],
    ["an array for an adjustment", "[[]]", /^adjustments\[0\] must be an object/],
    ["no petId", '[{"delta":1}]', /^adjustments\[0\]\.petId is required/],
    ["a petId in quotes", '[{"petId":"1","delta":1}]', /^adjustments\[0\]\.petId must be an int64/],
    ["a petId of 2^63", '[{"petId":9223372036854775808,"delta":1}]', /^adjustments\[0\]\.petId must be an int64/],
    [
      "a petId twice",
      '[{"petId":1,"delta":1},{"petId":2,"delta":1},{"petId":1.0,"delta":-1}]',
      /^adjustments\[2\]\.petId .*adjustments\[0\]/,
    ],
    ["no delta", '[{"petId":1,"delta":1},{"petId":2}]', /^adjustments\[1\]\.delta is required/],
    ["a quantity for a delta", '[{"petId":1,"quantity":1}]', /^adjustments\[0\]\.delta is required/],
    ["a delta of 0", '[{"petId":1,"delta":1},{"petId":2,"delta":0}]', /^adjustments\[1\]\.delta must be .*not 0/],
    ["a delta of -0", '[{"petId":1,"delta":-0.0}]', /^adjustments\[0\]\.delta must be .*not 0/],
    ["a delta of 1.5", '[{"petId":1,"delta":1.5}]', /^adjustments\[0\]\.delta must be an integer/],
    ["a delta in quotes", '[{"petId":1,"delta":"1"}]', /^adjustments\[0\]\.delta must be an integer/],
    ["a delta of null", '[{"petId":1,"delta":null}]', /^adjustments\[0\]\.delta must be an integer/],
    [
      "a delta of 2147483648",
      '[{"petId":1,"delta":2147483648}]',
      /^adjustments\[0\]\.delta must be an integer from -2147483647 to 2147483647/,
    ],
    ["a delta of -2147483648", '[{"petId":1,"delta":-2147483648}]', /^adjustments\[0\]\.delta must be/],
    ["a delta beyond 2^53", '[{"petId":1,"delta":9007199254740993}]', /^adjustments\[0\]\.delta must be/],
    ["an ifMatch without quotes", '[{"petId":1,"delta":1,"ifMatch":"r1"}]', /^adjustments\[0\]\.ifMatch must be \* or/],
    ["null for ifMatch", '[{"petId":1,"delta":1,"ifMatch":null}]', /^adjustments\[0\]\.ifMatch must be a string/],
    ["a misspelt ifMatch", '[{"petId":1,"delta":1,"ifmatch":"x"}]', /^adjustments\[0\]\.ifmatch is no member/],
    ["an etag", '[{"petId":1,"delta":1,"ETag":"x"}]', /^adjustments\[0\]\.ETag is no member: use ifMatch/],
    [
      "a reason without a character",
      '[{"petId":1,"delta":1,"reason":""}]',
      /^adjustments\[0\]\.reason must be a string/,
    ],
    [
      "a reason of 201 characters",
      `[{"petId":1,"delta":1},{"petId":2,"delta":1,"reason":"${"x".repeat(201)}"}]`,
      /^adjustments\[1\]\.reason must be a string of 1 to 200 characters/,
    ],
    ["a line break in the reason", '[{"petId":1,"delta":1,"reason":"a\\nb"}]', /^adjustments\[0\]\.reason must be/],
    ["a control character of C1", '[{"petId":1,"delta":1,"reason":"a\\u0085"}]', /^adjustments\[0\]\.reason must be/],
    [
      "an API key in the reason",
      `[{"petId":1,"delta":1,"reason":"key ps_live_${"a".repeat(38)}"}]`,
      /^adjustments\[0\]\.reason must .*hold no API key\.$/,
    ],
    ["half a character", '[{"petId":1,"delta":1,"reason":"a\\ud800"}]', /^adjustments\[0\]\.reason must be/],
    ["a number for the reason", '[{"petId":1,"delta":1,"reason":7}]', /^adjustments\[0\]\.reason must be a string/],
    ["null for the reason", '[{"petId":1,"delta":1,"reason":null}]', /^adjustments\[0\]\.reason must be a string/],
  ])("with %s is 400, names what is wrong, and changes nothing", async (_what, body, message) => {
    const before = await list();
    expectError(await post(body), 400, "invalid_request", message);
    expect(await list()).toEqual(before);
  });

  test.each([
    ["a member twice", '[{"petId":1,"delta":1,"delta":2}]'],
    ["nothing", ""],
  ])("with %s is 400 invalid_json", async (_what, body) => {
    expectError(await post(body), 400, "invalid_json");
  });

  test.each([
    ["if-match", '"r1"'],
    ["if-match", "*"],
    ["if-none-match", "*"],
  ])("with the header %s: %s is 400, because that would be of no entry", async (name, value) => {
    expectError(await post('[{"petId":1,"delta":1}]', { [name]: value }), 400, "invalid_request", /ifMatch of its own/);
  });

  test("takes application/json only, and bodies up to 16 KiB", async () => {
    const body = '[{"petId":1,"delta":1}]';
    for (const type of ["application/merge-patch+json", "text/plain", ""]) {
      const answer = await post(body, { "content-type": type });
      expectError(answer, 415, "unsupported_media_type", "application/json in UTF-8");
      expect(header(answer, "Accept-Post")).toBe("application/json");
    }
    expect(await post(body.padEnd(16 * 1024))).toMatchObject({ status: 200 });
    expectError(await post(body.padEnd(16 * 1024 + 1)), 413, "payload_too_large");
  });

  test("needs the scope inventory:write", async () => {
    const { key } = await system.issueKey({ scopes: ["inventory:read"] });
    const answer = await post('[{"petId":1,"delta":1}]', { authorization: `Bearer ${key}` });
    expectError(answer, 403, "insufficient_scope");
  });

  test.each(["GET", "PATCH", "PUT", "DELETE"])("is 405 for %s, and no operation of a petId", async (method) => {
    const answer = await callApi(system.address, { method, path, headers: { authorization } });
    expectError(answer, 405, "method_not_allowed");
    expect(header(answer, "Allow")).toBe("POST");
  });
});
