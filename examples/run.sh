#!/bin/sh
# Runs one example in an empty folder and compares what it prints with what is expected.
#
#   run.sh PROGRAM EXPECTED
set -u
folder=$(mktemp -d "${TMPDIR:-/tmp}/postroom-example.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
"$1" >output
status=$?
diff "$2" output && exit $status
exit 1
