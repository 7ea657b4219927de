// An inventory service in the usual style: unary calls, a SELECT of all rows, one transaction for each update.
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js";
import type {
  InventoryItem,
  ListInventoryResponse,
  UpdateInventoryRequest,
  UpdateInventoryResponse,
} from "../../../proto/gen/petstore/inventory/v1/inventory.ts";
import { openDatabase } from "../../../runtime/database/open.ts";
import { plainService } from "./plain-contract.ts";

const statuses: Record<string, 1 | 2 | 3> = { available: 1, pending: 2, sold: 3 };

interface Row {
  pet_id: bigint;
  quantity: number;
  status: string;
}

const toItem = (row: Row): InventoryItem => ({
  petId: row.pet_id,
  quantity: row.quantity,
  status: statuses[row.status]!,
  revision: 0n,
  removed: false,
});

const db = openDatabase(process.env.DATABASE_URL!);
const server = new Server({ "grpc.max_send_message_length": -1 });
server.addService(plainService, {
  listInventory: async (_call: unknown, callback: sendUnaryData<ListInventoryResponse>) => {
    const rows: Row[] = await db("plain_stock").select("pet_id", "quantity", "status").orderBy("pet_id");
    callback(null, { items: rows.map(toItem), revision: 0n, epoch: "" });
  },
  updateInventory: async (
    { request }: ServerUnaryCall<UpdateInventoryRequest, UpdateInventoryResponse>,
    callback: sendUnaryData<UpdateInventoryResponse>,
  ) => {
    const item = await db.transaction(async (trx) => {
      await trx("plain_stock")
        .where("pet_id", request.petId as never)
        .update({ quantity: request.quantity });
      const row: Row = await trx("plain_stock")
        .where("pet_id", request.petId as never)
        .first();
      return toItem(row);
    });
    callback(null, { item, replayed: false });
  },
});
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (_error, port) => {
  console.log(JSON.stringify({ msg: "ready", listen: `127.0.0.1:${port}`, admin: "" }));
});
