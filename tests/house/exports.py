#!/usr/bin/python3
"""What the shared libraries export: headers, map files and dynamic symbols are one list.

tools/exports compares them; here it is run on seeded differences, which it must tell, and then on
the real libraries.

    exports.py ROOT CC NAME=LIBRARY.so ...
"""
import pathlib
import subprocess
import sys
import tempfile

import tap

HEADER = """
#define PR_API __attribute__((visibility("default")))
/* PR_API in a comment is no declaration. */
PR_API const char *pr_text(int status);
PR_API int pr_call(int (*take)(int n), int *ret_n);
"""
MAP = "POSTROOM_0.1 {{\n    global:\n{}    local:\n        *;\n}};\n"
CODE = """
__attribute__((visibility("default"))) const char *pr_text(int status) {return status ? "a" : "b";}
__attribute__((visibility("default"))) int pr_call(int (*take)(int), int *n) {return take(*n);}
__attribute__((visibility("default"))) int pr_other(void) {return 1;}
"""


def run(tool, root, *arguments):
    done = subprocess.run([sys.executable, str(tool), "--root", str(root), *arguments],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def build(cc, root, code, names):
    (root / "lib" / "libpostroom.map").write_text(
        MAP.format("".join(f"        {name};\n" for name in names)), encoding="utf-8")
    (root / "code.c").write_text(code, encoding="utf-8")
    subprocess.run([cc, "-shared", "-fPIC", "-o", root / "code.so", root / "code.c",
                    f"-Wl,--version-script={root}/lib/libpostroom.map"], check=True)
    return f"postroom={root}/code.so"


def seeded(tool, cc):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "include" / "postroom").mkdir(parents=True)
        (root / "lib").mkdir()
        (root / "include" / "postroom" / "text.h").write_text(HEADER, encoding="utf-8")
        for adapter in ("amqp", "postgres", "sqlite"):
            (root / "include" / "postroom" / f"{adapter}.h").write_text("", encoding="utf-8")
            (root / "lib" / f"libpostroom-{adapter}.map").write_text(MAP.format(""),
                                                                     encoding="utf-8")
        cases = [
            ("all equal", CODE, ["pr_text", "pr_call"], 0, ""),
            ("declared, not in the map", CODE, ["pr_text"], 1, "add '        pr_call;'"),
            ("in the map, not declared", CODE, ["pr_text", "pr_call", "pr_other"], 1,
             "take 'pr_other' out"),
            ("listed, not defined", CODE.replace(" pr_call(", " pr_gone("), ["pr_text", "pr_call"],
             1, "'pr_call' is listed in lib/libpostroom.map and not defined"),
        ]
        for label, code, names, status, words in cases:
            got, output = run(tool, root, build(cc, root, code, names))
            tap.check(f"seeded: {label}", got == status and words in output, f"{got}: {output}")
        library = build(cc, root, CODE, ["pr_text", "pr_call", "pr_other"])
        (root / "lib" / "libpostroom.map").write_text(
            MAP.format("        pr_text;\n        pr_call;\n"), encoding="utf-8")
        got, output = run(tool, root, library)
        tap.check("seeded: exported, not in the map", got == 1 and
                  "'pr_other' is exported" in output, output)
        (root / "lib" / "libpostroom.map").unlink()
        run(tool, root, "--update")
        got, output = run(tool, root)
        tap.check("--update writes what the headers declare", got == 0, output)


def main():
    root, cc, libraries = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    tool = root / "tools" / "exports"
    seeded(tool, cc)
    got, output = run(tool, root, *libraries)
    tap.check("headers, maps and libraries agree", got == 0, output)
    tap.done()


if __name__ == "__main__":
    main()
