/** A response as it was on the wire. */
export interface RawResponse {
  readonly status: number;
  /** Lower-cased names; a value for each time the name occurred. */
  readonly headers: Readonly<Record<string, string[]>>;
  /** Without the chunk framing. */
  readonly body: Buffer;
  /** Everything received, interim responses included. */
  readonly raw: Buffer;
  /** What comes after it. */
  readonly rest: Buffer;
}

/**
 * Reads the final response from the bytes received so far (RFC 9112 section 6.3).
 *
 * @param ended whether the server has closed its side, which ends a body that has no other end
 * @param toHead whether it answers HEAD, so that there is no body whatever the headers say
 * @returns undefined when more bytes are needed
 * @throws Error when this is not an HTTP/1.1 response
 */
export function readResponse(raw: Buffer, ended: boolean, toHead: boolean): RawResponse | undefined {
  let offset = 0;
  for (;;) {
    const end = raw.indexOf("\r\n\r\n", offset);
    if (end < 0) return undefined;
    const head = readHead(raw.toString("latin1", offset, end));
    offset = end + 4;
    if (head.status >= 100 && head.status < 200 && head.status !== 101) continue; // interim, such as 100 Continue
    const rest = raw.subarray(offset);
    const hasBody = !toHead && ![101, 204, 304].includes(head.status);
    const read = hasBody ? readBody(rest, head.headers, ended) : { body: empty, rest };
    return read && { ...head, ...read, raw };
  }
}

const empty = Buffer.alloc(0);

function readHead(text: string): Pick<RawResponse, "status" | "headers"> {
  const [statusLine = "", ...lines] = text.split("\r\n");
  const status = /^HTTP\/1\.[01] (\d{3})( |$)/.exec(statusLine)?.[1];
  if (status === undefined) throw new Error(`not a status line: ${statusLine}`);
  const headers: Record<string, string[]> = {};
  for (const line of lines) {
    const match = /^([^:\s]+):[ \t]*(.*?)[ \t]*$/.exec(line);
    if (match === null) throw new Error(`not a header line: ${line}`);
    const [, name, value] = match as unknown as [string, string, string];
    headers[name.toLowerCase()] = [...(headers[name.toLowerCase()] ?? []), value];
  }
  return { status: Number(status), headers };
}

type Body = Pick<RawResponse, "body" | "rest">;

function readBody(bytes: Buffer, headers: RawResponse["headers"], ended: boolean): Body | undefined {
  if (headers["transfer-encoding"]?.at(-1)?.toLowerCase().endsWith("chunked")) return readChunks(bytes);
  const length = headers["content-length"]?.[0];
  if (length === undefined) return ended ? { body: bytes, rest: empty } : undefined;
  if (bytes.length < Number(length)) return undefined;
  return { body: bytes.subarray(0, Number(length)), rest: bytes.subarray(Number(length)) };
}

function readChunks(bytes: Buffer): Body | undefined {
  const chunks: Buffer[] = [];
  let offset = 0;
  for (;;) {
    const lineEnd = bytes.indexOf("\r\n", offset);
    if (lineEnd < 0) return undefined;
    const line = bytes.toString("latin1", offset, lineEnd);
    const size = /^[0-9a-fA-F]+(?=$|[ \t;])/.exec(line)?.[0];
    if (size === undefined) throw new Error(`not a chunk size: ${line}`);
    const start = lineEnd + 2;
    const end = start + Number.parseInt(size, 16);
    if (end === start) {
      // Trailer lines may come between the last chunk and the empty line.
      const last = bytes.toString("latin1", start, start + 2) === "\r\n" ? start : bytes.indexOf("\r\n\r\n", start) + 2;
      return last < start ? undefined : { body: Buffer.concat(chunks), rest: bytes.subarray(last + 2) };
    }
    if (bytes.length < end + 2) return undefined;
    if (bytes.toString("latin1", end, end + 2) !== "\r\n")
      throw new Error(`a chunk of ${size} does not end where it says`);
    chunks.push(bytes.subarray(start, end));
    offset = end + 2;
  }
}
