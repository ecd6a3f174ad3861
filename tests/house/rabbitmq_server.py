#!/usr/bin/python3
"""tools/rabbitmq-server: the broker starts, evaluates, crashes and restarts when told; broker and
epmd end with the program, whatever ended it. One broker for all of it: it takes 10 s to start.

    rabbitmq_server.py ROOT
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
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


def greets(port):
    """Does a broker answer the protocol's header there?"""
    try:
        with socket.create_connection(("127.0.0.1", int(port)), 5) as line:
            line.sendall(b"AMQP\0\0\x09\x01")
            return line.recv(1) == b"\x01"
    except OSError:
        return False


def runs(folder):
    """Does a process work in this folder, or name it?"""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "cwd").startswith(folder) or \
                    folder.encode() in (path / "cmdline").read_bytes():
                return True
        except OSError:
            pass
    return False


def ended_early(program):
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        os.chmod(base, 0o755)
        server = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True, env={**os.environ, "TMPDIR": base})
        tap.check("it works where it is told to", wait_for(lambda: runs(base)), base)
        server.send_signal(signal.SIGTERM)
        server.wait(DEADLINE_S)
        tap.check("nothing is left of a start that was ended",
                  not runs(base) and not os.listdir(base), str(os.listdir(base)))


def main():
    program = str(pathlib.Path(sys.argv[1]) / "tools" / "rabbitmq-server")
    if not os.path.exists("/usr/lib/rabbitmq") and os.environ["POSTROOM_REQUIRE_BACKENDS"] != "1":
        print("1..0 # SKIP no RabbitMQ server is installed")
        return
    server = subprocess.Popen([program, "--tls", "--set", "frame_max = 8192"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    words = server.stdout.readline().split()
    tap.check("it says where it is", len(words) == 4 and words[0] == "ready", str(words))
    folder, port = words[1], words[2]
    tap.check("it speaks the protocol", greets(port))
    tap.check("its certificates are there", all(
        os.path.exists(f"{folder}/tls/{name}") for name in ("ca.pem", "server.pem", "client.pem",
                                                            "client.key", "other-ca.pem")))
    tap.check("it evaluates", ask(server, "eval 1 + 1") == "ok 2")
    tap.check("a setting is in force",
              ask(server, "eval application:get_env(rabbit, frame_max)") == "ok {ok,8192}")
    tap.check("what is no Erlang", ask(server, "eval foo(").startswith("error"))
    tap.check("a word that it does not know", ask(server, "dance").startswith("error"))
    tap.check("started twice is refused", ask(server, "start").startswith("error it runs"))
    tap.check("it is stopped", ask(server, "stop term") == "ok" and not greets(port))
    tap.check("it is started again", ask(server, "start") == "ok" and greets(port))
    tap.check("it evaluates after that", ask(server, "eval 2 + 2") == "ok 4")
    server.send_signal(signal.SIGKILL)
    server.wait()
    tap.check("broker and epmd end with a program that was killed",
              wait_for(lambda: not runs(folder)), folder)
    shutil.rmtree(folder)
    ended_early(program)
    tap.done()


if __name__ == "__main__":
    main()
