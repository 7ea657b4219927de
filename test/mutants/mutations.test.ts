import { mutationsOf, planted } from "./mutations.ts";

const faultsOf = (source: string) => mutationsOf(source).map((mutation) => planted(source, mutation));

test("each planted fault changes one thing, and the rest of the source stays as it is", () => {
  const source = "const isOver = (left: number) => left <= 0 && !closed;";
  expect(faultsOf(source)).toEqual([
    "const isOver = (left: number) => undefined;",
    "const isOver = (left: number) => left < 0 && !closed;",
    "const isOver = (left: number) => left <= 1 && !closed;",
    "const isOver = (left: number) => left <= 0 || !closed;",
    "const isOver = (left: number) => left <= 0 && closed;",
  ]);
});

test("types, imports, names of properties and texts for people have no planted faults", () => {
  const source = [
    'import { a } from "./a.ts";',
    'type Kind = "one" | 2;',
    'const error = { "max-age": new Error("no such entry") as Kind };',
  ].join("\n");
  expect(faultsOf(source)).toEqual([]);
});

test("a planted fault can leave a call out, and make a condition always true or always false", () => {
  expect(faultsOf("if (isLate) stop();")).toEqual(["if (true) stop();", "if (false) stop();", "if (isLate) ;"]);
});
