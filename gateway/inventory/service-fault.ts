/** Says in one line why a gateway cannot use the inventory service yet. */
import type { ServiceError } from "@grpc/grpc-js";
import { OperatorError } from "../../runtime/operator-error.ts";
import { ApiError } from "../http/api-error.ts";

/**
 * Runs work on the inventory service, and names the settings that are at fault.
 *
 * @throws OperatorError in place of whatever the work throws
 */
export async function blamingService<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new OperatorError(`INVENTORY_ADDRESS (inventory-svc): ${serviceFault(error)}`, { cause: error });
  }
}

function serviceFault(error: unknown): string {
  let first = error as Partial<ServiceError>;
  while (first.cause instanceof Error) first = first.cause;
  const said = typeof first.details === "string" ? first.details : (first.message ?? String(error));
  if (error instanceof ApiError && error.code === "timeout") {
    return `${said} (where it is only slow, INVENTORY_TIMEOUT_MS gives it more time)`;
  }
  // grpc-js puts the errors of its layers around the one of the connection. OpenSSL's end with a line break.
  const last = /No connection established.*Last error: (.*?)\.?\s+\.? ?Resolution note:/s.exec(said)?.[1];
  if (last === undefined) return said;
  if (/connect E[A-Z]|getaddrinfo|timed? out/i.test(last)) return `no service answers (${last})`;
  if (/certificate|altname|\bcert\b/i.test(last)) {
    return `the service's certificate cannot be trusted, or is for another name (${last}): see GATEWAY_INVENTORY_TLS_CA and GATEWAY_INVENTORY_TLS_SERVER_NAME`;
  }
  return `what answers there is no gRPC of this kind (${last}): TLS has to be on at both sides (GATEWAY_INVENTORY_TLS_CA, GATEWAY_INVENTORY_TLS_CERT, GATEWAY_INVENTORY_TLS_KEY) or at none`;
}
