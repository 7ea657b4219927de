/** The TLS credentials of the gRPC port, with the check of each caller's role. */
import { experimental, type ServerCredentials } from "@grpc/grpc-js";
import { CertificateFiles, type TlsLog } from "../../runtime/certificate-files.ts";
import type { TlsFiles } from "../../runtime/tls-files.ts";
import { type OnRefused, roleInterceptor } from "./role-interceptor.ts";
import type { RoleTable } from "./roles.ts";

export interface MutualTlsOptions {
  readonly files: TlsFiles;
  readonly roles: RoleTable;
  readonly onRefused: OnRefused;
  readonly log: TlsLog;
}

/**
 * Creates credentials that admit callers with a certificate of the authorities in `files` and refuse the calls that
 * their role does not allow. The check belongs to the credentials, so it covers every service that is added to the
 * server.
 *
 * @throws Error that says what is wrong with the files
 */
export function mutualTls({ files, roles, onRefused, log }: MutualTlsOptions): ServerCredentials {
  const certificates = new CertificateFiles(files, log);
  const tls = experimental.createCertificateProviderServerCredentials(certificates, certificates, true);
  return experimental.createServerCredentialsWithInterceptors(tls, [roleInterceptor(roles, onRefused)]);
}
