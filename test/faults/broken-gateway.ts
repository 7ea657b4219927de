// The gateway with its join rule broken on purpose: a read joins the check that is under way instead of the next one.
// Answers are delayed at random, because without delays one ordered stream hides the fault.
import { Checks } from "../../client/checks.ts";
import { StockList } from "../../gateway/inventory/list/stock-list.ts";

const { readFresh } = StockList.prototype;
const running = new WeakMap<StockList, ReturnType<typeof readFresh>>();
StockList.prototype.readFresh = function () {
  let check = running.get(this);
  if (!check) {
    check = readFresh.call(this).finally(() => running.delete(this));
    running.set(this, check);
  }
  return check;
};

const { ask } = Checks.prototype;
Checks.prototype.ask = async function (...question) {
  const changes = await ask.call(this, ...question);
  await new Promise((resolve) => setTimeout(resolve, Math.random() * 40));
  return changes;
};

await import("../../gateway/main.ts");
