// Reads the stock, sets a quantity so that it happens
// once, and reads what has changed since.
// Needs Node 20 or later, and the variable KEY.
const api = "http://127.0.0.1:8080/v1";
const maxTries = 5;

// Sends a request, and again after 429, 5xx and a lost
// connection: the same one each time.
async function call(path, { headers, ...options } = {}) {
  const authorization = `Bearer ${process.env.KEY}`;
  for (let tries = 1; ; tries++) {
    const response = await fetch(api + path, { ...options, headers: { ...headers, authorization } }).catch(() => null);
    if (response?.ok) return response;
    const error = response ? await response.json() : { code: "no answer" };
    const mayRepeat = response === null || response.status === 429 || response.status >= 500;
    if (!mayRepeat || error.code === "api_key_banned" || tries === maxTries) {
      throw new Error(`${path}: ${error.code} ${error.message ?? ""}`);
    }
    const seconds = Number(response?.headers.get("retry-after")) || 2 ** tries * Math.random();
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

// Each petId becomes a text: numbers have too few digits.
const exact = async (response) => JSON.parse((await response.text()).replace(/("petId":)(-?\d+)/g, '$1"$2"'));

const list = await call("/inventory");
const tag = list.headers.get("etag");
const [first] = await exact(list);
console.log(`The stock is at ${tag} and begins with pet ${first.petId}.`);

const updated = await call(`/inventory/${first.petId}`, {
  method: "PATCH",
  headers: { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() },
  body: JSON.stringify({ quantity: 12 }),
});
console.log("Updated:", await updated.text());

const changes = await call(`/inventory/changes?since=${encodeURIComponent(tag)}`);
console.log("Changed since:", await changes.text());
