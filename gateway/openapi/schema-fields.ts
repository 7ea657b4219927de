/** Reads the members of a JSON body from its schema, for the documentation. */
import { type Parameter, resolve, type ShownAnswer, type ShownDocument } from "./shown-document.ts";

export interface Field {
  /** Its name, after the names of the members around it: `windows[].limit`. */
  readonly name: string;
  /** In words, with its bounds. */
  readonly type: string;
  readonly isRequired: boolean;
  /** In Markdown; may be empty. */
  readonly description: string;
}

type Members = Readonly<Record<string, unknown>>;

/** What the document uses of JSON Schema. */
interface Schema {
  readonly type?: string | readonly string[];
  readonly format?: string;
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly default?: unknown;
  readonly items?: unknown;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly properties?: Members;
  readonly required?: readonly string[];
  readonly oneOf?: readonly unknown[];
}

/**
 * The members of a body, each followed by those within it. A `oneOf` gives the members of all its alternatives: a
 * member is required where all require it.
 */
export function fieldsOf(document: ShownDocument, node: unknown, prefix = ""): Field[] {
  const schema = resolve(document, node) as Schema | undefined;
  if (schema === undefined) return [];
  if (schema.items) return fieldsOf(document, schema.items, prefix === "" ? "" : `${prefix.slice(0, -1)}[].`);
  const alternatives = schema.oneOf?.map((part) => resolve(document, part) as Schema) ?? [schema];
  const properties: Members = Object.assign({}, ...alternatives.map((each) => each.properties ?? {}));
  return Object.entries(properties).flatMap(([name, member]) => {
    const { description = "", ...rest } = resolve(document, member) as Schema;
    const isRequired = alternatives.every(({ required }) => required?.includes(name));
    const field = { name: `${prefix}${name}`, type: typeOf(document, rest), isRequired, description };
    return [field, ...fieldsOf(document, member, `${prefix}${name}.`)];
  });
}

/** The words before the members of an array's entries, for a body that is an array; empty for any other body. */
export function arrayWords(document: ShownDocument, node: unknown): string {
  const { items, minItems = 0, maxItems } = (resolve(document, node) ?? {}) as Schema;
  if (items === undefined) return "";
  return `An array of ${maxItems === undefined ? "" : `${minItems} to ${maxItems} `}objects, each with:`;
}

/** A parameter of an operation, with the place where it is sent. */
export function parameterField(document: ShownDocument, parameter: Parameter): Field {
  const { name, in: place, required, description, schema } = parameter;
  return { name, type: `${place}, ${typeOf(document, schema)}`, isRequired: required ?? false, description };
}

const ofAllAnswers = /RateLimit|^X-Request-Id$/;
const ofAllErrors = /^(Cache-Control|Link)$/;

/** The headers of an answer but for those of all answers or all errors: the description has these in sections. */
export function headerFields({ status, headers }: ShownAnswer): Field[] {
  const isError = Number(status) >= 400;
  const own = headers.filter(({ name }) => !ofAllAnswers.test(name) && !(isError && ofAllErrors.test(name)));
  return own.map(({ name, description }) => ({ name, type: "header", isRequired: false, description }));
}

/** The type of a value in words. */
function typeOf(document: ShownDocument, node: unknown): string {
  const schema = (resolve(document, node) ?? {}) as Schema;
  const { type, format, minimum, maximum, minLength = 0, maxLength, items } = schema;
  if (schema.enum) return schema.enum.map((value) => `${value}`).join(" | ");
  const name = items ? `array of ${typeOf(document, items)}` : [type ?? "object"].flat().join(" or ");
  const bounds =
    minimum === undefined ? "" : `, ${maximum === undefined ? `from ${minimum}` : `${minimum} to ${maximum}`}`;
  const length = maxLength === undefined ? "" : `, ${minLength} to ${maxLength} characters`;
  const initial = schema.default === undefined ? "" : `, by default ${schema.default}`;
  return `${name}${format && format !== "date-time" ? ` (${format})` : format ? ", ISO 8601" : ""}${bounds}${length}${initial}`;
}
