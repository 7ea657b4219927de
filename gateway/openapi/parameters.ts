import type { OpenAPIRegistry } from "@asteasolutions/zod-to-openapi";
import { int64 } from "./schemas.ts";

const string = { type: "string" } as const;

// No examples for headers: Swagger UI would send them, and an If-Match that is made up is refused.
const components = {
  PetId: {
    name: "petId",
    in: "path",
    required: true,
    description:
      "The ID of the pet: an int64 in decimal, without a plus sign or leading zeros, as in `1001` or " +
      "`9223372036854775807`. It is taken exactly, also beyond 2^53.",
    schema: int64,
    example: 1001,
  },
  IfNoneMatch: {
    name: "If-None-Match",
    in: "header",
    description: 'ETags that the caller has a copy of, as in `"4f2c9a01-318"`: 304 when one of them is current.',
    schema: string,
  },
  IfMatch: {
    name: "If-Match",
    in: "header",
    description:
      'ETag of the entry, from an earlier update, as in `"r317"`: the update happens only when nothing else has changed ' +
      "the entry since, else 412. Without it, or with `*`, it always happens.",
    schema: string,
  },
  RequestId: {
    name: "X-Request-Id",
    in: "header",
    description:
      "An id of the caller's own for this request: 1 to 64 letters, digits and `_.:-`. The response repeats it; one of " +
      "another form is replaced.",
    schema: string,
  },
} as const;

export function registerParameters(registry: OpenAPIRegistry): void {
  for (const [name, parameter] of Object.entries(components)) registry.registerComponent("parameters", name, parameter);
}

/** References to parameters, as an operation has them. */
export function parameters(...names: (keyof typeof components)[]) {
  return names.map((name) => ({ $ref: `#/components/parameters/${name}` }));
}
