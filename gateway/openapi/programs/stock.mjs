// Reads the stock, sells one animal of the first entry
// exactly once, and reads what has changed since.
// Needs Node 20 or later, and the variable KEY.
const api = "http://127.0.0.1:8080/v1";
const maxTries = 5;
const maxWaitSeconds = 120;

// Sends a request, and again after 408, 429, 5xx and a lost
// answer: the same one each time.
async function call(path, { headers, ...options } = {}) {
  const authorization = `Bearer ${process.env.KEY}`;
  for (let tries = 1; ; tries++) {
    const error = { code: "no answer" };
    let response;
    try {
      const signal = AbortSignal.timeout(10_000);
      response = await fetch(api + path, { ...options, headers: { ...headers, authorization }, signal });
      const text = await response.text();
      if (response.ok) return { text, headers: response.headers };
      error.code = response.status;
      Object.assign(error, JSON.parse(text));
    } catch {
      // The answer was lost, or is a page of a proxy.
    }
    const isLost = error.code === "no answer";
    const mayRepeat = isLost || [408, 429].includes(response.status) || response.status >= 500;
    const seconds = Number(response?.headers.get("retry-after")) || 2 ** tries * Math.random();
    const isTooLong = seconds > maxWaitSeconds || tries === maxTries;
    if (!mayRepeat || error.code === "api_key_banned" || isTooLong) {
      throw new Error(`${path}: ${error.code} ${error.message ?? ""}`);
    }
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

const list = await call("/inventory");
const tag = list.headers.get("etag");
// A text: numbers have too few digits for some ids.
const [, first] = /"petId":(-?\d+)/.exec(list.text);
console.log(`The stock is at ${tag} and begins with pet ${first}.`);

// Keep the key with your order, to repeat it after a crash.
const sold = await call("/inventory/adjustments", {
  method: "POST",
  headers: { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() },
  body: `[{"petId":${first},"delta":-1,"reason":"sold"}]`,
});
console.log("Sold one:", sold.text);

const changes = await call(`/inventory/changes?since=${encodeURIComponent(tag)}`);
console.log("Changed since:", changes.text);
