/** The style and the script of the documentation page. */

/** Text keeps a contrast of at least 4.5:1 in both colour schemes. What is wider than a phone scrolls by itself. */
export const pageCss = `:root {
  color-scheme: light dark;
  --text: #1b1f24;
  --paper: #ffffff;
  --soft: #f2f4f7;
  --line: #c3c9d1;
  --link: #0b4fb3;
  --method: #0a5c36;
  --warn-text: #7a1f1f;
  --warn: #fde8e8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6e8eb;
    --paper: #14171b;
    --soft: #20252b;
    --line: #4a525c;
    --link: #9cc4ff;
    --method: #8fe0b4;
    --warn-text: #ffc9c2;
    --warn: #4a1f1c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto;
  padding: 1rem;
  max-width: 60rem;
  background: var(--paper);
  color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere;
}
a { color: var(--link); }
code, pre, textarea { font: 0.9em/1.4 ui-monospace, monospace; }
pre, textarea, input { background: var(--soft); color: var(--text); border: 1px solid var(--line); border-radius: 4px; }
pre { padding: 0.75rem; overflow-x: auto; overflow-wrap: normal; max-height: 30rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
td code { overflow-wrap: anywhere; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border: 1px solid var(--line); overflow-wrap: break-word; }
article { margin-top: 2.5rem; border-top: 2px solid var(--line); }
.method { color: var(--method); }
.badge { background: var(--warn); color: var(--warn-text); border-radius: 4px; padding: 0.1rem 0.4rem; }
details { margin: 0.4rem 0; }
summary { cursor: pointer; padding: 0.2rem 0; }
label { display: block; margin-top: 0.5rem; font-weight: 600; }
input, textarea { width: 100%; padding: 0.4rem; font-size: 1rem; }
button { margin: 0.75rem 0; padding: 0.5rem 1rem; font: inherit; color: var(--paper); background: var(--link); border: 0; border-radius: 4px; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
`;

/**
 * Sends requests from the page. They go to the API beside it, because a browser lets it read nothing from other
 * origins. An answer is shown as it came, so no petId is rounded.
 */
export const pageJs = `"use strict";

const key = document.querySelector("#key");
document.querySelector("#authorize").addEventListener("submit", (event) => event.preventDefault());
for (const form of document.querySelectorAll("form")) form.hidden = false;

for (const form of document.querySelectorAll(".try")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const status = form.querySelector("[role=status]");
    status.textContent = "Loading";
    const startedMs = performance.now();
    try {
      const response = await send(form);
      const text = await response.text();
      const tookMs = Math.round(performance.now() - startedMs);
      const headers = [...response.headers].map(([name, value]) => name + ": " + value).join("\\n");
      const shown = text.length > 100_000 ? text.slice(0, 100_000) + "\\n… and more" : text;
      status.replaceChildren(paragraph(response.status + " " + response.statusText + ", " + tookMs + " ms"));
      status.append(block("Body of the answer", shown), block("Headers of the answer", headers));
    } catch (error) {
      status.replaceChildren(paragraph("No answer: " + error.message));
    }
  });
}

function send(form) {
  let { method, path } = form.dataset;
  const headers = {};
  const query = new URLSearchParams();
  if (key.value.trim() !== "") headers.Authorization = "Bearer " + key.value.trim().replace(/^bearer +/i, "");
  for (const { value, dataset } of form.querySelectorAll("input")) {
    if (dataset.in === "path") path = path.replace("{" + dataset.name + "}", encodeURIComponent(value));
    else if (value !== "" && dataset.in === "query") query.set(dataset.name, value);
    else if (value !== "") headers[dataset.name] = value;
  }
  const body = form.querySelector("textarea");
  if (body) headers["Content-Type"] = body.dataset.type;
  const url = new URL("../v1" + path, document.baseURI);
  url.search = query;
  return fetch(url, { method, headers, body: body?.value, cache: "no-store" });
}

function paragraph(text) {
  return Object.assign(document.createElement("p"), { textContent: text });
}

function block(label, text) {
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", label);
  pre.setAttribute("role", "group");
  pre.textContent = text;
  return pre;
}
`;
