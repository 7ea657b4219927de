#!/bin/sh
# Writes both databases into a file, as of one moment: ./backup.sh FILE. An older backup of that name stays until the
# new one is whole. It leaves out the accounts of the database, which accounts.sh creates. A restore drops both
# databases first: otherwise a table that a migration made after the backup would survive, and the next migration would
# keep it (docs/operations/databases.md, "After a restore").
set -eu
if [ $# -ne 1 ]; then
  echo "usage: $0 FILE" >&2
  exit 64
fi
case $1 in /*) file=$1 ;; *) file=$PWD/$1 ;; esac
cd "$(dirname "$0")"
if [ -e ended ]; then
  echo "A restore has not come to its end, so a backup would be one of half a restore: repeat restore.sh first" >&2
  exit 1
fi
umask 077
trap 'rm -f "$file.part"' EXIT # one that breaks off on a full disk must not keep it full
# shellcheck disable=SC2016 # the container's variable
docker compose exec -T mysql sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysqldump --user=root --single-transaction \
  --set-gtid-purged=OFF --add-drop-database --databases petstore_keys petstore_stock' > "$file.part"
tail -n 1 "$file.part" | grep -q '^-- Dump completed'
mv "$file.part" "$file"
