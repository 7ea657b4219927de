#!/bin/sh
# Does what the entrypoint of Valkey's image does: gives up root.
set -eu
chown valkey:valkey /data
exec setpriv --reuid=valkey --regid=valkey --clear-groups -- "$@"
