#!/bin/sh
# Replaces the containers of both tiers by those of new images and settings, so that no caller notices: new ones are
# healthy before old ones drain, one at a time. A run that failed can be repeated.
set -eu
cd "$(dirname "$0")"
exec 9< . # one run at a time of those that replace containers
flock --nonblock 9 || { echo "update.sh or restore.sh is running" >&2 && exit 1; }

# Waits until all of these containers are healthy.
are_healthy() {
  for _ in $(seq 300); do
    [ "$(docker inspect --format '{{.State.Health.Status}}' "$@" | sort -u)" != healthy ] || return 0
    sleep 1
  done
  return 1
}

docker compose build
# Alone: Compose would replace the containers that it depends on, too, where their part of compose.yaml has changed.
docker compose run --rm --no-deps migrate
docker compose exec -T mysql sh -s grants < accounts.sh
for tier in inventory-svc gateway; do
  old=$(docker compose ps --all --quiet "$tier")
  # shellcheck disable=SC2086 # one word for each container
  set -- $old
  docker compose up --detach --no-deps --no-recreate --scale "$tier=$(($# + 2))" "$tier"
  # Old ones may be what is sick, so that only the new ones have to be healthy.
  new=$(docker compose ps --all --quiet "$tier" | grep -vxF "$old")
  # shellcheck disable=SC2086
  if ! are_healthy $new; then
    for container in $new; do docker logs --tail 5 "$container"; done
    docker rm --force $new
    echo "New containers of $tier were not healthy in five minutes: they are removed, and the old ones go on." >&2
    exit 1
  fi
  # One after the other: when one leaves, its callers ask for addresses, and use the others until they know the new
  # ones. The name service may give no answer for 3 to 5 s while containers come and go.
  for container; do
    docker stop "$container"
    docker rm "$container"
    sleep 10
  done
done
docker compose kill --signal HUP prometheus # its rules may have changed
