/** Serves the account page beside an API that knows every key, for the tests of the page and for pictures of it. */
import { createServer, type RequestListener } from "node:http";
import { Router } from "express";
import { publishedPlans } from "../../gateway/accounts/keys/plans.ts";
import { publishedBanRules } from "../../gateway/admission/bans.ts";
import { openApiDocument } from "../../gateway/openapi/document.ts";
import { accountPage } from "../../gateway/pages/account-page.ts";
import { docsPage } from "../../gateway/pages/docs-page.ts";
import { listenOn } from "../../runtime/admin.ts";

export const describedApi = openApiDocument({
  servers: [],
  plans: publishedPlans,
  banRules: publishedBanRules,
  deprecations: {
    getPet: { deprecatedAt: new Date("2026-01-01T00:00:00Z"), sunsetAt: new Date("2027-07-01T00:00:00Z") },
  },
  addressGuardPerMinute: 60,
  keyedUpdatesPerDay: 200_000,
  hasKeyRotation: true,
});

/** Serves the pages of a test until its suite ends. @returns the origin */
export async function serveSite(app: RequestListener, stack: AsyncDisposableStack): Promise<string> {
  const server = createServer(app);
  stack.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://${await listenOn(server, { host: "127.0.0.1", port: 0 })}`;
}

/** What the API answers, and what it was asked. */
export class AccountStub {
  rateLimit = {
    plan: "pro",
    windows: [
      { name: "minute", limit: 300, used: 12, remaining: 288, resetAt: inMs(45_000) },
      { name: "day", limit: 10_000, used: 4_012, remaining: 5_988, resetAt: inMs(3 * 3_600_000 - 5_000) },
    ],
    ban: null as { until: string } | null,
    key: { id: "key_1", scopes: ["inventory:read", "keys:rotate"], expiresAt: "2027-07-01T00:00:00.000Z" },
  };
  /** Requests of a step in each of 168 hours. */
  requestsOf: (hour: number) => { served: number; refused: number } = () => ({ served: 100, refused: 1 });
  /** The error that answers everything, where there is one. */
  refusal: { readonly status: number; readonly code: string; readonly message: string } | undefined;
  readonly authorizations: (string | undefined)[] = [];
  rotations = 0;
}

/** The pages and the API. @param stub gives what the API answers at the moment */
export function accountSite(stub: () => AccountStub): Router {
  const page = { document: describedApi, admit: async () => {} };
  const api = Router()
    .use((request, response, next) => {
      const { authorizations, refusal } = stub();
      authorizations.push(request.headers.authorization);
      if (refusal) response.status(refusal.status).json(refusal);
      else next();
    })
    .get("/rate_limit", (_request, response) => void response.json(stub().rateLimit))
    .get("/usage", (request, response) => {
      const hours = Number(request.query.hours);
      const stepSeconds = hours > 6 ? 3_600 : 60;
      const toMs = Date.parse("2026-11-23T15:00:00Z");
      const steps = Array.from({ length: (hours * 3_600) / stepSeconds }, (_, step) => {
        const sinceMs = (step * stepSeconds - hours * 3_600) * 1_000;
        const at = new Date(toMs + sinceMs).toISOString();
        return { at, ...stub().requestsOf(168 + Math.floor(sinceMs / 3_600_000)) };
      });
      response.json({ from: steps[0]!.at, to: new Date(toMs).toISOString(), stepSeconds, steps, deprecated: 17 });
    })
    .post("/keys/rotate", (_request, response) => {
      stub().rotations += 1;
      const { scopes, expiresAt } = stub().rateLimit.key;
      const key = `ps_test_new_key_${stub().rotations}`;
      response.status(201).json({ keyId: "key_2", key, scopes, expiresAt, previousKeyEndsAt: "2026-11-24T00:00:00Z" });
    });
  const { "/keys/rotate": _, ...withoutRotation } = describedApi.paths;
  return Router()
    .use(docsPage(page), accountPage(page))
    .use(
      "/without-rotation",
      docsPage(page),
      accountPage({ ...page, document: { ...describedApi, paths: withoutRotation } }),
    )
    .use("/without-rotation/v1", api)
    .use("/v1", api);
}

function inMs(ms: number): string {
  return new Date(Date.now() + ms).toISOString();
}
