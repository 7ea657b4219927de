/** Certificates for grpc-js that are read again when their files change. */
import { X509Certificate } from "node:crypto";
import type { experimental } from "@grpc/grpc-js";
import { faultsOf, isSame, readAll, type TlsContents, type TlsFiles } from "./tls-files.ts";

type CertificateProvider = experimental.CertificateProvider;
type CaListener = Parameters<CertificateProvider["addCaCertificateListener"]>[0];
type IdentityListener = Parameters<CertificateProvider["addIdentityCertificateListener"]>[0];

/** Gets loaded and refused certificates; a pino logger fits, and so does `console`. */
export interface TlsLog {
  info(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

/** Gets this side's certificate at the start, and each one that is loaded later. */
export type OnCertificate = (certificate: X509Certificate) => void;

const pollIntervalMs = 500;

/**
 * Follows the certificate files: new connections use their present contents, and open connections stay. Files that
 * cannot be used are logged, and the certificates loaded before stay in use.
 *
 * It polls the files as long as a server or a channel uses it. Polling works on every file system and also notices a
 * mounted Kubernetes secret, which changes by a swap of symbolic links. grpc-js has a FileWatcherCertificateProvider,
 * but that refuses every connection while a file is missing or a pair does not match.
 */
export class CertificateFiles implements CertificateProvider {
  readonly #files: TlsFiles;
  readonly #log: TlsLog | undefined;
  readonly #onCertificate: OnCertificate | undefined;
  readonly #caListeners = new Set<CaListener>();
  readonly #identityListeners = new Set<IdentityListener>();
  #loaded: TlsContents;
  #seen: TlsContents;
  /** As JSON: the latest contents that were refused, and their faults; undefined once contents are loaded. */
  #refused: string | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** @throws Error that says what is wrong with the files */
  constructor(files: TlsFiles, log?: TlsLog, onCertificate?: OnCertificate) {
    this.#files = files;
    this.#log = log;
    this.#onCertificate = onCertificate;
    this.#loaded = this.#seen = readAll(files);
    const faults = Object.entries(faultsOf(this.#loaded)).map(
      ([name, fault]) => `${name}${shownPath(files[name as keyof TlsFiles])}: ${fault}`,
    );
    if (faults.length > 0) throw new Error(`the TLS files cannot be used: ${faults.join("; ")}`);
    onCertificate?.(new X509Certificate(this.#loaded.cert.pem));
  }

  addCaCertificateListener(listener: CaListener): void {
    this.#caListeners.add(listener);
    this.#watch();
    // grpc-js can take a call of its listener only after this method has returned.
    process.nextTick(() => this.#caListeners.has(listener) && listener(toCa(this.#loaded)));
  }

  removeCaCertificateListener(listener: CaListener): void {
    this.#caListeners.delete(listener);
    this.#unwatch();
  }

  addIdentityCertificateListener(listener: IdentityListener): void {
    this.#identityListeners.add(listener);
    this.#watch();
    process.nextTick(() => this.#identityListeners.has(listener) && listener(toIdentity(this.#loaded)));
  }

  removeIdentityCertificateListener(listener: IdentityListener): void {
    this.#identityListeners.delete(listener);
    this.#unwatch();
  }

  #watch(): void {
    if (this.#timer) return;
    this.#timer = setInterval(() => this.#poll(), pollIntervalMs).unref();
    // A channel may come back after hours: files that changed in that time have settled long ago.
    this.#seen = readAll(this.#files);
    this.#poll();
  }

  #unwatch(): void {
    if (this.#caListeners.size + this.#identityListeners.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #poll(): void {
    const contents = readAll(this.#files);
    // Files are written one after the other, so contents count only when two polls have found the same.
    const isSettled = isSame(contents, this.#seen);
    this.#seen = contents;
    if (!isSettled || (this.#refused === undefined && isSame(contents, this.#loaded))) return;
    // Refused contents are judged at each poll: a certificate may seem to have expired because a clock is wrong.
    const faults = faultsOf(contents);
    if (Object.keys(faults).length > 0) {
      const refused = JSON.stringify({ contents, faults });
      if (refused === this.#refused) return;
      this.#refused = refused;
      this.#log?.error({ faults }, "the new TLS files cannot be used: those loaded before stay in use");
      return;
    }
    this.#refused = undefined;
    this.#loaded = contents;
    for (const listener of this.#identityListeners) listener(toIdentity(contents));
    for (const listener of this.#caListeners) listener(toCa(contents));
    const certificate = new X509Certificate(contents.cert.pem);
    this.#onCertificate?.(certificate);
    const { serialNumber, validToDate } = certificate;
    this.#log?.info({ serialNumber, validUntil: validToDate }, "TLS files loaded again");
  }
}

/** A path for a message; empty for a text that is no path, because it may be a private key, set by mistake. */
function shownPath(path: string): string {
  return path.length < 1_000 && !/[\r\n]|-----/.test(path) ? ` (${path})` : "";
}

const toCa = ({ ca }: TlsContents) => ({ caCertificate: Buffer.from(ca.pem) });
const toIdentity = ({ cert, key }: TlsContents) => ({
  certificate: Buffer.from(cert.pem),
  privateKey: Buffer.from(key.pem),
});
