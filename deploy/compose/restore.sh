#!/bin/sh
# Puts a backup, a file on standard input, in place of both databases. It leaves the gateways stopped, so that keys that
# were revoked or rotated after the backup can be revoked again before a caller uses one. Callers get 503 meanwhile.
set -eu
# A backup that failed has left an empty file, or one without this last line.
if ! { [ -f /dev/stdin ] && tail -n 1 /dev/stdin | grep -q '^-- Dump completed'; }; then
  echo "Standard input is no file with a whole backup, so nothing was changed: ./restore.sh < backup.sql" >&2
  exit 1
fi
cd "$(dirname "$0")"
docker compose stop gateway inventory-svc
# shellcheck disable=SC2016 # the container's variable
docker compose exec -T mysql sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysql --user=root'
# Callers remember revisions that are gone now: docs/operations/databases.md, "After a restore".
docker compose run --rm stock restored
docker compose start inventory-svc
cat <<'END'
Restored. Each key that was revoked or rotated after the backup works again, and the successors of rotated ones are gone.
Revoke the former, issue new keys, then start the gateways:
  docker compose run --rm keys revoke KEY_ID
  docker compose start gateway
END
