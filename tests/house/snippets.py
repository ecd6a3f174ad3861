#!/usr/bin/python3
"""The C of the documentation compiles, and the guide is a program that prints what it says.

Each block of C in docs/ is compiled against the public headers, as declarations or else as the body
of a function, after PRELUDE, which has the names that the pages use without declaring them. The
check is tried on seeded faults first.

    snippets.py ROOT CC PROGRAM LIBRARY_FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import tap

PRELUDE = r"""
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sqlite3.h>
#include <postroom/amqp.h>
#include <postroom/database.h>
#include <postroom/memory.h>
#include <postroom/postgres.h>
#include <postroom/postroom.h>
#include <postroom/sqlite.h>
#define TRY(call) do { pr_status tried = (call); if (tried != PR_OK) return (int)tried; } while (0)
#define P __attribute__((unused))
"""
NAMES = r"""
static P pr_bus *bus; static P pr_store *store; static P pr_contracts *contracts;
static P pr_endpoint *endpoint; static P pr_relay *relay; static P pr_saga *saga;
static P pr_transport *transport, *transports[2]; static P pr_timing *timing;
static P const pr_relay_options options = PR_RELAY_OPTIONS(.owner = "docs");
static P const char *const types[] = {"urn:message:shop:order-placed"};
static P const void *body; static P size_t size, count; static P void *shop; static P int number;
static P pr_status status;
pr_handled write_invoice(void *user, pr_scope *scope);
pr_handled keep_number(void *user, pr_saga_step *step, void *state);
pr_handled only_open_shops(void *user, pr_scope *scope, pr_next *next);
bool shop_is_open(void *user); bool carry(const pr_message *message);
void ring(void *user); void book_parcel(const void *state, int *ret_number);
int fail(const pr_error *err);
extern const pr_contract order_placed, order_cancelled;
"""
MESSAGE = "static P const pr_message message = PR_MESSAGE(.type = \"urn:message:a:b\");\n"
ERRORS = {True: "pr_error *err", False: "pr_error err"}


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


def sources(block):
    """The ways in which a block may be meant."""
    # what the block declares itself is not declared for it
    own = set(re.findall(r"\b(\w+)\((?:void|pr_\w+) \*", block)) if "static " in block else set()
    names = "\n".join(line if not own else
                      ";".join(part for part in line.split(";")
                               if not any(f" {name}(" in part for name in own))
                      for line in NAMES.splitlines()) + "\n"
    yield PRELUDE + names + block
    for pointer, message in ((False, True), (True, True), (False, False)):
        error = ERRORS[pointer] + (" = NULL;" if pointer else " = PR_ERROR_INIT;")
        yield (PRELUDE + names + (MESSAGE if message else "") + "int snippet(void);\n"
               "int snippet(void)\n{\n(void)&status;\n" + error + "\n(void)err;\n" + block +
               "return 0;\n}\n")


def compile_fault(compiler, root, block):
    """None when it compiles in one of its ways; else what the compiler said of the last."""
    said = ""
    for source in sources(block):
        done = subprocess.run([compiler, "-std=gnu17", "-fsyntax-only", "-Wall", "-Werror",
                               "-Wno-unused", "-Wno-unused-result", "-I", str(root / "include"),
                               "-x", "c", "-"], input=source, capture_output=True, text=True,
                              check=False)
        if done.returncode == 0:
            return None
        said = said or done.stderr
        said = min(said, done.stderr, key=len)
    return said


def test_the_check(compiler, root):
    for label, block, good in [
            ("statements", "pr_bus_start(bus, &err);\n", True),
            ("a declaration", "static const pr_field f[] = {{.name = NULL}};\n", True),
            ("a call that does not exist", "pr_bus_begin(bus, &err);\n", False),
            ("an argument too few", "pr_bus_start(bus);\n", False),
            ("a member that does not exist", "pr_bus_options o = PR_BUS_OPTIONS(.shop = 1);\n",
             False)]:
        fault = compile_fault(compiler, root, block)
        tap.check(f"seeded: {label}", (fault is None) == good, fault or "it compiles")


def test_the_guide(compiler, root, program, libraries):
    text = (root / "docs" / "guide.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "LD_LIBRARY_PATH": libraries}
        run = lambda command, **more: subprocess.run(command, cwd=folder, env=environment, text=True,
                                                     capture_output=True, check=False, **more)
        (pathlib.Path(folder) / "guide.c").write_text("".join(blocks(text, "c")), encoding="utf-8")
        done = run([compiler, "-Wall", "-Wextra", "-Werror", "-o", "guide", "guide.c", "-I",
                    str(root / "include"), "-L", libraries, "-lpostroom-sqlite", "-lpostroom",
                    "-lsqlite3"])
        tap.check("the guide compiles without a warning", done.returncode == 0, done.stderr)
        done = run(["./guide"])
        tap.check("and prints what it says",
                  done.returncode == 0 and done.stdout == "".join(blocks(text, "text")),
                  done.stdout + done.stderr)
        done = run(["sh", "-eu"], input="".join(blocks(text, "sh")))
        tap.check("its commands find the dead one and the sagas",
                  done.returncode == 0 and "an order without a price" in done.stdout and
                  "order 1" in done.stdout, done.stdout + done.stderr)
        done = run(["postroom", "dead", "list", "--store", "shop.db", "--json"])
        tap.check("and it was redriven", done.returncode == 0 and "without a price" not in done.stdout,
                  done.stdout + done.stderr)


def main():
    root, compiler = pathlib.Path(sys.argv[1]), sys.argv[2]
    test_the_check(compiler, root)
    test_the_guide(compiler, root, pathlib.Path(sys.argv[3]), sys.argv[4])
    for page in sorted((root / "docs").rglob("*.md")):
        found = [] if page.name == "guide.md" else blocks(page.read_text(encoding="utf-8"), "c")
        for number, block in enumerate(found, 1):
            fault = compile_fault(compiler, root, block)
            tap.check(f"{page.relative_to(root)}: block {number} compiles", fault is None, fault or "")
    tap.done()


if __name__ == "__main__":
    main()
