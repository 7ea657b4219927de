import { ServerInterceptingCall, type ServerInterceptingCallInterface, type ServerInterceptor } from "@grpc/grpc-js";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { RpcError, toServiceError } from "../rpc/errors.ts";
import { identitiesOf } from "./identity.ts";
import { includes, leastRoles, type Role, type RoleTable } from "./roles.ts";

/** Told of every refused call. */
export type OnRefused = (method: string, error: RpcError) => void;

const needed = new Map<string, Role>(
  Object.entries(leastRoles).map(([name, role]) => [
    InventoryServiceService[name as keyof typeof leastRoles].path,
    role,
  ]),
);

/** Health and reflection tell nothing of the stock: they take a certificate, which TLS has seen to, and no role. */
const withoutRole = /^\/grpc\.(health|reflection)\./;

/** How much of the identities of a caller without a role a refusal repeats. */
const maxShownLength = 200;

/** Lets a call pass when its caller's certificate has the role for it. Once a call: its messages go past the guard. */
export function guard(table: RoleTable, onRefused: OnRefused): ServerInterceptor {
  return ({ path }, call) => {
    // What nobody has given a role is for those who may do everything.
    const error = withoutRole.test(path) ? undefined : refusal(call, needed.get(path) ?? "admin", table);
    // The declared type is a wrapper that every message would go through. grpc-js needs its interface only.
    if (!error) return call as ServerInterceptingCall;
    onRefused(path, error);
    call.sendStatus(toServiceError(error));
    return new ServerInterceptingCall(call, { start: () => {} }); // the handler never hears of it
  };
}

function refusal(call: ServerInterceptingCallInterface, role: Role, table: RoleTable): RpcError | undefined {
  const identities = identitiesOf(call.getAuthContext().sslPeerCertificate?.subjectaltname);
  const known = identities.filter((identity) => table.has(identity));
  if (known.some((identity) => includes(table.get(identity)!, role))) return undefined;
  const seen = known[0];
  if (seen !== undefined) return denied(`${seen} has the role ${table.get(seen)}: this call needs ${role}`, role);
  const shown = identities.join(", ").slice(0, maxShownLength) || "a certificate without a URI or DNS name";
  return denied(`${shown} has no role: this call needs ${role}`, role);
}

function denied(message: string, role: Role): RpcError {
  return new RpcError("ROLE_REQUIRED", message, { metadata: { role } });
}
