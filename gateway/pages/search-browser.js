// Searches the documentation page by the words of its parts.
import { make } from "./shared.js";

const element = (id) => document.getElementById(id);

/** Words that developers look for and the text does not have, by the part that they mean. */
const otherWords = {
  "quick-start": "curl example sample base url server host endpoint",
  overview: "create delete remove",
  program: "curl javascript python go example sample sdk",
  client: "javascript typescript node sdk library bigint",
  authentication: "token login auth",
  limits: "quota throttling",
  "retries-and-bans": "backoff idempotent",
  "ids-beyond-2-53": "bigint precision",
  "web-pages": "cross-origin",
  versions: "deprecation changelog",
  listInventory: "pagination paging cursor filter cache",
  listInventoryChanges: "sync delta polling webhook poll",
  updateInventory: "conflict optimistic lock",
  bulkUpdateInventory: "bulk batch",
  adjustInventory: "oversell bulk batch increment decrement",
  getInventoryHistory: "audit log",
  getUsage: "statistics metrics",
  rotateKey: "renew expire",
  precondition_failed: "conflict stale",
  changes_unavailable: "stale",
  insufficient_stock: "oversell conflict",
  errors: "status response",
};

/** Lists below the field the parts that are found. @param headings of all parts */
export function enableSearch(headings) {
  let searched;
  element("search").addEventListener("input", find);
  element("search").addEventListener("focus", find);
  element("search").form.addEventListener("submit", (event) => {
    event.preventDefault();
    element("found").querySelector("a")?.click();
  });
  element("search").form.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || element("found").hidden) return;
    event.preventDefault();
    const places = [element("search"), ...element("found").querySelectorAll("a")];
    places.at((places.indexOf(document.activeElement) + step) % places.length).focus();
  });
  element("search").form.addEventListener("focusout", ({ currentTarget, relatedTarget }) => {
    if (!currentTarget.contains(relatedTarget)) close();
  });
  element("found").addEventListener("click", close);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !element("found").hidden) {
      element("search").focus();
      close();
    }
    if (event.key !== "/" || event.target.matches("input, textarea")) return;
    event.preventDefault();
    element("search").focus();
    element("search").select();
  });

  function close() {
    element("found").hidden = true;
  }

  /** Lists the parts that have every word, those with the most words in their heading first. */
  function find() {
    searched ??= headings.map(readPart);
    const words = element("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const inHeading = ({ heading }) => words.filter((word) => heading.includes(word)).length;
    const hits = searched.filter(({ all }) => words.every((word) => all.includes(word)));
    const shown = words.length === 0 ? [] : hits.sort((a, b) => inHeading(b) - inHeading(a)).slice(0, 8);
    const rows = shown.map(({ id, title, ...part }) => {
      const link = make("a", { href: `#${id}` });
      const excerpt = make("small", {});
      excerpt.append(...marked(reason(part, words), words));
      link.append(...marked(title, words), excerpt);
      const row = make("li", {});
      row.append(link);
      return row;
    });
    if (words.length > 0 && rows.length === 0)
      rows.push(make("li", { textContent: `Nothing found for "${element("search").value.trim()}".` }));
    element("found").replaceChildren(...rows);
    element("found").hidden = rows.length === 0;
  }
}

/** The excerpt below a result: its text around a word that was found, or the other words by which it was found. */
function reason({ text, others }, words) {
  const lower = text.toLowerCase();
  const word = words.find((one) => lower.includes(one));
  const meant = others.filter((other) => words.some((one) => other.toLowerCase().includes(one)));
  if (word === undefined && meant.length > 0) return `Also found as: ${meant.join(" ")}`;
  const at = word === undefined ? 0 : Math.max(0, text.lastIndexOf(" ", lower.indexOf(word) - 30));
  return `… ${text.slice(at, `${text} `.lastIndexOf(" ", at + 90))} …`;
}

/** Splits a text into parts, in which every occurrence of one of the words is marked. */
function marked(text, words) {
  const escaped = words.map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  const anyWord = new RegExp(`(${escaped.join("|")})`, "i");
  return text.split(anyWord).map((part, i) => (i % 2 === 0 ? part : make("mark", { textContent: part })));
}

function readPart(title) {
  const parts = [...title.parentElement.closest("section, article").querySelectorAll("p, li, dt, dd, td")];
  // Errors are alike for all operations.
  const own = parts.filter((part) => !part.closest(".answer:has(.s4, .s5), .code"));
  const text = own
    .map((part) => part.textContent)
    .join(" ")
    .replace(/\s+/g, " ");
  const status = title.querySelector(".status");
  const others = `${status?.textContent ?? ""} ${status?.title ?? ""} ${title.id} ${otherWords[title.id] ?? ""}`;
  const heading = `${title.textContent} ${others}`.toLowerCase();
  return {
    id: title.id,
    title: title.firstChild.textContent.trim(),
    heading,
    all: `${heading} ${text.toLowerCase()}`,
    text,
    others: others.split(/\s+/),
  };
}
