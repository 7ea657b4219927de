#!/bin/sh
# Writes both databases to standard output, as of one moment. It leaves out the accounts of the database, which
# accounts.sh creates.
set -eu
cd "$(dirname "$0")"
# shellcheck disable=SC2016 # the container's variable
docker compose exec -T mysql sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysqldump --user=root --single-transaction \
  --set-gtid-purged=OFF --databases petstore_keys petstore_stock'
