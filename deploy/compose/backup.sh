#!/bin/sh
# Writes both databases to standard output, as of one moment. It leaves out the accounts of the database, which
# accounts.sh creates. A restore drops both databases first: otherwise a table that a migration made after the
# backup would survive, and the next migration would keep it (docs/operations/databases.md, "After a restore").
set -eu
cd "$(dirname "$0")"
# shellcheck disable=SC2016 # the container's variable
docker compose exec -T mysql sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysqldump --user=root --single-transaction \
  --set-gtid-purged=OFF --add-drop-database --databases petstore_keys petstore_stock'
