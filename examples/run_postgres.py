#!/usr/bin/python3
"""Runs one example with the address of a cluster of its own and compares what it prints.

    run_postgres.py PROGRAM EXPECTED
"""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
from postgres_cluster import Cluster  # noqa: E402


def main():
    expected = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    cluster = Cluster()
    try:
        done = subprocess.run([sys.argv[1], cluster.uri("postgres")], capture_output=True,
                              text=True, check=False, timeout=60)
    finally:
        cluster.end()
    good = done.returncode == 0 and done.stdout == expected
    print("1..1")
    print(f"{'ok' if good else 'not ok'} 1 - prints what is expected")
    if not good:
        print(done.stdout + done.stderr, file=sys.stderr)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
