import { X509Certificate } from "node:crypto";
import { copyFileSync, readFileSync, rmSync } from "node:fs";
import { Registry } from "prom-client";
import { createAuthority } from "../test/support/certificates.ts";
import { suiteStack, temporaryFolder } from "../test/support/stack.ts";
import { CertificateFiles } from "./certificate-files.ts";
import { certificateGauges } from "./certificate-metrics.ts";
import type { TlsFiles } from "./tls-files.ts";

const { jest } = import.meta;
const day = 24 * 60 * 60_000;

describe("certificate files", () => {
  const stack = suiteStack();
  let issued: TlsFiles[];
  let files: TlsFiles;

  beforeAll(async () => {
    const authority = await createAuthority(stack);
    issued = [];
    for (const days of [2, 3]) issued.push(await authority.issue({ names: ["DNS:name"], days }));
    const folder = await temporaryFolder("tls");
    stack.defer(() => folder.remove());
    files = { cert: `${folder.path}/cert`, key: `${folder.path}/key`, ca: `${folder.path}/ca` };
  });
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  const put = (from: TlsFiles) => {
    for (const kind of ["cert", "key", "ca"] as const) copyFileSync(from[kind], files[kind]);
  };
  const polls = () => void jest.advanceTimersByTime(5_000);

  /** Follows the files, which hold the first certificate. @returns what is logged: faults, or "loaded" */
  function follow() {
    put(issued[0]!);
    const logged: unknown[] = [];
    const followed = new CertificateFiles(files, {
      info: () => void logged.push("loaded"),
      error: (fields) => void logged.push(fields),
    });
    followed.addCaCertificateListener(() => {});
    return logged;
  }

  test("a certificate that a wrong clock calls expired is logged once, and loaded by a right clock", () => {
    const now = Date.now();
    const logged = follow();
    jest.setSystemTime(now + 4 * day);
    put(issued[1]!);
    polls();
    expect(logged).toEqual([{ faults: { cert: "holds a certificate that has expired" } }]);
    jest.setSystemTime(now);
    polls();
    expect(logged.slice(1)).toEqual(["loaded"]);
  });

  test("TLS files that cannot be used are logged for each change, also when the old ones come back", () => {
    const logged = follow();
    for (let times = 0; times < 2; times++) {
      copyFileSync(issued[1]!.key, files.key);
      polls();
      rmSync(files.cert);
      polls();
      put(issued[0]!);
      polls();
    }
    const faults = [
      { faults: { key: "must hold the key of the certificate" } },
      { faults: { cert: "cannot be read (ENOENT)" } },
      "loaded",
    ];
    expect(logged).toEqual([...faults, ...faults]);
  });

  test("the validity of the certificate in use is a metric, and that of refused files is not", async () => {
    put(issued[0]!);
    const registry = new Registry();
    const followed = new CertificateFiles(files, undefined, certificateGauges(registry));
    followed.addCaCertificateListener(() => {});
    const shown = async () =>
      Object.fromEntries((await registry.getMetricsAsJSON()).map(({ name, values }) => [name, values[0]!.value]));
    const validityOf = ({ cert }: TlsFiles) => {
      const { validFromDate, validToDate } = new X509Certificate(readFileSync(cert));
      return {
        tls_certificate_not_before_timestamp_seconds: validFromDate.getTime() / 1_000,
        tls_certificate_not_after_timestamp_seconds: validToDate.getTime() / 1_000,
      };
    };
    expect(await shown()).toEqual(validityOf(issued[0]!));
    copyFileSync(issued[1]!.cert, files.cert); // of another key
    polls();
    expect(await shown()).toEqual(validityOf(issued[0]!));
    put(issued[1]!);
    polls();
    expect(await shown()).toEqual(validityOf(issued[1]!));
  });

  test("TLS files that do not change are loaded once", () => {
    const logged = follow();
    polls();
    put(issued[1]!);
    polls();
    polls();
    expect(logged).toEqual(["loaded"]);
  });
});
