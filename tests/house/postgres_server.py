#!/usr/bin/python3
"""tools/postgres-server: the cluster starts, crashes and restarts when told, and is gone afterwards,
also when whoever started it, or the program itself, was killed.

    postgres_server.py ROOT TEMPLATE
"""
import os
import pathlib
import signal
import subprocess
import sys
import time

import tap

DEADLINE_S = 60


def wait_for(condition):
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


def ask(server, command):
    server.stdin.write(command + "\n")
    server.stdin.flush()
    return server.stdout.readline().strip()


def start(program, template, *more):
    server = subprocess.Popen([program, "--template", template, *more], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    words = server.stdout.readline().split()
    return server, words


def select_one(folder, port):
    done = subprocess.run(["psql", "-XAtq", "-h", folder, "-p", port, "-U", "postgres", "-c",
                           "SELECT system_identifier FROM pg_control_system()"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip()


def runs(folder):
    """Does a server run on a folder below this one?"""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder.encode() in path.read_bytes():
                return True
        except OSError:
            pass
    return False


def gone(folder):
    return wait_for(lambda: not os.path.exists(folder) and not runs(folder))


def commands(program, template):
    server, words = start(program, template)
    tap.check("it says where it is", len(words) == 3 and words[0] == "ready", str(words))
    folder, port = words[1], words[2]
    first = select_one(folder, port)
    tap.check("it answers on its socket", first.isdigit(), first)
    tap.check("a path of a socket is short enough", len(f"{folder}/.s.PGSQL.{port}") < 107, folder)
    tap.check("a crash and a recovery", ask(server, "restart immediate") == "ok")
    tap.check("it is the same cluster", select_one(folder, port) == first)
    tap.check("a stop", ask(server, "stop fast") == "ok" and select_one(folder, port) == "")
    tap.check("a start", ask(server, "start") == "ok" and select_one(folder, port) == first)
    tap.check("started twice is refused", ask(server, "start").startswith("error it runs"))
    tap.check("a word that it does not know", ask(server, "dance").startswith("error"))
    copy = ask(server, "copy").split()
    other = select_one(copy[1], port) if len(copy) == 3 else ""
    tap.check("a copy is another cluster", other.isdigit() and other != first, str(copy))
    server.stdin.close()
    server.wait(DEADLINE_S)
    tap.check("nothing is left at the end", gone(folder) and gone(copy[1]))


def killed_parent(program, template):
    script = ("import subprocess, sys, time\n"
              "p = subprocess.Popen([sys.argv[1], '--template', sys.argv[2], '--parent', "
              "str(__import__('os').getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, "
              "text=True, start_new_session=True)\n"
              "print(p.stdout.readline(), flush=True)\n"
              "time.sleep(600)\n")
    parent = subprocess.Popen([sys.executable, "-c", script, program, template],
                              stdout=subprocess.PIPE, text=True)
    words = parent.stdout.readline().split()
    folder = words[1]
    tap.check("it runs below a parent", runs(folder))
    parent.kill()
    parent.wait()
    tap.check("nothing is left of a parent that was killed", gone(folder), folder)


def killed_itself(program, template):
    server, words = start(program, template)
    folder = words[1]
    server.send_signal(signal.SIGKILL)
    server.wait()
    tap.check("no server runs on when the program itself was killed",
              wait_for(lambda: not runs(folder)), folder)
    subprocess.run(["rm", "-rf", folder], check=True)
    server, words = start(program, template)
    server.send_signal(signal.SIGTERM)
    server.wait(DEADLINE_S)
    tap.check("nothing is left after SIGTERM", gone(words[1]), words[1])


def main():
    program = str(pathlib.Path(sys.argv[1]) / "tools" / "postgres-server")
    template = sys.argv[2]
    if not os.path.exists("/usr/lib/postgresql") and os.environ["POSTROOM_REQUIRE_BACKENDS"] != "1":
        print("1..0 # SKIP no PostgreSQL server is installed")
        return
    commands(program, template)
    killed_parent(program, template)
    killed_itself(program, template)
    tap.done()


if __name__ == "__main__":
    main()
