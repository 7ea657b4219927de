import { status } from "@grpc/grpc-js";
import type { Any } from "../../proto/gen/google/protobuf/any.ts";
import { BadRequest, ErrorInfo, ResourceInfo, RetryInfo } from "../../proto/gen/google/rpc/error_details.ts";
import { Status } from "../../proto/gen/google/rpc/status.ts";
import { protobufPackage } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { RpcError } from "./errors.ts";

/** How long a caller is asked to wait before it sends a call again. */
const retryDelay = { seconds: 0n, nanos: 500_000_000 };

/** The google.rpc.Status of a refusal, for the trailer `grpc-status-details-bin`. */
export function encodeDetails({ code, reason, message, metadata, field, isRepeatable }: RpcError): Buffer {
  const details = [pack("ErrorInfo", ErrorInfo, { reason, domain: protobufPackage, metadata: { ...metadata } })];
  if (field !== undefined) {
    const violation = { field, description: message, reason, localizedMessage: undefined };
    details.push(pack("BadRequest", BadRequest, { fieldViolations: [violation] }));
  }
  if (code === status.NOT_FOUND || code === status.ALREADY_EXISTS) {
    const resourceType = `${protobufPackage}.InventoryItem`;
    const resource = { resourceType, resourceName: metadata.pet_id ?? "", owner: "", description: message };
    details.push(pack("ResourceInfo", ResourceInfo, resource));
  }
  if (isRepeatable) details.push(pack("RetryInfo", RetryInfo, { retryDelay }));
  return Buffer.from(Status.encode({ code, message, details }).finish());
}

function pack<T>(name: string, type: { encode(message: T): { finish(): Uint8Array } }, message: T): Any {
  return { typeUrl: `type.googleapis.com/google.rpc.${name}`, value: Buffer.from(type.encode(message).finish()) };
}
