/** Renders code with its comments, texts, numbers and keywords in colour. */
import { escapeHtml } from "./escape-html.ts";

const keywords =
  "as async await break catch class const continue def defer do done else except export for from func function if " +
  "import in let map new nil package return then throw try type while with";

/** Matches a token of any language of the samples. The name of a member, such as `"petId":`, is no text. */
const token = new RegExp(
  [
    /(?<comment>(?<=^|\s)(?:#|\/\/) .*$)/,
    /(?<name>"[^"\n]*"(?=:))/,
    /(?<text>"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|`[^`]*`)/,
    /(?<number>(?<![\w./-]|\d:)\d[\d.]*\b)/,
    new RegExp(`(?<keyword>(?<![\\w$.-])(?:${keywords.replaceAll(" ", "|")}|true|false|null)(?![\\w-]))`),
  ]
    .map(({ source }) => source)
    .join("|"),
  "gm",
);

/** A block that scrolls by itself and can be copied. */
export function codeBlock(text: string, label = "Code"): string {
  return `<pre tabindex="0" role="group" aria-label="${escapeHtml(label)}"><code>${highlight(text)}</code></pre>`;
}

function highlight(text: string): string {
  let html = "";
  let end = 0;
  for (const match of text.matchAll(token)) {
    const [kind] = Object.entries(match.groups!).find(([, part]) => part !== undefined)!;
    const between = escapeHtml(text.slice(end, match.index)).replace(/,$/, ",<wbr>"); // JSON without spaces may wrap
    html += `${between}<span class="${kind}">${escapeHtml(match[0])}</span>`;
    end = match.index + match[0].length;
  }
  return html + escapeHtml(text.slice(end));
}
