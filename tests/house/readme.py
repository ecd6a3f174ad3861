#!/usr/bin/python3
"""The README, followed literally: its shell and SQL blocks are run in an empty folder without HOME,
its C program is compiled and run as it stands, its C function between the lines of a small host.

    readme.py ROOT CC PROGRAM LIBRARY_FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import tap

HOST = r"""
#include <stdbool.h>
#include <sqlite3.h>
#include <stdio.h>
%s
int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    sqlite3 *db = NULL;
    pr_sqlite_options options = PR_SQLITE_OPTIONS(.path = "shop.db");
    if (pr_sqlite_store_open(&options, &store, &err) != PR_OK || sqlite3_open("shop.db", &db) != 0)
        return 2;
    pr_status status = place_order(store, db, &err);
    printf("%%s\n", pr_status_text(status));
    sqlite3_close(db);
    pr_store_free(store);
    return status != PR_OK;
}
"""


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


def shell_block(text):
    """The block of the section 'From a shell'; the others install, or name ./dev."""
    found = [block for block in blocks(text, "sh") if "postroom migrate" in block]
    return found[0] if len(found) == 1 else ""


def run(command, folder, environment, **options):
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True,
                          check=False, **options)
    return done.returncode, done.stdout, done.stderr


def main():
    root, cc = pathlib.Path(sys.argv[1]), sys.argv[2]
    program, libraries = pathlib.Path(sys.argv[3]), sys.argv[4]
    text = (root / "README.md").read_text(encoding="utf-8")
    dev = (root / "dev").read_text(encoding="utf-8")
    commands = sorted(set(re.findall(r"\./dev (\w+)", text)))
    missing = [name for name in commands if not re.search(rf"^{name}( \||\))", dev, re.M)]
    tap.check("each ./dev command that it names is there", commands and not missing, missing)
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "LD_LIBRARY_PATH": libraries}
        got, out, err = run(["sh", "-eu"], folder, environment, input=shell_block(text))
        tap.check("its shell commands do what they say",
                  got == 0 and re.search(r"^pending +1 +0$", out, re.M) and "order-1" in out,
                  out + err)
        sql = "".join(blocks(text, "sql"))
        got, out, err = run(["sqlite3", "-bail", "shop.db"], folder, environment, input=sql)
        tap.check("its SQL runs in a shell of SQLite", got == 0 and "INSERT" in sql, out + err)
        programs = [block for block in blocks(text, "c") if "int main(" in block]
        functions = [block for block in blocks(text, "c") if "int main(" not in block]
        sources = {"host": HOST % "".join(functions), "hello": "".join(programs)}
        wanted = {"host": "ok\n", "hello": "hello, world\n"}
        for name, source in sources.items():
            (pathlib.Path(folder) / f"{name}.c").write_text(source, encoding="utf-8")
            got, out, err = run([cc, "-Wall", "-Wextra", "-Werror", "-o", name, f"{name}.c", "-I",
                                 str(root / "include"), "-L", libraries, "-lpostroom-sqlite",
                                 "-lpostroom", "-lsqlite3"], folder, environment)
            tap.check(f"its C compiles without a warning: {name}", got == 0, out + err)
            got, out, err = run([f"./{name}"], folder, environment)
            tap.check(f"and does what it says: {name}", got == 0 and out == wanted[name], out + err)
        example = (root / "examples" / "hello.c").read_text(encoding="utf-8")
        tap.check("its program is examples/hello.c", programs and programs[0] in example, programs)
        got, out, err = run([str(program), "outbox", "list", "--store", "shop.db", "--json"], folder,
                            environment)
        keys = sorted(re.findall(r'"key":"([^"]*)"', out))
        tap.check("all three messages are there", keys == ["order-1", "order-1", "order-2"],
                  out + err)
        got, out, err = run([str(program), "explain", "00000000-0000-7000-8000-000000000000",
                             "--store", "shop.db"], folder, environment)
        tap.check("what is not found exits 3", got == 3, out + err)
    tap.done()


if __name__ == "__main__":
    main()
