#!/usr/bin/env bash
# Runs the recipes of the book in one language and compares what they print with expected.txt.
#
# Usage: recipes.sh DIRECTORY COMMAND... HOST:PORT DB. The command runs in each recipe's directory; {} is its name.
set -euo pipefail

directory=$1
command=("${@:2:$#-3}")
export REDIS_URL=redis://${*: -2:1}/${*: -1}
for recipe in "$directory"/*/; do
    name=$(basename "$recipe")
    if ! printed=$(cd "$recipe" && "${command[@]//\{\}/$name}"); then
        echo "recipe $name has failed"
        exit 1
    fi
    diff -u "$recipe/expected.txt" - <<<"$printed"
done
echo "recipes for ${command[*]}: all print what is expected"
