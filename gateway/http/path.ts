import type { IncomingMessage } from "node:http";
import parseurl from "parseurl";

/** The path of a request as the router sees it; empty for a target without one. The router has parsed it already. */
export function pathOf(request: IncomingMessage): string {
  return parseurl(request)?.pathname ?? "";
}
