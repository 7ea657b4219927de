/** The connection to the inventory service, for internal callers and for the gateway. */
import { ChannelCredentials, type ChannelOptions, experimental } from "@grpc/grpc-js";
import { InventoryServiceClient } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { CertificateFiles, type OnCertificate, type TlsLog } from "../runtime/certificate-files.ts";
import type { TlsFiles } from "../runtime/tls-files.ts";
import "./closing-connections.ts";
import { notSent } from "./inventory-error.ts";
import { checkArguments, checkPath } from "./values.ts";

export interface ChannelTls extends TlsFiles {
  /** The name that the service's certificate has to have. Default: the host of the address. */
  readonly serverName?: string | undefined;
}

export interface InventoryChannelOptions {
  /** gRPC target, as `127.0.0.1:50051` or `dns:///inventory-svc:50051` for replicas. */
  readonly address: string;
  /**
   * Default: none. Then the service has to listen on loopback, or to run with INVENTORY_INSECURE=1. Files that change
   * are read again.
   */
  readonly tls?: ChannelTls | undefined;
  /** Gets loaded and refused certificates. */
  readonly log?: TlsLog | undefined;
  /** Gets this side's certificate at the start, and each one that is loaded later. */
  readonly onCertificate?: OnCertificate | undefined;
}

/** Calls that are retried when the service is away. */
export type RetriedMethods = readonly (keyof typeof InventoryServiceClient.service)[];

/**
 * Opens the generated client on a channel for this service. Calls are balanced over the replicas, and a broken
 * connection is noticed within 15 s.
 *
 * @throws InventoryError INVALID_ARGUMENT that names the TLS files that cannot be used, and says why
 */
export function openInventoryChannel(
  { address, tls, log, onCertificate }: InventoryChannelOptions,
  retried: RetriedMethods = [],
): InventoryServiceClient {
  const options: ChannelOptions = {
    "grpc.service_config": JSON.stringify({
      loadBalancingConfig: [{ round_robin: {} }],
      methodConfig: retried.length === 0 ? [] : [retries(retried)],
    }),
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 5_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1_000,
    // Replaced replicas have new addresses. With the default of 30 s, all known ones may be gone before the next
    // look-up.
    "grpc.dns_min_time_between_resolutions_ms": 1_000,
    "grpc-node.flow_control_window": 4 * 1024 * 1024,
  };
  if (tls !== undefined) checkArguments(tls, "cert", "key", "ca", "serverName");
  if (tls?.serverName !== undefined) options["grpc.ssl_target_name_override"] = tls.serverName;
  return new InventoryServiceClient(
    address,
    tls === undefined ? ChannelCredentials.createInsecure() : tlsCredentials(openCertificates(tls, log, onCertificate)),
    options,
  );
}

function tlsCredentials(certificates: CertificateFiles): ChannelCredentials {
  return experimental.createCertificateProviderChannelCredentials(certificates, certificates);
}

function openCertificates(files: TlsFiles, log?: TlsLog, onCertificate?: OnCertificate): CertificateFiles {
  for (const name of ["cert", "key", "ca"] as const) checkPath(`tls.${name}`, files[name]);
  try {
    return new CertificateFiles(files, log, onCertificate);
  } catch (error) {
    throw notSent((error as Error).message, error, "INVALID_ARGUMENT");
  }
}

/** gRPC's own retries (gRFC A6): five attempts within the call's deadline, with waits of up to 2.8 s in all. */
function retries(methods: RetriedMethods) {
  return {
    name: methods.map((method) => {
      const [, service, name] = InventoryServiceClient.service[method].path.split("/");
      return { service, method: name };
    }),
    retryPolicy: {
      maxAttempts: 5,
      initialBackoff: "0.1s",
      maxBackoff: "1s",
      backoffMultiplier: 3,
      retryableStatusCodes: ["UNAVAILABLE"],
    },
  };
}
