/** Refuses a Node that is too old, before anything else of the package fails on it in words of its own. */

const oldest = 24;

if (Number.parseInt(process.versions.node, 10) < oldest) {
  throw new Error(`petstore-inventory needs Node ${oldest} or later, and this is ${process.version}`);
}
