import { readFileSync } from "node:fs";
import { clientTypes, clientTypesFile } from "./client-types.ts";

test("the types of the REST client are those of the OpenAPI document: npm run generate", () => {
  expect(readFileSync(clientTypesFile, "utf8")).toBe(clientTypes());
});

test("an id is a bigint in the types of the REST client, also within a list", () => {
  expect(clientTypes().match(/readonly petId: \w+|readonly removed: .*/g)).toEqual([
    "readonly petId: bigint",
    "readonly removed: readonly (bigint)[];",
    ...Array(2).fill("readonly petId: bigint"),
  ]);
});
