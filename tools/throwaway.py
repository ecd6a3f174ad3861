"""What the throw-away servers of tests share: a folder of their own, an account that is not root,
no life after the program that started them, and commands a line each on standard input.
"""
import ctypes
import os
import pathlib
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PR_SET_PDEATHSIG = 1


class Failure(Exception):
    pass


def account(name):
    """(uid, gid) to run the server as when we are root; None when we are not."""
    if os.getuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise Failure(f"there is no user {name} to run the server as") from error
    return entry.pw_uid, entry.pw_gid


def become(who, death_signal):
    """In the child: another user, another session, and no life after this program's."""
    parent = os.getpid()

    def prepare():
        os.setsid()
        if who:
            os.setgroups([])
            os.setgid(who[1])
            os.setuid(who[0])
        if death_signal:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
    return prepare


def run(who, seconds, *command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/",
                          check=False, preexec_fn=become(who, signal.SIGQUIT), timeout=seconds)
    if done.returncode != 0:
        raise Failure(f"{os.path.basename(command[0])}: {(done.stderr or done.stdout).strip()}")


def reachable(path):
    """May everybody enter this folder?"""
    path = pathlib.Path(path).resolve()
    return all(os.stat(part).st_mode & 0o001 for part in [path, *path.parents])


def new_folder(who, prefix, length_max):
    base = os.environ.get("TMPDIR") or "/tmp"
    if len(base) > length_max or (who and not reachable(base)):
        base = "/tmp"
    folder = tempfile.mkdtemp(prefix=prefix, dir=base)
    if who:
        os.chown(folder, *who)
    os.chmod(folder, 0o755)
    return folder


def remove_folder(folder):
    for _ in range(50):  # a process of the server may still be writing its last file
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)


def log_end(path):
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return " | ".join(text.splitlines()[-4:])


def say(line):
    """One line; whoever does not listen any more is no failure."""
    try:
        os.write(1, (line.replace("\n", " ") + "\n").encode("utf-8", "replace"))
    except OSError:
        pass


def end_on_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # by way of the caller's clean-up


def serve(obey, parent):
    """Answer commands until standard input ends, or the parent."""
    buffer = b""
    while True:
        ready, _, _ = select.select([0], [], [], 0.25)
        if parent and os.getppid() != parent:
            return
        if not ready:
            continue
        piece = os.read(0, 4096)
        if not piece:
            return
        buffer += piece
        while b"\n" in buffer:
            line, buffer = buffer.split(b"\n", 1)
            line = line.decode("utf-8", "replace").strip()
            if not line:
                continue
            try:
                say(obey(line))
            except (Failure, OSError, subprocess.SubprocessError) as error:
                say(f"error {error}")
