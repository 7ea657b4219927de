#!/bin/sh
# Puts a backup, a file on standard input, in place of both databases, and revokes the keys again that were revoked or
# rotated after it. It leaves the gateways stopped: callers get 503 until the operator starts them.
set -eu
# A backup that failed has left an empty file, or one without this last line.
if ! { [ -f /dev/stdin ] && tail -n 1 /dev/stdin | grep -q '^-- Dump completed'; }; then
  echo "Standard input is no file with a whole backup, so nothing was changed: ./restore.sh < backup.sql" >&2
  exit 1
fi
cd "$(dirname "$0")"
exec 9> .lock # update.sh would start what is stopped here
flock --nonblock 9 || { echo "update.sh or restore.sh is running" >&2 && exit 1; }
sql() {
  # shellcheck disable=SC2016 # the container's variable
  docker compose exec -T mysql sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysql --user=root "$@"' mysql "$@"
}
docker compose stop gateway inventory-svc
# The file `ended` has the keys that have ended. A restore that fails leaves it to the next one, whose database may be
# as old as the backup, or empty.
if sql -Ne "SELECT id, 'revoked' FROM petstore_keys.api_keys WHERE revoked_at > 0
  UNION SELECT id, 'rotated' FROM petstore_keys.api_keys WHERE replaced_by IS NOT NULL" < /dev/null > ended.new; then
  cat ended.new >> ended
else
  [ -e ended ]
fi
rm ended.new
sql
# A backup of the version before lacks the latest tables.
docker compose run --rm -T --no-deps migrate
# Callers remember revisions that are gone now: docs/operations/databases.md, "After a restore".
docker compose run --rm -T stock restored
working=$(sql -Ne "SELECT id, 'revoked' FROM petstore_keys.api_keys WHERE revoked_at IS NULL
  UNION SELECT id, 'rotated' FROM petstore_keys.api_keys WHERE revoked_at IS NULL AND replaced_by IS NULL")
keys=$(echo "$working" | grep -Fxf ended | cut -f 1 | sort -u)
# shellcheck disable=SC2086 # one word for each key
[ -z "$keys" ] || docker compose run --rm -T keys revoke $keys
rm ended
docker compose start inventory-svc
cat <<'END'
Restored, and the keys that had ended by now are revoked again. Issue new ones for those that had been rotated, then
start the gateways:
  docker compose start gateway
END
