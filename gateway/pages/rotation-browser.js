// Rotates the key on the account page: asks whether to, and shows the new key once.
import { addCopyButton } from "../docs/shared.js";

const element = (id) => document.getElementById(id);

/**
 * @param ask sends a request to the API with the key of the page
 * @param use goes on with another key
 * @param showTime writes a time in words
 */
export function enableRotation({ ask, use, showTime }) {
  addCopyButton(element("new-key"));
  const label = element("rotate-now").textContent;
  let isUnderWay = false;
  const showWork = (isNow) => {
    isUnderWay = element("rotate-now").disabled = isNow;
    element("rotate-now").textContent = isNow ? "Making the new key…" : label;
  };
  element("rotate").addEventListener("click", ({ detail: isByPointer }) => {
    element("rotate-fault").textContent = "";
    element("confirm").showModal();
    if (!isByPointer) return;
    element("rotate-now").disabled = true; // the second click of a double click may fall on it
    setTimeout(() => (element("rotate-now").disabled = isUnderWay), 600);
  });
  element("cancel").addEventListener("click", () => element("confirm").close());
  element("rotate-now").addEventListener("click", async () => {
    showWork(true);
    try {
      const made = await ask("/keys/rotate", { method: "POST", body: "{}" });
      element("new-key").textContent = made.key;
      element("old-end").textContent = showTime(made.previousKeyEndsAt);
      element("rotated").hidden = false;
      // Until the new key is stored: another rotation would end it, because no request has used it yet.
      element("rotate").hidden = element("forget").hidden = true;
    } catch (error) {
      element("rotate-fault").textContent = error.message;
    }
    showWork(false);
    element("confirm").close(); // gives the focus back, so this comes first
    if (element("rotated").hidden) return element("rotate").focus();
    element("new-key").focus({ preventScroll: true });
    scrollTo(0, 0);
  });
  element("stored").addEventListener("click", () => {
    const key = element("new-key").textContent;
    forgetNewKey();
    use(key);
  });
  addEventListener("beforeunload", (event) => {
    if (isUnderWay || !element("rotated").hidden) event.preventDefault(); // the new key would be lost
  });
}

function forgetNewKey() {
  element("new-key").textContent = "";
  element("rotated").hidden = true;
  element("forget").hidden = false;
}
