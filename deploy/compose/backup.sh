#!/bin/sh
# Writes both databases to standard output, as of one moment. The accounts of the database are not among it: those come
# from accounts.sh.
set -eu
cd "$(dirname "$0")"
# shellcheck disable=SC2016 # the container's variable
docker compose exec -T mysql sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysqldump --user=root --single-transaction \
  --set-gtid-purged=OFF --databases petstore_keys petstore_stock'
