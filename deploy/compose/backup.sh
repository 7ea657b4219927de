#!/bin/sh
# Writes both databases into a new file, as of one moment, and prints its name. It leaves out the accounts of the
# database, which accounts.sh creates. A restore drops both databases first: otherwise a table that a migration made
# after the backup would survive, and the next migration would keep it (docs/operations/databases.md, "After a restore").
set -eu
cd "$(dirname "$0")"
if [ -e ended ]; then
  echo "A restore has not come to its end, so a backup would be one of half a restore: repeat restore.sh first" >&2
  exit 1
fi
umask 077
backup=backup-$(date +%F-%H%M%S).sql
# shellcheck disable=SC2016 # the container's variable
docker compose exec -T mysql sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysqldump --user=root --single-transaction \
  --set-gtid-purged=OFF --add-drop-database --databases petstore_keys petstore_stock' > "$backup.part"
tail -n 1 "$backup.part" | grep -q '^-- Dump completed'
mv "$backup.part" "$backup"
echo "$backup"
