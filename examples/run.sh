#!/bin/sh
# Runs one example in an empty folder and compares what it prints with what is expected.
#
#   run.sh PROGRAM EXPECTED
set -u
program=$(realpath "$1") || exit 1
folder=$(mktemp -d "${TMPDIR:-/tmp}/postroom-example.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
program=$(realpath "$1") expected=$(realpath "$2") || exit 1
cd "$folder" || exit 1
"$program" >output
status=$?
diff "$expected" output && exit $status
exit 1
