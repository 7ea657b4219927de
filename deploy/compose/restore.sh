#!/bin/sh
# Puts a backup from standard input in place of both databases. Callers of the inventory get 503 meanwhile.
set -eu
cd "$(dirname "$0")"
docker compose stop inventory-svc
# shellcheck disable=SC2016 # the container's variable
docker compose exec -T mysql sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysql --user=root'
# Gateways remember revisions that are gone now: docs/operations/databases.md, "After a restore".
docker compose run --rm stock restored
docker compose start inventory-svc
