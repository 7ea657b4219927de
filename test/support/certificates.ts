import { execFile } from "node:child_process";
import { mkdir, readFile, rename, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TlsFiles } from "../../runtime/tls-files.ts";
import { serverProgram } from "./server-programs.ts";
import { temporaryFolder } from "./stack.ts";

const run = promisify(execFile);

interface CertificateOptions {
  /** As OpenSSL writes them: `DNS:localhost`, `URI:spiffe://petstore/gateway`. */
  readonly names: readonly string[];
  /** Negative for a certificate that has expired. */
  readonly days?: number;
}

/** A certificate authority of a test's own. */
export interface Authority {
  /** Path of its certificate. */
  readonly ca: string;
  /** Makes a key and a certificate for it. `ca` of the result is this authority's certificate. */
  issue(options: CertificateOptions): Promise<TlsFiles>;
}

/** Creates an authority in a folder that is removed with the stack. */
export async function createAuthority(stack: AsyncDisposableStack): Promise<Authority> {
  const folder = await temporaryFolder("tls");
  stack.defer(() => folder.remove());
  const path = (name: string) => join(folder.path, name);
  const program = await serverProgram("openssl");
  const openssl = (...args: string[]) => run(program, args, { cwd: folder.path });
  const newKey = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=tests"];
  await openssl(...newKey, "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem");
  let count = 0;
  return {
    ca: path("ca.pem"),
    issue: async ({ names, days = 2 }) => {
      count += 1;
      const file = (kind: string) => `${count}.${kind}`;
      await openssl(...newKey, "-keyout", file("key"), "-out", file("csr"));
      // A line for each name, since a comma would separate names on one line.
      const lines = names.map((name, index) => name.replace(":", `.${index}=`));
      await writeFile(path(file("names")), ["subjectAltName=@names", "[names]", ...lines, ""].join("\n"));
      const signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-days", `${days}`, "-extfile", file("names")];
      await openssl("x509", "-req", "-in", file("csr"), ...signed, "-out", file("pem"));
      return { cert: path(file("pem")), key: path(file("key")), ca: path("ca.pem") };
    },
  };
}

/** Files that can be replaced while they are in use. */
export interface MountedFiles extends TlsFiles {
  /** Replaces all of them at once by the contents of others; a list of authorities becomes one bundle. */
  swap(files: TlsFiles, authorities?: readonly Authority[]): Promise<void>;
}

/**
 * Mounts files as Kubernetes mounts a secret: they are links through a link to a folder, and an update replaces that
 * link.
 */
export async function mountFiles(
  stack: AsyncDisposableStack,
  files: TlsFiles,
  authorities?: readonly Authority[],
): Promise<MountedFiles> {
  const folder = await temporaryFolder("secret");
  stack.defer(() => folder.remove());
  const path = (name: string) => join(folder.path, name);
  const names = { cert: "tls.crt", key: "tls.key", ca: "ca.crt" } as const;
  let version = 0;
  const swap: MountedFiles["swap"] = async (from, bundle) => {
    version += 1;
    await mkdir(path(`..v${version}`));
    const texts = {
      cert: await readFile(from.cert),
      key: await readFile(from.key),
      ca: Buffer.concat(await Promise.all((bundle ?? [from]).map(({ ca }) => readFile(ca)))),
    };
    for (const kind of ["cert", "key", "ca"] as const) {
      await writeFile(path(`..v${version}/${names[kind]}`), texts[kind]);
    }
    await symlink(`..v${version}`, path("..next"));
    await rename(path("..next"), path("..data"));
  };
  await swap(files, authorities);
  for (const name of Object.values(names)) await symlink(`..data/${name}`, path(name));
  return { cert: path(names.cert), key: path(names.key), ca: path(names.ca), swap };
}
