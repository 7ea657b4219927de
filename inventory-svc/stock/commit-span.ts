import { type Context, ROOT_CONTEXT, type Span, trace } from "@opentelemetry/api";
import { inSpan } from "../../runtime/spans.ts";

/**
 * Runs a commit in a span of its own. It belongs to the trace of the first change; the spans of the other changes are
 * linked with it, both ways.
 *
 * @param spans those of the changes, in order; undefined for a change that is not traced
 */
export async function inCommitSpan<T>(spans: readonly (Span | undefined)[], commit: () => Promise<T>): Promise<T> {
  const [first, ...others] = spans.filter((span) => span !== undefined);
  const parent: Context = first ? trace.setSpan(ROOT_CONTEXT, first) : ROOT_CONTEXT;
  const options = {
    attributes: { "petstore.parts": spans.length },
    links: others.map((other) => ({ context: other.spanContext() })),
  };
  return await inSpan("commit", options, parent, async (span) => {
    for (const other of others) other.addLink({ context: span.spanContext() });
    return await commit();
  });
}
