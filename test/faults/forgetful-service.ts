// The service with a fault in updates that happen once: it keeps no record of them.
import { WriteStatements } from "../../inventory-svc/stock/write.ts";

WriteStatements.prototype.addToLedger = () => [];

await import("../../inventory-svc/main.ts");
