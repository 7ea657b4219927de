// Makes the documentation page more comfortable: search, languages, copying, and requests to the API beside the page,
// because a browser lets a page read nothing from other origins.
import { addressOf, forgetKey, readKey, storedKey, storeKey } from "./shared.js";

const element = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

showOwnAddress();
for (const pre of all("pre")) addCopyButton(pre);
chooseLanguage(localStorage.getItem("petstore-inventory-language") ?? "curl");
showKey();

/** Where the samples have the address of a local gateway, this page knows a better one. */
function showOwnAddress() {
  const { server } = document.querySelector("[data-server]")?.dataset ?? {};
  if (!server) return;
  const own = addressOf("").href;
  for (const code of all("pre code")) {
    const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(server, own);
  }
}

function addCopyButton(pre) {
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
  button.setAttribute("aria-label", `Copy: ${pre.getAttribute("aria-label")}`);
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(pre.querySelector("code") ?? pre);
    // A page without TLS has no clipboard; the text is selected, so Ctrl+C copies it.
    const done = await navigator.clipboard?.writeText(pre.textContent).then(
      () => "Copied",
      () => undefined,
    );
    button.textContent = done ?? "Selected";
    setTimeout(() => (button.textContent = "Copy"), 1_500);
  });
  const frame = make("div", { className: "copied" });
  pre.replaceWith(frame);
  frame.append(pre, button);
}

for (const button of all("[data-choice]")) {
  button.addEventListener("click", () => {
    const top = button.getBoundingClientRect().top;
    chooseLanguage(button.dataset.choice);
    scrollBy(0, button.getBoundingClientRect().top - top); // blocks above it have another height now
    localStorage.setItem("petstore-inventory-language", button.dataset.choice);
  });
}

function chooseLanguage(name) {
  document.documentElement.dataset.lang = name;
  for (const button of all("[data-choice]")) button.setAttribute("aria-pressed", button.dataset.choice === name);
}

element("menu").addEventListener("click", () => showContents(element("menu").ariaExpanded !== "true"));
element("contents").addEventListener("click", () => showContents(false));

function showContents(isShown) {
  element("menu").ariaExpanded = isShown;
  element("contents").classList.toggle("open", isShown);
}

// The part of the page that is being read is marked in the contents.
const links = new Map(all("#contents a").map((link) => [link.hash.slice(1), link]));
const headings = [...links.keys()].map(element);
addEventListener("scroll", () => requestAnimationFrame(markPlace), { passive: true });
markPlace();

function markPlace() {
  const current = headings.findLast((heading) => heading.getBoundingClientRect().top < 140) ?? headings[0];
  const link = links.get(current.id);
  if (link.ariaCurrent === "true") return;
  for (const other of links.values()) other.ariaCurrent = null;
  link.ariaCurrent = "true";
  if (getComputedStyle(element("contents")).position === "sticky") link.scrollIntoView({ block: "nearest" });
}

let searched;
element("search").addEventListener("input", find);
element("search").addEventListener("focus", find);
element("search").form.addEventListener("submit", (event) => {
  event.preventDefault();
  element("found").querySelector("a")?.click();
});
element("found").addEventListener("click", closeSearch);
addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeSearch();
  if (event.key !== "/" || event.target.matches("input, textarea")) return;
  event.preventDefault();
  element("search").focus();
});
addEventListener("pointerdown", (event) => {
  if (!element("search").form.contains(event.target)) closeSearch();
});

function closeSearch() {
  element("found").hidden = true;
}

/** Lists the parts of the page that have every word, those with a word in their title first. */
function find() {
  searched ??= headings.map((heading) => {
    const parts = all("p, li, dt, dd, td", heading.closest("section, article"));
    const own = parts.filter((part) => !part.closest(".answer, .code")); // those are alike for all operations
    const text = own
      .map(({ textContent }) => textContent)
      .join(" ")
      .replace(/\s+/g, " ");
    return { heading, title: heading.firstChild.textContent, text, small: text.toLowerCase() };
  });
  const words = element("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const inTitle = ({ title }) => words.some((word) => title.toLowerCase().includes(word));
  const hits = searched.filter(({ small, title }) =>
    words.every((word) => `${title} ${small}`.toLowerCase().includes(word)),
  );
  const shown = words.length === 0 ? [] : hits.sort((a, b) => inTitle(b) - inTitle(a)).slice(0, 8);
  const rows = shown.map(({ heading, title, text, small }) => {
    const at = Math.max(0, small.lastIndexOf(" ", small.indexOf(words[0]) - 30));
    const link = make("a", { href: `#${heading.id}`, textContent: title });
    link.append(make("small", { textContent: `… ${text.slice(at, at + 90)} …` }));
    const row = make("li", {});
    row.append(link);
    return row;
  });
  if (words.length > 0 && rows.length === 0) rows.push(make("li", { textContent: "Nothing found." }));
  element("found").replaceChildren(...rows);
  element("found").hidden = rows.length === 0;
}

element("authorize").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = readKey(element("key").value);
  element("key").value = "";
  if (key) storeKey(key);
  showKey(key ? undefined : "This is no API key.");
});
element("forget").addEventListener("click", () => {
  forgetKey();
  showKey();
  element("key").focus();
});

