// What both pages do with the visitor's API key, and the button that copies. The key is kept in sessionStorage alone, so
// one entry serves both pages in a tab, and goes only to the API beside the page, as a bearer token.

const storedAs = "petstore-inventory-key";

/** The key of this tab; null without one. */
export const keyOfTab = () => sessionStorage.getItem(storedAs);
export const storeKey = (key) => sessionStorage.setItem(storedAs, key);
export const forgetKey = () => sessionStorage.removeItem(storedAs);

/** The key in what a visitor has typed or pasted; null when it cannot be one. */
export function readKey(text) {
  const key = text.replace(/^\s*(bearer +)?|\s+$/gi, "");
  return /^[!-~]+$/.test(key) ? key : null;
}

/** What the visitor reads when a text cannot be a key. */
export const noKey = "An API key has no spaces, and only characters of ASCII: copy it again.";

/** The address of an operation of the API beside the page. */
export const addressOf = (path) => new URL(`../v1${path}`, document.baseURI);

export const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

/** An element that screen readers read aloud when the text of a button has changed. */
const said = make("div", { role: "status", className: "unseen" });
document.body.append(said);

export function addCopyButton(pre) {
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
  button.setAttribute("aria-label", `Copy: ${pre.getAttribute("aria-label")}`);
  button.addEventListener("click", async () => {
    const isDone = await navigator.clipboard?.writeText(pre.textContent).then(
      () => true,
      () => false,
    );
    // A page without TLS has no clipboard; the text is selected, so Ctrl+C copies it.
    if (!isDone) getSelection().selectAllChildren(pre.querySelector("code") ?? pre);
    said.textContent = button.textContent = isDone ? "Copied" : "Selected";
    setTimeout(() => {
      button.textContent = "Copy";
      said.textContent = "";
    }, 1_500);
  });
  const frame = make("div", { className: "copied" });
  pre.replaceWith(frame);
  frame.append(pre, button);
}
