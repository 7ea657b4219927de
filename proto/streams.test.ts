import { readGatewayConfig } from "../gateway/config.ts";
import { connectionGraceMs, updateStreamLifeMs } from "./streams.ts";

test("the results of a stream of updates arrive before its connection ends for its age", () => {
  const { INVENTORY_TIMEOUT_MS } = readGatewayConfig({ KEY_PEPPER: "p".repeat(32) });
  expect(updateStreamLifeMs + INVENTORY_TIMEOUT_MS).toBeLessThan(connectionGraceMs);
});
