/** GET /usage: the requests of the caller's account over time. */
import type { Request, RequestHandler } from "express";
import type { Admission } from "../../admission/admission.ts";
import { unavailable } from "../../admission/admission-errors.ts";
import { writeJson } from "../../http/json.ts";
import { queryOf, readWholeNumber } from "../../http/query.ts";
import { contextOf, reverifyAfter } from "../../http/request-context.ts";
import type { UsageRecorder } from "../usage/usage-recorder.ts";

export interface UsageOptions {
  readonly usage: Pick<UsageRecorder, "read">;
  readonly admission: Pick<Admission, "reverifyKey">;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const maxHours = 168;
/** The most hours that are answered in steps of a minute. More hours are answered in steps of an hour. */
const maxHoursByMinute = 6;

/** Answers with every step of the time asked for, those without a request too. The last one is still running. */
export function getUsage({ usage, admission, now }: UsageOptions): RequestHandler {
  return async (request, response) => {
    const hours = readHours(request);
    const { accountId } = contextOf(response).principal!;
    const stepMs = hours <= maxHoursByMinute ? minuteMs : hourMs;
    const nowMs = now();
    const toMs = nowMs - (nowMs % stepMs) + stepMs;
    const fromMs = toMs - hours * hourMs;
    const read = usage.read({ accountId, fromMs, stepMs }).catch((cause) => {
      throw unavailable(cause);
    });
    const { steps, deprecated } = await reverifyAfter(read, response, admission.reverifyKey);
    const found = new Map(steps.map((step) => [step.stepStartMs, step]));
    const body = {
      from: isoTime(fromMs),
      to: isoTime(toMs),
      stepSeconds: stepMs / 1_000,
      steps: Array.from({ length: (toMs - fromMs) / stepMs }, (_, i) => {
        const atMs = fromMs + i * stepMs;
        const { requests, refused } = found.get(atMs) ?? { requests: 0, refused: 0 };
        return { at: isoTime(atMs), served: requests - refused, refused };
      }),
      deprecated,
    };
    writeJson(request, response, 200, JSON.stringify(body), ["Cache-Control", "no-store"]);
  };
}

/** @throws ApiError invalid_request */
function readHours(request: Request): number {
  const [hours, ...others] = queryOf(request).getAll("hours");
  if (hours === undefined) return 24;
  return readWholeNumber("hours", others.length === 0 ? hours : "", maxHours);
}

function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
