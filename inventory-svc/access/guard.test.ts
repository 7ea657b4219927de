import { status } from "@grpc/grpc-js";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { guard } from "./guard.ts";

const { path } = InventoryServiceService.updateInventory;

/** What a call with this certificate is told; undefined for one that passes. */
function answerTo(certificate: { subjectaltname: string; valid_to: string }): unknown {
  let answer: unknown;
  const call = {
    getAuthContext: () => ({ sslPeerCertificate: certificate }),
    sendStatus: (sent: unknown) => {
      answer = sent;
    },
  };
  guard(new Map([["dns:gateway", "writer"]]), () => {})({ path } as never, call as never);
  return answer;
}

test("a certificate that expires while its connection or its TLS session lasts has no role any more", () => {
  const subjectaltname = "DNS:gateway";
  const at = (ms: number) => new Date(Date.now() + ms).toUTCString(); // as Node gives it: Nov 22 01:00:00 2026 GMT
  expect(answerTo({ subjectaltname, valid_to: at(60_000) })).toBeUndefined();
  expect(answerTo({ subjectaltname, valid_to: at(-60_000) })).toMatchObject({
    code: status.PERMISSION_DENIED,
    details: expect.stringMatching(/^the certificate expired at .*: this call needs writer$/),
  });
});
