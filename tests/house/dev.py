#!/usr/bin/python3
"""./dev and tools/summary: the closing line counts what Meson says, and nothing hides behind it.

    dev.py ROOT
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tap


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, **options)
    return done.returncode, done.stdout, done.stderr


def write_log(folder, tests):
    path = pathlib.Path(folder) / "log.json"
    path.write_text("".join(json.dumps({"name": name, "result": result, "stdout": out}) + "\n"
                            for name, result, out in tests), encoding="utf-8")
    return f"plain={path}"


def summary_cases(tool):
    good, bad = ("a", "OK", "ok 1 - x\n1..1\n"), ("b", "FAIL", "not ok 1 - x\n1..1\n")
    cases = [
        ("all passed", [good, good], [], 0, "2 passed, 0 failed", ""),
        ("one failed", [good, bad], [], 1, "1 passed, 1 failed", "plain: b: fail"),
        ("one timed out", [("c", "TIMEOUT", "")], [], 1, "0 passed, 1 failed", "plain: c: timeout"),
        ("a test that crashed", [("c", "ERROR", "")], [], 1, "0 passed, 1 failed", "c: error"),
        ("a skipped test", [("c", "SKIP", "1..0 # SKIP no server\n")], [], 1, "0 passed, 1 failed",
         "skipped"),
        ("a skipped case among good ones", [("c", "OK", "ok 1 - x\nok 2 - y # SKIP no server\n")],
         [], 1, "0 passed, 1 failed", "skipped: no server"),
        ("an expected skip", [("c", "OK", "ok 1 - y # SKIP expected: not root\n")], [], 0,
         "1 passed, 0 failed", ""),
        ("an expected failure", [("c", "EXPECTEDFAIL", "")], [], 0, "1 passed, 0 failed", ""),
        ("a failure that passed", [("c", "UNEXPECTEDPASS", "")], [], 1, "0 passed, 1 failed", ""),
        ("a build that broke", [good], ["fail:build asan"], 1, "1 passed, 1 failed", "build asan"),
        ("a build that stands", [good], ["ok:build asan"], 0, "2 passed, 0 failed", ""),
        ("no log", [good], ["asan=/nowhere/log.json"], 1, "1 passed, 1 failed", "left no results"),
        ("no test at all", [], [], 1, "0 passed, 1 failed", "ran no test"),
    ]
    for label, tests, more, status, closing, words in cases:
        with tempfile.TemporaryDirectory() as folder:
            got, out, err = run([sys.executable, tool, write_log(folder, tests), *more])
            last = out.splitlines()[-1] if out.splitlines() else ""
            tap.check(f"summary: {label}", got == status and last == closing and words in out,
                      out + err)


def left_running_case(tool):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "sleeper"
        shutil.copy("/bin/sleep", program)
        process = subprocess.Popen([str(program), "600"])
        try:
            got, out, err = run([sys.executable, tool, "--left-running", folder,
                                 write_log(folder, [("a", "OK", "")])])
            ended = process.wait(timeout=60)
        finally:
            process.kill()
        tap.check("summary: a process left running is a failure, and is ended",
                  got == 1 and "1 passed, 1 failed" in out and "left running" in out
                  and ended == -9, out + err)


def shell_files(root):
    found = [root / "dev", *root.glob("tests/**/*.sh"), *root.glob("examples/*.sh"),
             *root.glob("tools/*")]
    for path in sorted(found):
        if path.is_file() and path.read_bytes().startswith(b"#!/bin/sh"):
            yield path


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    tool = str(root / "tools" / "summary")
    summary_cases(tool)
    left_running_case(tool)
    for path in shell_files(root):
        got, out, err = run(["/bin/sh", "-n", str(path)])
        tap.check(f"{path.relative_to(root)} is plain shell", got == 0, out + err)
    text = (root / "dev").read_text(encoding="utf-8")
    unknown = set(re.findall(r"\$(\w+_PACKAGES)", text)) - set(
        re.findall(r"^(\w+_PACKAGES)=", text, re.M))
    tap.check("every list of packages that is used is there", not unknown, unknown)
    bare = {"PATH": os.environ["PATH"]}  # no HOME
    with tempfile.TemporaryDirectory() as folder:
        got, out, err = run([str(root / "dev")], cwd=folder, env=bare)
        tap.check("./dev without a command helps", got == 0 and "usage: ./dev" in out, out + err)
        for command in ("demo", "test", "bench", "soak", "lint", "build", "install", "clean"):
            tap.check(f"the help knows {command}", f"\n  {command} " in out, out)
        got, out, err = run([str(root / "dev"), "tset"], cwd=folder, env=bare)
        tap.check("an unknown command is refused", got == 1 and "no command 'tset'" in err, err)
        tap.check("nothing is left in the caller's folder", not os.listdir(folder))
    tap.done()


if __name__ == "__main__":
    main()
