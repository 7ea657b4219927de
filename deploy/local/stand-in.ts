/** A stand-in for the two services that own pets and orders, so that the whole system runs on one machine. */
import { readFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { closeNow, listenOn } from "../../runtime/admin.ts";
import type { ListenAddress } from "../../runtime/settings.ts";

export interface StandIn {
  /** `host:port` as bound. */
  readonly address: string;
  close(): Promise<void>;
}

/**
 * Starts the stand-in. `GET /pets/{petId}` returns a record for every pet of `seed.csv`, and `GET /store/orders` an
 * array of orders for some of them. The same request always gets the same answer. The stand-in logs nothing.
 */
export async function startStandIn(listen: Pick<ListenAddress, "host" | "port">): Promise<StandIn> {
  const pets = readSeed();
  const server = createServer(answer(pets, renderOrders([...pets.keys()])));
  const address = await listenOn(server, listen);
  return { address, close: () => closeNow(server) };
}

function answer(pets: ReadonlyMap<string, string>, orders: string): RequestListener {
  return (req, res) => {
    const send = (status: number, body: string) => {
      res.writeHead(status, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) });
      res.end(body);
    };
    const path = req.url?.split("?", 1)[0] ?? "";
    const petId = /^\/pets\/(-?\d+)$/.exec(path)?.[1] ?? "";
    const petStatus = pets.get(petId);
    if (req.method !== "GET" && req.method !== "HEAD") send(405, '{"message":"Only GET is supported"}');
    else if (path === "/store/orders") send(200, orders);
    else if (petStatus !== undefined) send(200, renderPet(petId, petStatus));
    else send(404, '{"message":"Pet not found"}');
  };
}

/** Reads the status of each petId from the seed. Ids stay text, because a number would round those above 2^53. */
function readSeed(): Map<string, string> {
  const [, ...lines] = readFileSync(new URL("./seed.csv", import.meta.url), "utf8")
    .trimEnd()
    .split("\n");
  return new Map(lines.map((line) => line.split(",")).map(([petId, , status]) => [petId!, status!]));
}

const species = ["dog", "cat", "rabbit", "parrot", "hamster", "gecko", "turtle", "ferret"];
const names = [
  "Biscuit",
  "Clover",
  "Domino",
  "Ember",
  "Fern",
  "Gizmo",
  "Hazel",
  "Juniper",
  "Maple",
  "Nimbus",
  "Pepper",
];
const traits = ["calm", "playful", "senior", "young", "vaccinated", "house-trained", "shy"];

function renderPet(petId: string, status: string): string {
  const category = number(petId, "category", species.length);
  const tag = number(petId, "tag", traits.length);
  const rest = {
    category: { id: category + 1, name: species[category] },
    name: names[number(petId, "name", names.length)],
    photoUrls: [`https://photos.petstore.example/${petId}/1.jpg`],
    tags: [{ id: tag + 1, name: traits[tag] }],
    status,
  };
  return `{"id":${petId},${JSON.stringify(rest).slice(1)}`;
}

const orderStates = ["placed", "approved", "delivered"];

function renderOrders(petIds: readonly string[]): string {
  const orders = petIds
    // The last pet has an order too, because its id needs all 64 bits.
    .filter((_petId, index) => index % 15 === 0 || index === petIds.length - 1)
    .map((petId, index) => {
      const status = orderStates[number(petId, "order", orderStates.length)];
      const rest = {
        quantity: 1 + number(petId, "quantity", 3),
        shipDate: new Date(Date.UTC(2026, 0, 5 + index, 9 + number(petId, "hour", 8))).toISOString(),
        status,
        complete: status === "delivered",
      };
      return `{"id":${50_001 + index},"petId":${petId},${JSON.stringify(rest).slice(1)}`;
    });
  return `[${orders.join(",")}]`;
}

/** Returns a number below `bound` that looks random and depends only on the arguments (FNV-1a). */
function number(petId: string, purpose: string, bound: number): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(petId + purpose)) hash = Math.imul(hash ^ byte, 0x01000193);
  return ((hash ^ (hash >>> 15)) >>> 0) % bound;
}
