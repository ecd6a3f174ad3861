#!/bin/sh
# What `./dev install` lays down is whole: headers, libraries, pkg-config files and the program; a
# host builds against it with pkg-config alone; one that wants no SQLite links none.
#
#   install.sh ROOT BUILD CC
set -u
root=$1
build=$2
cc=$3
number=0
failed=0
folder=$(mktemp -d "${TMPDIR:-/tmp}/postroom-install.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT

check() { # LABEL COMMAND...: one case; what the command prints is shown when it fails
    label=$1
    shift
    number=$((number + 1))
    if output=$("$@" 2>&1); then
        echo "ok $number - $label"
    else
        echo "not ok $number - $label"
        printf '%s\n' "$output" | sed 's/^/# /' >&2
        failed=1
    fi
}

equal() { # GOT EXPECTED
    [ "$1" = "$2" ] && return 0
    printf "got:      '%s'\nexpected: '%s'\n" "$1" "$2"
    return 1
}

DESTDIR=$folder/tree
export DESTDIR
check "meson installs into a folder of its own" meson install -C "$build" --no-rebuild --quiet
unset DESTDIR
prefix=$(meson introspect --buildoptions "$build" | tr '}' '\n' |
    sed -n 's/.*"name": "prefix", "value": "\([^"]*\)".*/\1/p')
tree=$folder/tree$prefix
pc=$(find "$tree" -name postroom.pc -printf '%h\n' | head -n 1)
libraries=$(dirname "${pc:-$tree/lib/pkgconfig}")
PKG_CONFIG_PATH=$pc
PKG_CONFIG_SYSROOT_DIR=$folder/tree
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
LD_LIBRARY_PATH=$libraries
export LD_LIBRARY_PATH

installed=$(cd "$tree/include/postroom" 2>/dev/null && ls)
check "every public header is installed" \
    equal "$installed" "$(cd "$root/include/postroom" && ls -- *.h)"
check "libpostroom has a soname" \
    equal "$(readelf -d "$libraries/libpostroom.so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')" \
    libpostroom.so.0
check "libpostroom-sqlite has a soname" equal \
    "$(readelf -d "$libraries/libpostroom-sqlite.so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')" \
    libpostroom-sqlite.so.0
check "a host without SQLite links none" \
    equal "$(readelf -d "$libraries/libpostroom.so" | grep -c 'NEEDED.*sqlite')" 0
check "its pkg-config asks for none" \
    equal "$(pkg-config --libs --static postroom | grep -c sqlite)" 0
check "nor for ours" equal "$(pkg-config --print-requires postroom)" ""
check "its private needs are named" equal \
    "$(pkg-config --print-requires-private postroom | sed 's/ .*//' | sort | tr '\n' ' ')" \
    "jansson libsodium "
check "the adapter's are" equal \
    "$(pkg-config --print-requires-private postroom-sqlite | sed 's/ .*//' | sort | tr '\n' ' ')" \
    "libsodium sqlite3 "
check "a host that uses PostgreSQL only links no SQLite" \
    equal "$(readelf -d "$libraries/libpostroom-postgres.so" | grep -c 'NEEDED.*sqlite')" 0
check "its private needs are named" equal \
    "$(pkg-config --print-requires-private postroom-postgres | sed 's/ .*//' | sort | tr '\n' ' ')" \
    "libpq libsodium "
check "a host that uses RabbitMQ only links no database" \
    equal "$(readelf -d "$libraries/libpostroom-amqp.so" | grep -c 'NEEDED.*\(sqlite\|libpq\)')" 0
check "its private needs are named" equal \
    "$(pkg-config --print-requires-private postroom-amqp | sed 's/ .*//' | sort | tr '\n' ' ')" \
    "jansson librabbitmq libsodium "
check "the adapter brings libpostroom" \
    equal "$(pkg-config --print-requires postroom-sqlite | sed 's/ .*//')" postroom

# shellcheck disable=SC2046 # pkg-config prints words
check "a host builds against the installed tree" \
    "$cc" -std=c99 -Wall -Wextra -Werror -o "$folder/host" "$root/examples/outbox.c" \
    $(pkg-config --cflags --libs postroom postroom-sqlite sqlite3)
check "and puts a message beside its row" \
    equal "$("$folder/host" "$folder/host.db" 2>&1)" "urn:message:shop:order-placed pending"
check "the program is installed and knows its version" equal \
    "$("$tree/bin/postroom" --version 2>&1)" "postroom $(pkg-config --modversion postroom)"
echo "1..$number"
exit $failed
