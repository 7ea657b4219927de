/** The TLS credentials of the gRPC port, with the check of each caller's role. */
import {
  experimental,
  type ServerCredentials,
  type ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type ServerInterceptor,
} from "@grpc/grpc-js";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { CertificateFiles, type OnCertificate, type TlsLog } from "../../runtime/certificate-files.ts";
import type { TlsFiles } from "../../runtime/tls-files.ts";
import { refuseCall } from "../rpc/call-bounds.ts";
import { RpcError, toServiceError } from "../rpc/rpc-error.ts";
import { identitiesOf } from "./identities.ts";
import { leastRoles, type Role, type RoleTable, roleIncludes } from "./roles.ts";

export interface MutualTlsOptions {
  readonly files: TlsFiles;
  readonly roles: RoleTable;
  readonly onDenied: OnDenied;
  readonly log: TlsLog;
  readonly onCertificate?: OnCertificate;
}

/**
 * Creates credentials that admit callers with a certificate of the authorities in `files` and refuse the calls that
 * their role does not allow. The check belongs to the credentials, so it covers every service that is added to the
 * server.
 *
 * @throws Error that says what is wrong with the files
 */
export function mutualTls({ files, roles, onDenied, log, onCertificate }: MutualTlsOptions): ServerCredentials {
  const certificates = new CertificateFiles(files, log, onCertificate);
  const tls = experimental.createCertificateProviderServerCredentials(certificates, certificates, true);
  return experimental.createServerCredentialsWithInterceptors(tls, [roleInterceptor(roles, onDenied)]);
}

/** Receives the path and the error of every denied call. */
export type OnDenied = (method: string, error: RpcError) => void;

/**
 * Creates an interceptor that passes a call when its caller's certificate has the role for it, and ends other calls
 * with ROLE_REQUIRED. It checks once for each call, not for each message.
 */
function roleInterceptor(table: RoleTable, onDenied: OnDenied): ServerInterceptor {
  return ({ path }, call) => {
    // A call that is not in the table of calls needs the highest role.
    const error = withoutRole.test(path) ? undefined : roleError(call, needed.get(path) ?? "admin", table);
    // The declared type is a wrapper that every message would pass through. grpc-js needs only its interface.
    if (!error) return call as ServerInterceptingCall;
    onDenied(path, error);
    return refuseCall(call, toServiceError(error));
  };
}

const needed = new Map<string, Role>(
  Object.entries(leastRoles).map(([name, role]) => [
    InventoryServiceService[name as keyof typeof leastRoles].path,
    role,
  ]),
);

/**
 * Health and reflection need a certificate, which TLS has checked, and no role: they reveal nothing about the stock.
 */
const withoutRole = /^\/grpc\.(health|reflection)\./;

/** The longest list of a caller's unknown identities, in characters, that an error message repeats. */
const maxShownLength = 200;

function roleError(call: ServerInterceptingCallInterface, role: Role, table: RoleTable): RpcError | undefined {
  const identities = identitiesOf(call.getAuthContext().sslPeerCertificate?.subjectaltname);
  const known = identities.filter((identity) => table.has(identity));
  if (known.some((identity) => roleIncludes(table.get(identity)!, role))) return undefined;
  const seen = known[0];
  if (seen !== undefined) return denied(`${seen} has the role ${table.get(seen)}: this call needs ${role}`, role);
  const shown = identities.join(", ").slice(0, maxShownLength) || "a certificate without a URI or DNS name";
  return denied(`${shown} has no role: this call needs ${role}`, role);
}

function denied(message: string, role: Role): RpcError {
  return new RpcError("ROLE_REQUIRED", message, { metadata: { role } });
}
