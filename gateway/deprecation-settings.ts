/** The settings of the operations that are going to end. */
import { isoTimePattern, parseIsoTime, type Settings, type SettingsShape, textLike } from "../runtime/settings.ts";
import { type DeprecationNotices, deprecationsPattern, parseDeprecations } from "./http/deprecations.ts";

const defaultDeprecations = "getPet=2026-01-01;2027-07-01";

export const deprecationSettings = {
  DEPRECATIONS: textLike(
    deprecationsPattern,
    "must be none, or like getPet=2026-01-01;2027-07-01;https://docs.example/pets;gone: operationId, deprecation, sunset, link, gone",
  )
    .default(defaultDeprecations)
    .transform(parseDeprecations)
    .meta({
      description:
        "operations that are going to end, comma-separated: operationId=deprecation;sunset;link;gone. Only the first date, or none, has to be there; gone answers 410 from the sunset on",
      shownDefault: defaultDeprecations,
    }),
  PETS_DEPRECATED_AT: time("the deprecation of getPet"),
  PETS_SUNSET_AT: time("the sunset of getPet"),
} satisfies SettingsShape;

type EndSettings = Settings<typeof deprecationSettings>;

/** The operations that are going to end. The settings of getPet's own dates win over `DEPRECATIONS`. */
export function deprecationsOf(settings: Partial<EndSettings>): DeprecationNotices {
  const { DEPRECATIONS = {}, PETS_DEPRECATED_AT, PETS_SUNSET_AT } = settings;
  if (PETS_DEPRECATED_AT === undefined && PETS_SUNSET_AT === undefined) return DEPRECATIONS;
  const { deprecatedAt = null, sunsetAt = null, ...rest } = DEPRECATIONS.getPet ?? {};
  const getPet = {
    ...rest,
    deprecatedAt: PETS_DEPRECATED_AT === undefined ? deprecatedAt : PETS_DEPRECATED_AT,
    sunsetAt: PETS_SUNSET_AT === undefined ? sunsetAt : PETS_SUNSET_AT,
  };
  return { ...DEPRECATIONS, getPet };
}

/** RFC 9745 section 4: a sunset is not before the deprecation. */
export function sunsetFaults(settings: Partial<EndSettings>): string[] {
  return Object.entries(deprecationsOf(settings)).flatMap(([name, { deprecatedAt, sunsetAt }]) => {
    if (!deprecatedAt || !sunsetAt || sunsetAt >= deprecatedAt) return [];
    const own = (["PETS_SUNSET_AT", "PETS_DEPRECATED_AT"] as const).find((each) => name === "getPet" && settings[each]);
    return `${own ?? "DEPRECATIONS"}: the sunset of ${name} must not be before its deprecation`;
  });
}

/** A date in place of that in `DEPRECATIONS`; null for none. */
function time(description: string) {
  const rule = "must be a day or a time with its offset in ISO 8601, like 2027-07-01T00:00:00Z, or none";
  return textLike(`none|${isoTimePattern}`, rule)
    .optional()
    .transform((text) => (text === undefined ? undefined : text === "none" ? null : new Date(parseIsoTime(text)!)))
    .meta({ description: `${description}, or none`, shownDefault: "none: as in DEPRECATIONS" });
}
