import { extendZodWithOpenApi, type OpenAPIRegistry } from "@asteasolutions/zod-to-openapi";
import { z } from "zod";
import { type ErrorCode, errorTable } from "../http/errors.ts";
import { petStatuses } from "../inventory/item.ts";
import { inventoryUpdate, maxQuantity } from "../inventory/stock-update.ts";

// Gives zod's classes the method that the registry calls. Schemas made before this line do not have it: `meta` makes
// new ones of them.
extendZodWithOpenApi(z);

const exactness =
  "Any int64, exact in both directions: JSON readers that turn numbers into 64-bit floats (JavaScript's among them) " +
  "lose digits beyond 2^53.";

/** JSON Schema of a petId. The formats are OpenAPI's: JSON itself has integers of any size. */
export const int64 = { type: "integer", format: "int64" } as const;

export type Schemas = ReturnType<typeof registerSchemas>;

/** The schemas of the bodies, each under its name among the document's components. */
export function registerSchemas(registry: OpenAPIRegistry) {
  const petStatus = registry.register(
    "PetStatus",
    z.enum(petStatuses).meta({ description: "Status of a pet. This API shows it and never changes it." }),
  );
  const quantity = inventoryUpdate.shape.quantity;
  return {
    inventoryItem: registry.register(
      "InventoryItem",
      z
        .object({
          // A bigint here and an integer on the wire, which zod cannot know.
          petId: z
            .int64()
            .openapi({ ...int64, description: `Identifier of the animal that this entry tracks. ${exactness}` }),
          quantity: quantity.meta({ description: "Current stock count." }),
          status: petStatus,
        })
        .meta({ description: "The stock of one pet." }),
    ),
    inventoryUpdate: registry.register(
      "InventoryUpdate",
      inventoryUpdate.meta({
        description: `The new stock count: an integer from 0 to ${maxQuantity}. Other members are ignored.`,
      }),
    ),
    error: registry.register("Error", errorBody()),
    pet: registry.register("Pet", openRecord("A pet, as the service that owns it describes it.")),
    order: registry.register("Order", openRecord("An order, as the service that owns it describes it.")),
  };
}

function errorBody() {
  return z
    .object({
      code: z
        .enum(Object.keys(errorTable) as [ErrorCode, ...ErrorCode[]])
        .meta({ description: "Machine-readable error code, from a closed set." }),
      message: z.string().meta({ description: "Human-readable description. Its wording may change." }),
      status: z.int().min(400).max(599).meta({ description: "The HTTP status code." }),
    })
    .meta({ description: "The body of every error." });
}

function openRecord(description: string) {
  return z.looseObject({}).meta({ description });
}
