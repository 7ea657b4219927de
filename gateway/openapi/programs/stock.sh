#!/bin/sh
# Reads the stock, sets a quantity so that it
# happens once, and reads what has changed since.
# Needs curl 7.84 or later, and the variable KEY.
set -eu
API=http://127.0.0.1:8080/v1

# Sends a request, and again after 429, 5xx and a lost
# connection: the same one each time. curl waits as long
# as Retry-After says. Any other error ends the program.
call() {
  curl --silent --show-error --fail-with-body \
    --retry 4 --retry-connrefused --retry-max-time 120 \
    -H "Authorization: Bearer $KEY" \
    -o answer.json "$@" || { cat answer.json >&2; exit 1; }
}

tag=$(call -w '%header{etag}' "$API/inventory")
first=$(tr '{' '\n' < answer.json | sed -n 's/^"petId":\([-0-9]*\),.*/\1/p' | head -n 1)
echo "The stock is at $tag and begins with pet $first."

call -X PATCH -H "Content-Type: application/json" \
  -H "Idempotency-Key: stock-$(date +%s)-$$" \
  -d '{"quantity": 12}' "$API/inventory/$first"
echo "Updated: $(cat answer.json)"

call -G --data-urlencode "since=$tag" "$API/inventory/changes"
echo "Changed since: $(cat answer.json)"
