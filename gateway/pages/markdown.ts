/** Renders the Markdown of `openapi.yaml`: headings, paragraphs, lists, tables, code, bold and links. */
import { errorTable } from "../http/api-error.ts";
import { codeBlock } from "./code-html.ts";
import { escapeHtml } from "./escape-html.ts";

/** @param level of its largest headings, which Markdown writes as `##` */
export function markdownToHtml(markdown: string, level: number): string {
  return markdown
    .split(/\n{2,}/)
    .map((block) => blockToHtml(block.trim(), level))
    .join("\n");
}

function blockToHtml(block: string, level: number): string {
  const heading = /^## (.*)$/.exec(block);
  if (heading) return `<h${level} id="${slug(heading[1]!)}">${inline(heading[1]!)}</h${level}>`;
  const code = /^```\w*\n([\s\S]*?)\n?```$/.exec(block);
  if (code) return codeBlock(code[1]!);
  if (block.startsWith("|")) return tableToHtml(block.split("\n"));
  if (block.startsWith("- ")) return `<ul>${block.split(/^- /m).slice(1).map(itemToHtml).join("\n")}</ul>`;
  return `<p>${inline(block)}</p>`;
}

const itemToHtml = (item: string) => `<li>${inline(item.trim())}</li>`;

function tableToHtml([head = "", , ...rows]: readonly string[]): string {
  const cells = (row: string) =>
    row
      .split("|")
      .slice(1, -1)
      .map((cell) => inline(cell.trim()));
  return tableHtml(cells(head), rows.map(cells));
}

/** A table of HTML that scrolls by itself where it is wider than the screen. */
function tableHtml(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const titles = head.map((cell) => `<th scope="col">${cell}</th>`).join("");
  const body = rows.map((cells) => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`).join("\n");
  return `<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>
<thead><tr>${titles}</tr></thead><tbody>${body}</tbody></table></div>`;
}

/** Renders a text within a paragraph or a cell. The name of an error code leads to its section. */
export function inline(text: string): string {
  return text
    .split(/(`[^`]+`)/)
    .map((part) =>
      part.startsWith("`")
        ? inlineCode(part.slice(1, -1))
        : escapeHtml(part)
            .replace(/\*\*(.+?)\*\*/g, "<strong>$1</strong>")
            .replace(/\[([^\]]+)\]\(([^)]+)\)/g, '<a href="$2">$1</a>'),
    )
    .join("");
}

function inlineCode(text: string): string {
  const code = `<code>${escapeHtml(text)}</code>`;
  return Object.hasOwn(errorTable, text) ? `<a href="#${text}">${code}</a>` : code;
}

/** The anchor of a heading. */
export function slug(title: string): string {
  return title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
}
