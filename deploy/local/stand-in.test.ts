import { readFileSync } from "node:fs";
import { type StandIn, startStandIn } from "./stand-in.ts";

const seedLines = readFileSync(new URL("./seed.csv", import.meta.url), "utf8").split("\n");

describe("the seed", () => {
  const rows = seedLines.slice(1, -1).map((line) => /^(\d+),(\d+),(available|pending|sold)$/.exec(line));

  test("is a header and complete lines of petId, quantity and status", () => {
    expect(seedLines[0]).toBe("petId,quantity,status");
    expect(seedLines.at(-1)).toBe("");
    expect(rows.length).toBeGreaterThanOrEqual(600);
    expect(rows.filter((row) => row === null)).toEqual([]);
  });

  test("the seed's ids are canonical, ascend without repeats and end with the largest int64", () => {
    const ids = rows.map((row) => BigInt(row![1]!));
    expect(ids.map(String)).toEqual(rows.map((row) => row![1]));
    expect(ids.every((id, index) => index === 0 || id > ids[index - 1]!)).toBe(true);
    expect(ids.filter((id) => id > 2n ** 53n).length).toBeGreaterThan(50);
    expect(ids.at(-1)).toBe(9223372036854775807n);
  });
});

describe("the stand-in", () => {
  let standIn: StandIn;

  beforeAll(async () => {
    standIn = await startStandIn({ host: "127.0.0.1", port: 0 });
  });

  afterAll(() => standIn.close());

  const ask = async (path: string, method = "GET") => {
    const response = await fetch(`http://${standIn.address}${path}`, { method });
    return { status: response.status, text: await response.text() };
  };

  test("has a record for every pet of the seed, with its exact id and its status", async () => {
    for (const line of seedLines.slice(1, -1)) {
      const [petId, , petStatus] = line.split(",");
      const { status, text } = await ask(`/pets/${petId}`);
      expect(status).toBe(200);
      expect(text).toMatch(new RegExp(`^\\{"id":${petId},`));
      expect(JSON.parse(text)).toEqual({
        id: Number(petId),
        category: { id: expect.any(Number), name: expect.any(String) },
        name: expect.any(String),
        photoUrls: [expect.stringContaining(`/${petId}/`)],
        tags: [{ id: expect.any(Number), name: expect.any(String) }],
        status: petStatus,
      });
    }
  });

  test("answers 404 for other pets and paths, and 405 for other methods", async () => {
    for (const path of ["/pets/4", "/pets/-1", "/pets/abc", "/pets/", "/", "//", "/store"]) {
      expect(await ask(path)).toMatchObject({ status: 404 });
    }
    expect(await ask("/pets/1", "POST")).toMatchObject({ status: 405 });
    expect(await ask("/pets/1", "HEAD")).toEqual({ status: 200, text: "" });
  });

  test("has a few dozen orders, which are the same after a restart", async () => {
    const { status, text } = await ask("/store/orders?status=placed");
    expect(status).toBe(200);
    expect(text).toContain('"petId":9223372036854775807,');
    const orders = JSON.parse(text);
    expect(orders.length).toBeGreaterThanOrEqual(24);
    for (const order of orders) {
      expect(order).toEqual({
        id: expect.any(Number),
        petId: expect.any(Number),
        quantity: expect.any(Number),
        shipDate: expect.stringMatching(/^2026-\d\d-\d\dT\d\d:00:00\.000Z$/),
        status: expect.stringMatching(/^(placed|approved|delivered)$/),
        complete: order.status === "delivered",
      });
    }
    await standIn.close();
    standIn = await startStandIn({ host: "127.0.0.1", port: 0 });
    expect(await ask("/store/orders")).toEqual({ status, text });
  });
});
