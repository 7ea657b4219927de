/** Refuses a Node that is too old, before anything else of the package fails on it in words of its own. */

/** Those before it leave header lines out in silence when there are too many, and misread what follows. */
const oldest = "24.18.1";

if (process.versions.node.localeCompare(oldest, "en", { numeric: true }) < 0) {
  throw new Error(`petstore-inventory needs Node ${oldest} or later, and this is ${process.version}`);
}
