#!/usr/bin/env bash
# Builds the book into docs/dist/book with mdBook, which is fetched into TARGET/mdbook. Where there is no Python, the server is
# built without its documentation, as it is without its console where there is no Node.js.
#
# Usage: build.sh TARGET
set -euo pipefail

docs=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
tools=$1/mdbook
if [[ ! $tools/ready -nt $docs/requirements.txt ]]; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "***** Python 3 with venv is missing: the server is built WITHOUT its documentation. Debian: 'apt install" \
            "python3-venv'. Fedora: 'dnf install python3'. macOS: 'brew install python'. *****" >&2
        exit 0
    fi
    echo "Fetching mdBook into $tools"
    "$python" -m venv --clear "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        --requirement "$docs/requirements.txt"
    touch "$tools/ready"
fi
MDBOOK_LOG=warn "$tools/bin/mdbook" build "$docs"
# The server delivers the compressed form to browsers that read it.
find "$docs/dist/book" -type f \( -name '*.html' -o -name '*.js' -o -name '*.css' \) -exec gzip -9kn {} +
touch "$docs/dist/built"
