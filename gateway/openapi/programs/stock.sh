#!/bin/sh
# Reads the stock, sells one animal of the first entry
# exactly once, and reads what has changed since.
# Needs curl 7.76 or later, and the variable KEY.
set -eu
API=http://127.0.0.1:8080/v1
answer=$(mktemp)
head=$(mktemp)
trap 'rm -f "$answer" "$head"' EXIT

# Sends a request, and again after 408, 429, 500, 502,
# 503, 504 and a lost answer: the same one each time.
# curl waits as long as Retry-After says. Any other error
# ends the program.
call() {
  for tries in 1 2 3 4 5; do
    : > "$answer"
    curl --silent --show-error --fail-with-body --max-time 10 \
      --retry 4 --retry-connrefused --retry-max-time 120 \
      -H "Authorization: Bearer $KEY" \
      -D "$head" -o "$answer" "$@" && return
    # 18, 52, 56: an answer was lost after the request was
    # sent, which curl does not repeat by itself.
    case $? in 18 | 52 | 56) sleep "$tries" ;; *) break ;; esac
  done
  cat "$answer" >&2
  exit 1
}

call "$API/inventory"
tag=$(sed -n 's/^[Ee][Tt]ag: *//p' "$head" | tr -d '\r')
first=$(tr '{' '\n' < "$answer" | sed -n 's/^"petId":\([-0-9]*\),.*/\1/p' | head -n 1)
echo "The stock is at $tag and begins with pet $first."

# Keep the key with your order, to repeat it after a crash.
call -H "Content-Type: application/json" \
  -H "Idempotency-Key: $(openssl rand -hex 16)" \
  -d "[{\"petId\": $first, \"delta\": -1, \"reason\": \"sold\"}]" \
  "$API/inventory/adjustments"
echo "Sold one: $(cat "$answer")"

call -G --data-urlencode "since=$tag" "$API/inventory/changes"
echo "Changed since: $(cat "$answer")"
