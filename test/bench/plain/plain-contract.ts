// The two operations as unary calls, with the codecs of the real service.
import {
  ListInventoryRequest,
  ListInventoryResponse,
  UpdateInventoryRequest,
  UpdateInventoryResponse,
} from "../../../proto/gen/petstore/inventory/v1/inventory.ts";

function unaryMethod<Req, Res>(
  name: string,
  request: { encode(m: Req): { finish(): Uint8Array }; decode(b: Uint8Array): Req },
  response: { encode(m: Res): { finish(): Uint8Array }; decode(b: Uint8Array): Res },
) {
  return {
    path: `/plain.Inventory/${name}`,
    requestStream: false,
    responseStream: false,
    requestSerialize: (value: Req) => Buffer.from(request.encode(value).finish()),
    requestDeserialize: (bytes: Buffer) => request.decode(bytes),
    responseSerialize: (value: Res) => Buffer.from(response.encode(value).finish()),
    responseDeserialize: (bytes: Buffer) => response.decode(bytes),
  } as const;
}

export const plainService = {
  listInventory: unaryMethod("ListInventory", ListInventoryRequest, ListInventoryResponse),
  updateInventory: unaryMethod("UpdateInventory", UpdateInventoryRequest, UpdateInventoryResponse),
};
