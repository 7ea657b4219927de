/** Finds the places of a source where a small fault can be planted, and the fault for each. */
import { type ParserOptions, parse } from "@babel/parser";

/** A fault: the characters from `start` to `end` become `replacement`. */
export interface Mutation {
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
  /** From 1. */
  readonly line: number;
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly loc: { readonly start: { readonly line: number } };
  readonly [key: string]: unknown;
}

const options: ParserOptions = { sourceType: "module", plugins: ["typescript", "explicitResourceManagement"] };

const otherOperator: Readonly<Record<string, string>> = {
  "===": "!==",
  "!==": "===",
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
  "+": "-",
  "-": "+",
  "*": "/",
  "/": "*",
  "%": "*",
  "&&": "||",
  "||": "&&",
  "??": "&&",
  "+=": "-=",
  "-=": "+=",
  "++": "--",
  "--": "++",
};

const otherMethod: Readonly<Record<string, string>> = { some: "every", every: "some", min: "max", max: "min" };

/** What is not code that runs: types, imports, and texts for people. */
const skipped = /^(TS(?!AsExpression|NonNullExpression|SatisfiesExpression)|Import|ExportAll|TemplateElement)/;

/** @param source TypeScript @returns the faults in the order of the source */
export function mutationsOf(source: string): Mutation[] {
  const found: Mutation[] = [];
  const plant = (node: Node, start: number, end: number, replacement: string) =>
    found.push({ start, end, replacement, line: node.loc.start.line });
  const replace = (node: Node, replacement: string) => plant(node, node.start, node.end, replacement);
  const operator = (node: Node, from: number) => {
    const text = node.operator as string;
    const start = source.indexOf(text, from);
    if (otherOperator[text] !== undefined) plant(node, start, start + text.length, otherOperator[text]);
  };

  const visit = (node: Node) => {
    if (skipped.test(node.type)) return;
    switch (node.type) {
      case "BinaryExpression":
      case "LogicalExpression":
      case "AssignmentExpression":
        operator(node, (node.left as Node).end);
        break;
      case "UpdateExpression":
        operator(node, node.prefix ? node.start : (node.argument as Node).end);
        break;
      case "UnaryExpression":
        if (node.operator === "!") plant(node, node.start, node.start + 1, "");
        break;
      case "BooleanLiteral":
        replace(node, String(!node.value));
        break;
      case "NumericLiteral":
        replace(node, String((node.value as number) + 1));
        break;
      case "BigIntLiteral":
        replace(node, `${BigInt(node.value as string) + 1n}n`);
        break;
      case "StringLiteral":
        if (!/\s/.test(node.value as string)) replace(node, '"planted"'); // one with a space is for people
        break;
      case "ArrayExpression":
        if ((node.elements as Node[]).length > 0) replace(node, "[]");
        break;
      case "IfStatement":
      case "ConditionalExpression":
        for (const value of ["true", "false"]) replace(node.test as Node, value);
        break;
      case "WhileStatement":
        replace(node.test as Node, "false");
        break;
      case "ExpressionStatement":
        replace(node, ";");
        break;
      case "OptionalMemberExpression":
        if (node.optional) {
          const start = source.indexOf("?.", (node.object as Node).end);
          plant(node, start, start + 2, node.computed ? "" : ".");
        }
        break;
      case "CallExpression": {
        const { property } = node.callee as { property?: Node & { name?: string } };
        const other = property?.name === undefined ? undefined : otherMethod[property.name];
        if (property && other) replace(property, other);
        break;
      }
      case "FunctionDeclaration":
      case "ClassMethod":
      case "ClassPrivateMethod":
      case "ObjectMethod":
      case "ArrowFunctionExpression": {
        const body = node.body as Node;
        if (body.type === "BlockStatement") replace(body, "{}");
        else replace(body, "undefined");
        break;
      }
    }
    for (const child of childrenOf(node)) visit(child);
  };

  visit(parse(source, options).program as unknown as Node);
  return found.sort((a, b) => a.start - b.start || a.end - b.end);
}

/** Plants a fault. */
export function planted(source: string, { start, end, replacement }: Mutation): string {
  return source.slice(0, start) + replacement + source.slice(end);
}

/** The nodes below one. The keys of properties are names and no code. */
function childrenOf(node: Node): Node[] {
  return Object.entries(node)
    .filter(([key]) => !(key === "key" && !node.computed) && key !== "loc" && !key.endsWith("Comments"))
    .flatMap(([, value]) => (Array.isArray(value) ? value : [value]))
    .filter((value): value is Node => typeof value?.type === "string" && typeof value.start === "number");
}
