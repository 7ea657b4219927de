#!/bin/sh
# Replaces the containers of both tiers by those of new images, so that no caller notices: new ones are healthy before
# old ones drain, one at a time. A run that failed in the middle can be repeated.
set -eu
cd "$(dirname "$0")"
docker compose build
# Alone: Compose would replace the containers that it depends on, too, where their part of compose.yaml has changed.
docker compose run --rm --no-deps migrate
docker compose exec -T mysql sh -s grants < accounts.sh
for tier in inventory-svc gateway; do
  old=$(docker compose ps --all --quiet "$tier")
  # shellcheck disable=SC2086 # one word for each container
  set -- $old
  docker compose up --detach --wait --no-deps --no-recreate --scale "$tier=$(($# + 2))" "$tier"
  # One after the other: when one leaves, its callers ask for addresses, and use the others until they know the new
  # ones. The name service may give no answer for 3 to 5 s while containers come and go.
  for container; do
    docker stop "$container"
    docker rm "$container"
    sleep 10
  done
done
