import { status } from "@grpc/grpc-js";
import { UpdateResult } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { readResult } from "./updates.ts";

test("the service's refusal of a reused key becomes an error of its own, and no other refusal becomes that", () => {
  const outcomeOf = (reason: string, code: status) =>
    readResult(UpdateResult.fromPartial({ id: 1, code, reason })).outcome;
  expect(outcomeOf("KEY_REUSED", status.INVALID_ARGUMENT)).toMatchObject({ code: "idempotency_key_reused" });
  expect(outcomeOf("INVALID_ARGUMENT", status.INVALID_ARGUMENT)).toMatchObject({ code: status.INVALID_ARGUMENT });
  expect(outcomeOf("ENTRY_NOT_FOUND", status.NOT_FOUND)).toMatchObject({ code: status.NOT_FOUND });
});
