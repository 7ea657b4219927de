// The service without its care for Galera, on purpose: it sends transactions in packets, as to any other engine.
const { set } = WeakMap.prototype;
WeakMap.prototype.set = function (key, value) {
  // The only place where the engine of a connection is kept.
  return set.call(this, key, value?.canPipeline === false ? { ...value, canPipeline: true } : value);
};

await import("../../inventory-svc/main.ts");
