#!/usr/bin/python3
"""Each public header compiles alone, in four languages, pedantically, and names no backend header.

Tested itself: a header that needs another one, and one with a C++ keyword, must be found.

    headers.py ROOT CC CXX
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import tap

BACKENDS = ("sqlite3.h", "libpq-fe.h", "amqp.h", "jansson.h", "sodium.h", "microhttpd.h", "pthread.h")
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]


def languages(cc, cxx):
    return [("C99", [cc, "-std=c99", "-x", "c"]), ("C11", [cc, "-std=c11", "-x", "c"]),
            ("C17", [cc, "-std=c17", "-x", "c"]), ("C++17", [cxx, "-std=c++17", "-x", "c++"])]


def faults_of(header, include, compilers):
    """(language, what the compiler says) of each language that refuses the header."""
    faults = []
    for language, command in compilers:
        for source in (f'#include "{header}"\n', f'#include "{header}"\n#include "{header}"\n'):
            source += "extern int a_unit_that_is_not_empty;\n"
            done = subprocess.run([*command, *WARNINGS, "-I", str(include), "-"], input=source,
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                faults.append((language, done.stderr))
                break
    text = pathlib.Path(header).read_text(encoding="utf-8")
    for name in re.findall(r'#\s*include\s*[<"]([^>"]+)[>"]', text):
        if name in BACKENDS or not (name.startswith("postroom/") or name.startswith("std")):
            faults.append(("include", f"includes {name}"))
    if header.name != "export.h" and "PR_API" in text and "PR_BEGIN_DECLS" not in text:
        faults.append(("linkage", "declares functions outside PR_BEGIN_DECLS"))
    return faults


def main():
    root, cc, cxx = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    compilers = languages(cc, cxx)
    seeds = [("leans on another header", "uint32_t pr_x(void);\n", ["C99", "C11", "C17", "C++17"]),
             ("a word of C++", "extern int class;\n", ["C++17"]),
             ("an extension", "int pr_x(int (*list)[0]);\n",
              ["C99", "C11", "C17", "C++17"]),
             ("twice", "typedef struct { int n; } pr_x;\n", ["C99", "C11", "C17", "C++17"]),
             ("a backend", "#include <sqlite3.h>\n", ["include"])]
    with tempfile.TemporaryDirectory() as folder:
        for label, text, expected in seeds:
            header = pathlib.Path(folder) / "seed.h"
            header.write_text(text, encoding="utf-8")
            found = [language for language, _ in faults_of(header, root / "include", compilers)]
            tap.check(f"seeded: {label}", found == expected, f"found {found}")
    headers = sorted((root / "include" / "postroom").glob("*.h"))
    for header in headers:
        faults = faults_of(header, root / "include", compilers)
        tap.check(header.name, not faults, "\n".join(f"{a}: {b}" for a, b in faults))
    tap.check("there are headers", len(headers) > 10)
    tap.done()


if __name__ == "__main__":
    main()
