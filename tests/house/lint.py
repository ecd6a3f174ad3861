#!/usr/bin/python3
"""tools/lint: each rule fires on a seeded fault and on nothing else; the tree itself is clean.

    lint.py ROOT
"""
import pathlib
import subprocess
import sys
import tempfile

import tap

HEAD = "/*\n * A file for the rules.\n */\n"
DOC = "/**\n * Do it.\n *\n{} * Since   0.1\n */\n"


def case_table():
    """(label, file, text after the head, the rules that must fire)"""
    public = "include/postroom/x.h"
    return [
        ("clean", "src/core/a.c", "#include <stdio.h>\n\n#include \"base/text.h\"\n", []),
        ("a line of 101 columns", "src/core/a.c", "int a; /*" + "x" * 90 + "*/\n", ["line-length"]),
        ("a line of 100 columns", "src/core/a.c", "int a; /*" + "x" * 89 + "*/\n", []),
        ("a function of 71 lines", "src/core/a.c", "int f(void)\n{\n" + "    g();\n" * 69 + "}\n",
         ["function-length"]),
        ("a function of 70 lines", "src/core/a.c", "int f(void)\n{\n" + "    g();\n" * 68 + "}\n",
         []),
        ("an example of 121 lines", "examples/a.c", "int a;\n" * 118, ["file-length"]),
        ("an example of 120 lines", "examples/a.c", "int a;\n" * 117, []),
        ("a file of 801 lines", "src/core/a.c", "int a;\n" * 798, ["file-length"]),
        ("a banned call", "src/base/a.c", "int f(void)\n{\n    return atoi(\"1\");\n}\n", ["banned"]),
        ("a banned word in a text", "src/base/a.c", "const char *t = \"atoi(x)\"; /* rand() */\n", []),
        ("a longer name", "src/base/a.c", "int x = gmtime_r(a, b) + x_rand(1);\n", []),
        ("malloc in core", "src/core/a.c", "void *p = malloc(1);\n", ["bare-call"]),
        ("time in an adapter", "src/store/sqlite/a.c", "long t = time(0);\n", ["bare-call"]),
        ("a method called free", "src/core/a.c", "int a = ops->free(x) + o.time(1);\n", []),
        ("malloc in base", "src/base/a.c", "void *p = malloc(1);\n", []),
        ("a // comment", "src/core/a.c", "int a; // why\n", ["comment"]),
        ("a // in a text", "src/core/a.c", "const char *t = \"memory://topic\"; /* a//b */\n", []),
        ("no head", "src/core/a.c", None, ["file-head"]),
        ("groups in the wrong order", "src/core/a.c",
         "#include \"base/text.h\"\n\n#include <stdio.h>\n", ["include-order"]),
        ("no blank line between groups", "src/core/a.c",
         "#include <stdio.h>\n#include \"base/text.h\"\n", ["include-order"]),
        ("a condition is no group", "src/core/a.c",
         "#include \"base/text.h\"\n\n#ifdef X\n#include <stdio.h>\n#endif\n", []),
        ("documented", public, DOC.format("") + "PR_API void pr_do(int n);\n", []),
        ("not documented", public, "PR_API void pr_do(int n);\n", ["doc"]),
        ("no Since", public, "/**\n * Do it.\n */\nPR_API void pr_do(int n);\n", ["doc"]),
        ("a status without Errors", public, DOC.format("") + "PR_API pr_status pr_do(int n);\n",
         ["doc"]),
        ("a result without Owner", public, DOC.format("") + "PR_API char *pr_do(int n);\n", ["doc"]),
        ("an output without Owner", public, DOC.format(" * Errors  none.\n") +
         "PR_API PR_MUST_CHECK pr_status pr_do(\n    pr_x **ret_x);\n", ["doc"]),
        ("Owner and Errors", public, DOC.format(" * Owner   yours.\n * Errors  none.\n") +
         "PR_API pr_status pr_do(pr_x **ret_x, pr_error *err);\n", []),
    ]


def main():
    root = pathlib.Path(sys.argv[1])
    tool = root / "tools" / "lint"
    for label, name, text, expected in case_table():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text("int a;\n" if text is None else HEAD + text, encoding="utf-8")
            done = subprocess.run([sys.executable, str(tool), "--root", folder],
                                  capture_output=True, text=True, check=False)
            rules = [line.split("[", 1)[1].split("]", 1)[0] for line in done.stdout.splitlines()
                     if ": [" in line]
            tap.check(label, rules == expected and done.returncode == (1 if expected else 0),
                      done.stdout + done.stderr)
    done = subprocess.run([sys.executable, str(tool)], capture_output=True, text=True, check=False)
    tap.check("the tree is clean", done.returncode == 0, done.stdout + done.stderr)
    tap.done()


if __name__ == "__main__":
    main()
