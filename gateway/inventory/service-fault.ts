/** Says in one line why a gateway cannot use the inventory service yet. */
import type { ServiceError } from "@grpc/grpc-js";
import { type ConnectionFault, connectionFault } from "../../client/connection-fault.ts";
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
  const fault = connectionFault(said);
  return fault ? fault.text + settingsOf[fault.kind] : said;
}

/** The settings that mend a fault. */
const settingsOf: Readonly<Record<ConnectionFault["kind"], string>> = {
  "no-service": "",
  certificate: ": see GATEWAY_INVENTORY_TLS_CA and GATEWAY_INVENTORY_TLS_SERVER_NAME",
  "other-protocol": " (GATEWAY_INVENTORY_TLS_CA, GATEWAY_INVENTORY_TLS_CERT, GATEWAY_INVENTORY_TLS_KEY)",
};