function showKey(fault) {
  const key = storedKey();
  element("authorize").classList.toggle("has-key", key !== null);
  element("key-state").textContent = fault ?? (key ? `Key …${key.slice(-4)} in use` : "");
  element("forget").hidden = key === null;
}

renewKeys();

/** Gives each request that needs an Idempotency-Key one that was not sent yet. */
function renewKeys() {
  for (const field of all("[data-name=Idempotency-Key][required]")) field.value = `try-${Date.now()}`;
}

for (const form of all(".try form")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const status = form.querySelector("[role=status]");
    if (!storedKey())
      status.replaceChildren(make("p", { textContent: "Sending without a key: enter one at the top." }));
    else status.replaceChildren(make("p", { textContent: "Loading" }));
    const startedMs = performance.now();
    try {
      const response = await send(form);
      const text = await response.text();
      const tookMs = Math.round(performance.now() - startedMs);
      const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
      const result = make("p", { textContent: `${response.status} ${response.statusText}, ${tookMs} ms` });
      result.className = response.ok ? "fine" : "fault";
      status.replaceChildren(result, block("Body of the answer", shortened(indented(text))));
      status.append(block("Headers of the answer", headers));
      keepTag(form, response);
      if (response.ok) renewKeys();
    } catch (error) {
      status.replaceChildren(make("p", { className: "fault", textContent: `No answer: ${error.message}` }));
    }
  });
}

function send(form) {
  let { method, path } = form.dataset;
  const headers = {};
  const query = new URLSearchParams();
  if (storedKey()) headers.Authorization = `Bearer ${storedKey()}`;
  for (const { value, dataset } of all("input", form)) {
    if (dataset.in === "path") path = path.replace(`{${dataset.name}}`, encodeURIComponent(value));
    else if (value !== "" && dataset.in === "query") query.set(dataset.name, value);
    else if (value !== "") headers[dataset.name] = value;
  }
  const body = form.querySelector("textarea");
  if (body) headers["Content-Type"] = body.dataset.type;
  const url = addressOf(path);
  url.search = query;
  return fetch(url, { method, headers, body: body?.value, cache: "no-store", credentials: "omit" });
}

/** Has the next request for changes begin at the list that was read here: an invented tag gets 410. */
function keepTag({ dataset }, response) {
  const since = document.querySelector("[data-name=since]");
  if (since && response.ok && dataset.path === "/inventory") since.value = response.headers.get("etag");
}

function shortened(text) {
  return text.length > 100_000 ? `${text.slice(0, 100_000)}\n… and more` : text;
}

/** Indents JSON as text, so that no number is rounded. */
function indented(json) {
  if (!/^\s*[[{]/.test(json)) return json;
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  return json.replace(/"(?:[^"\\]|\\.)*"|\[\s*\]|\{\s*\}|[[\]{},:]|\s+/g, (token) => {
    if (/^\s/.test(token)) return "";
    if (token === ":") return ": ";
    if (token === ",") return `,${line()}`;
    if (token === "[" || token === "{") {
      depth += 1;
      return `${token}${line()}`;
    }
    if (token === "]" || token === "}") {
      depth = Math.max(0, depth - 1);
      return `${line()}${token}`;
    }
    return token;
  });
}

function block(label, text) {
  const pre = make("pre", { tabIndex: 0, textContent: text });
  pre.setAttribute("aria-label", label);
  pre.setAttribute("role", "group");
  const frame = make("div", {});
  frame.append(pre);
  addCopyButton(pre);
  return frame;
}
