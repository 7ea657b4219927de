/** The PEM files of one side of mutual TLS: settings that name them, and what can be wrong with them. */
import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { z } from "zod";

/** Paths of the PEM files of one side of a connection on which both sides have certificates. */
export interface TlsFiles {
  /** This side's certificate, followed by those of the authorities between it and the root. */
  readonly cert: string;
  /** The certificate's private key, without a passphrase. */
  readonly key: string;
  /** The authorities that may have signed the other side's certificate: several while one replaces another. */
  readonly ca: string;
}

/** What is wrong with each file. It never repeats a file's contents or path. */
export type TlsFaults = Partial<Record<keyof TlsFiles, string>>;

/** The names of the settings that hold the three paths. */
export type TlsSettingNames = Readonly<Record<keyof TlsFiles, string>>;

/** The path of a PEM file, or none. */
export function tlsFile(description: string) {
  return z.string().optional().meta({ description, shownDefault: "none: without TLS" });
}

/** The files that three settings name; undefined unless all three are set. */
export function tlsFilesOf(settings: object, names: TlsSettingNames): TlsFiles | undefined {
  const { [names.cert]: cert, [names.key]: key, [names.ca]: ca } = settings as Record<string, string | undefined>;
  return cert !== undefined && key !== undefined && ca !== undefined ? { cert, key, ca } : undefined;
}

/** Faults of three such settings: all or none of them must be set, and the files must be usable. */
export function tlsSettingFaults(settings: object, names: TlsSettingNames): string[] {
  const files = tlsFilesOf(settings, names);
  if (files) {
    const faults = Object.entries(faultsOf(readAll(files))) as [keyof TlsFiles, string][];
    return faults.map(([file, fault]) => `${names[file]}: ${fault}`);
  }
  const all = Object.values(names);
  const missing = all.filter((name) => (settings as Record<string, unknown>)[name] === undefined);
  if (missing.length === all.length) return [];
  return missing.map((name) => `${name}: must be set too: all of ${all.join(", ")} or none`);
}

/** The texts of the files as they were read. */
export type TlsContents = Readonly<Record<keyof TlsFiles, { readonly pem: string; readonly unreadable?: string }>>;

export function readAll({ cert, key, ca }: TlsFiles): TlsContents {
  return { cert: read(cert), key: read(key), ca: read(ca) };
}

function read(path: string): TlsContents["cert"] {
  try {
    return { pem: readFileSync(path, "utf8") };
  } catch (error) {
    return { pem: "", unreadable: `cannot be read (${(error as NodeJS.ErrnoException).code})` };
  }
}

export function isSame(one: TlsContents, other: TlsContents): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** @returns what is wrong with each file; an empty object when they can be used */
export function faultsOf({ cert, key, ca }: TlsContents): TlsFaults {
  const certificate = attempt(() => new X509Certificate(cert.pem));
  const privateKey = attempt(() => createPrivateKey(key.pem));
  const faults: TlsFaults = {};
  const certFault = cert.unreadable ?? certificateFault(certificate);
  const keyFault = key.unreadable ?? keyFaultOf(privateKey, certificate);
  const caFault = ca.unreadable ?? (holdsCertificates(ca.pem) ? undefined : "must hold certificates in PEM");
  if (certFault) faults.cert = certFault;
  if (keyFault) faults.key = keyFault;
  if (caFault) faults.ca = caFault;
  if (Object.keys(faults).length > 0) return faults;
  try {
    // OpenSSL has its own rules, for example about weak keys.
    createSecureContext({ cert: cert.pem, key: key.pem, ca: ca.pem });
    return {};
  } catch (error) {
    return { cert: `is refused by OpenSSL (${(error as NodeJS.ErrnoException).code})` };
  }
}

function certificateFault(certificate: X509Certificate | undefined): string | undefined {
  if (!certificate) return "must hold a certificate in PEM";
  return certificate.validToDate.getTime() <= Date.now() ? "holds a certificate that has expired" : undefined;
}

function keyFaultOf(key: KeyObject | undefined, certificate: X509Certificate | undefined): string | undefined {
  if (!key) return "must hold a private key in PEM, without a passphrase";
  return certificate?.checkPrivateKey(key) === false ? "must hold the key of the certificate" : undefined;
}

function holdsCertificates(pem: string): boolean {
  const certificates = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return certificates.length > 0 && certificates.every((one) => attempt(() => new X509Certificate(one)));
}

function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
