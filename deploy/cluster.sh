#!/usr/bin/env bash
# Three store nodes with three replicas of all data and two gateways on this machine, with their data in ./data-cluster. Ends all
# when it is ended.
# Usage: deploy/cluster.sh PROGRAM
set -euo pipefail

program=$1
data=data-cluster
stores=127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103
gateways=127.0.0.1:7001,127.0.0.1:7002
# A setting of the shell must not reach all of them.
unset "${!MOONSHARD_@}"

mkdir -p "$data"
rm -f "$data"/*.log
trap 'trap - EXIT; kill $(jobs -p) 2>/dev/null; wait' EXIT
trap 'exit 0' INT TERM

# Whoever ends by itself could not start, and says why.
started() {
    local log
    for log in "${@:2}"; do
        until grep -q ready "$data/$log.log"; do
            if [ "$(jobs -pr | wc -l)" -lt "$1" ]; then
                grep -h . "$data"/*.log >&2
                exit 1
            fi
            sleep 0.1
        done
    done
}

for address in ${stores//,/ }; do
    "$program" store --grpc "$address" --data-dir "$data/${address#*:}" --durability sync >"$data/${address#*:}.log" 2>&1 &
done
started 3 7101 7102 7103
# They remember which cluster they belong to.
if [ ! -e "$data/7103/replicas" ]; then
    "$program" topology found --replicas 3 --stores "$stores"
fi
for address in ${gateways//,/ }; do
    "$program" gateway --resp "$address" --http off --grpc off --stores "$stores" >"$data/${address#*:}.log" 2>&1 &
done

started 5 7001 7002
echo "redis-cli -p 7001 (or 7002); $program topology groups --stores $stores; logs in $data; Ctrl-C ends all"
wait -n
grep -h . "$data"/*.log >&2
exit 1
