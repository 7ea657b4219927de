// A gateway in the usual style: Express with its defaults, a call for each request, res.json. No keys, no limits.
import type { AddressInfo } from "node:net";
import { ChannelCredentials, makeGenericClientConstructor, type ServiceError } from "@grpc/grpc-js";
import express from "express";
import type { InventoryItem, UpdateInventoryRequest } from "../../../proto/gen/petstore/inventory/v1/inventory.ts";
import { plainService } from "./plain-contract.ts";

const names = ["", "available", "pending", "sold"];
const Client = makeGenericClientConstructor(plainService, "plain.Inventory");
const client = new Client(process.env.INVENTORY_ADDRESS!, ChannelCredentials.createInsecure(), {
  "grpc.max_receive_message_length": -1,
});

const call = <Req, Res>(method: string, request: Req): Promise<Res> =>
  new Promise((resolve, reject) => {
    client[method]!(request, (error: ServiceError | null, response: Res) =>
      error ? reject(error) : resolve(response),
    );
  });

const toJson = ({ petId, quantity, status }: InventoryItem) => ({
  petId: Number(petId),
  quantity,
  status: names[status],
});

const app = express();
app.use(express.json());
app.get("/v1/inventory", async (_request, response) => {
  const { items } = await call<object, { items: InventoryItem[] }>("listInventory", {});
  response.json(items.map(toJson));
});
app.patch("/v1/inventory/:petId", async (request, response) => {
  const petId = BigInt(request.params.petId);
  const { quantity } = request.body as { quantity: number };
  const update = { petId, quantity, expectedRevisions: [] };
  const { item } = await call<UpdateInventoryRequest, { item: InventoryItem }>("updateInventory", update);
  response.json(toJson(item));
});
const server = app.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ msg: "ready", listen: `127.0.0.1:${port}`, admin: "" }));
});
