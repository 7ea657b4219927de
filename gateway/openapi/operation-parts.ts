import type { Scope } from "../auth/principal.ts";

/** Name of the security scheme among the document's components. */
export const securityScheme = "apiKey";

/** OpenAPI 3.1 lets the schemes other than OAuth name here what a caller must be allowed to do. */
export function secured(scope: Scope) {
  return [{ [securityScheme]: [scope] }];
}

/** The sentence that names it to people. */
export function needs(scope: Scope): string {
  return `Needs the scope \`${scope}\`.`;
}

/** Joins them as Markdown does. */
export function paragraphs(...texts: string[]): string {
  return texts.join("\n\n");
}
