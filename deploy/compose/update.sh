#!/bin/sh
# Replaces the containers of both tiers by those of new images and settings, so that no caller notices: new ones are
# healthy before old ones drain, one at a time. A run that failed can be repeated.
set -eu
cd "$(dirname "$0")"
exec 9> .lock # only one script at a time may replace containers
flock --nonblock 9 || { echo "update.sh or restore.sh is running" >&2 && exit 1; }

# Waits until all of these containers are healthy.
are_healthy() {
  for _ in $(seq 300); do
    [ "$(docker inspect --format '{{.State.Health.Status}}' "$@" | grep -cx healthy)" -ne $# ] || return 0
    sleep 1
  done
  for container; do docker logs --tail 5 "$container" || :; done
  echo "The new containers were not healthy in five minutes, so they are removed" >&2
  return 1
}

docker compose build
# Alone: Compose would replace the containers that it depends on, too, where their part of compose.yaml has changed.
docker compose run --rm -T --no-deps migrate
docker compose exec -T mysql sh -s grants < accounts.sh
for tier in inventory-svc gateway; do
  old=$(docker compose ps --all --quiet "$tier")
  # shellcheck disable=SC2086 # one word for each container
  set -- $old
  docker compose up --detach --no-deps --no-recreate --scale "$tier=$(($# + 2))" "$tier"
  new=$(docker compose ps --all --quiet "$tier" | grep -vxF "$old")
  # A repeat would count new ones as old ones. Those that serve by now drain.
  trap 'docker stop $new && docker rm $new' EXIT
  trap 'exit 1' INT TERM HUP
  # Old ones may be what is sick, so only the new ones have to be healthy.
  # shellcheck disable=SC2086
  are_healthy $new
  trap - EXIT INT TERM HUP
  # One after the other: when one leaves, its callers ask for addresses, and use the others until they know the new
  # ones. The name service may give no answer for 3 to 5 s while containers come and go.
  for container; do
    docker stop "$container"
    docker rm "$container"
    sleep 10
  done
done
# The rules of Prometheus may have changed. Its own shell sends the signal: a container that `docker kill` has sent one
# is not restarted any more.
docker compose exec -T prometheus sh -c 'kill -HUP 1'
