import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { python, pythonWith } from "../support/python.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";

const run = promisify(execFile);
const stack = suiteStack();
const page = readFileSync(resolve(import.meta.dirname, "../../docs/language-models.md"), "utf8");
const recipe = /```python\n(.*?)```/s.exec(page)![1]!;

/** Starts the recipe as a client of MCP does, and prints what it needs to be asked in JSON. */
const client = `
import asyncio, json, os, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

async def main():
    async with Client(StdioTransport(sys.executable, ["petstore_tools.py"], env=dict(os.environ))) as client:
        names = [tool.name for tool in await client.list_tools()]
        ask = lambda name, values: client.call_tool(name, values, raise_on_error=False)
        item = await ask("getInventoryItem", {"petId": 9223372036854775807})
        written = await ask("updateInventory", {"petId": 9223372036854775807, "quantity": 3})
        print(json.dumps([names, item.content[0].text, written.is_error, written.content[0].text]))

asyncio.run(main())
`;

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, { readonly operationId: string }>>>>;
}

(python === undefined ? test.skip : test)(
  "the recipe makes a tool of each operation, which reads with the key and keeps all digits",
  async () => {
    const program = join(await pythonWith(/pip install (\S+)/.exec(recipe)![1]!), "python");
    const system = await startSystem({ seed: [{ petId: 9223372036854775807n, quantity: 7, status: "available" }] });
    stack.defer(() => system.close());
    const { key } = await system.issueKey({ plan: "pro", scopes: ["inventory:read"] });
    const folder = await temporaryFolder("mcp");
    stack.defer(() => folder.remove());
    await writeFile(join(folder.path, "petstore_tools.py"), recipe);
    await writeFile(join(folder.path, "client.py"), client);
    const env = { PATH: process.env.PATH, HOME: folder.path, PETSTORE: `http://${system.address}`, KEY: key };
    const { stdout } = await run(program, ["client.py"], { cwd: folder.path, env });
    const [names, item, isError, refusal] = JSON.parse(stdout);
    const { paths } = (await (await fetch(`http://${system.address}/openapi.json`)).json()) as Document;
    const operations = Object.values(paths);
    expect(names).toEqual(operations.flatMap((methods) => Object.values(methods).map((each) => each.operationId)));
    expect(item).toBe('{"petId":9223372036854775807,"quantity":7,"status":"available"}');
    expect([isError, refusal]).toEqual([true, expect.stringContaining("insufficient_scope")]);
  },
  300_000,
);
