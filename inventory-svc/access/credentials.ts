import { experimental, type ServerCredentials } from "@grpc/grpc-js";
import { CertificateFiles, type TlsLog } from "../../runtime/certificate-files.ts";
import type { TlsFiles } from "../../runtime/tls-files.ts";
import { guard, type OnRefused } from "./role-interceptor.ts";
import type { RoleTable } from "./roles.ts";

export interface MutualTlsOptions {
  readonly files: TlsFiles;
  readonly roles: RoleTable;
  readonly onRefused: OnRefused;
  readonly log: TlsLog;
}

/**
 * A port that takes callers with a certificate of the authorities in `files` and lets them do what their role allows.
 * The guard belongs to the port: no service that is added to the server can be without it.
 *
 * @throws Error that says what is wrong with the files
 */
export function mutualTls({ files, roles, onRefused, log }: MutualTlsOptions): ServerCredentials {
  const certificates = new CertificateFiles(files, log);
  const tls = experimental.createCertificateProviderServerCredentials(certificates, certificates, true);
  return experimental.createServerCredentialsWithInterceptors(tls, [guard(roles, onRefused)]);
}
