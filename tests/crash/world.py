"""One world of the crash tests: two databases in a folder, and the processes that work on them.

Processes are started from the real binaries and ended by their own id only.
"""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import invariants

PR_SET_PDEATHSIG = 1
READY_SECONDS = 15
LIBC = ctypes.CDLL(None)


def die_with_parent():
    """A campaign that is ended from outside leaves nothing running."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def status_of(pid, field):
    """The first word of a field of the kernel's status; None when there is none any more."""
    try:
        status = pathlib.Path("/proc/%d/status" % pid).read_text("ascii")
    except OSError:
        return None
    words = [line.split()[1] for line in status.splitlines() if line.startswith(field + ":")]
    return words[0] if words else None


def frozen(pid):
    return status_of(pid, "State") == "T"


def listens(pid):
    """Does a process handle SIGTERM by now?"""
    caught = status_of(pid, "SigCgt")
    return caught is None or bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


class World:
    """retry_ms: how soon a failed handler is tried again. slow_ms: how long one handler takes."""

    def __init__(self, actor, postroom, provider, template=None, orders=60, customers=4,
                 lease_ms=300, retry_ms=50, slow_ms=0):
        self.actor, self.postroom, self.provider = actor, postroom, provider
        self.count, self.customers, self.lease_ms = orders, customers, lease_ms
        self.retry_ms, self.slow_ms = retry_ms, slow_ms
        self.folder = tempfile.mkdtemp(prefix="postroom-crash-")
        self.orders, self.billing = provider.pair(
            self.folder, template and (template.orders, template.billing))
        self.children = []
        if not template:
            subprocess.run([actor, "prepare", self.orders.address, self.billing.address],
                           check=True, timeout=30)

    def arguments(self, role):
        return {
            "produce": [self.actor, "produce", self.orders.address, str(self.count),
                        str(self.customers)],
            "relay": [self.postroom, "relay", "--store", self.orders.store,
                      "--to", self.billing.store, "--lease", "%dms" % self.lease_ms],
            "handle": [self.actor, "handle", self.billing.address, str(self.lease_ms),
                       str(self.retry_ms), str(self.slow_ms)],
        }[role]

    def start(self, role, fault=None, trace=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("POSTROOM_")}
        if fault:
            environment["POSTROOM_FAULT"] = fault
        if trace:
            environment["POSTROOM_FAULT_TRACE"] = trace
        log = open(os.path.join(self.folder, role + ".log"), "ab")
        child = subprocess.Popen(self.arguments(role), env=environment, stdin=subprocess.DEVNULL,
                                 stdout=log, stderr=log, preexec_fn=die_with_parent)
        log.close()
        self.children.append(child)
        return child

    def drained(self):
        return invariants.drained(self.orders, self.billing, self.count)

    def wait(self, condition, seconds):
        """Wait for a condition; False when the deadline passed."""
        deadline = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            if condition():
                return True
            now = time.monotonic()
            if now > deadline:
                return False
            # Counting costs the processes their time: it takes a fifth at most.
            time.sleep(max(0.02, 4 * (now - began)))

    def stop(self, child, seconds=15):
        """End a child kindly, or not; its exit status, None when it had to be killed."""
        if child.poll() is None:
            # Only then: the leak checker stops its own process at the end, and a SIGCONT just
            # then takes that stop away, for which it waits for ever.
            if frozen(child.pid):
                child.send_signal(signal.SIGCONT)
            self.wait(lambda: child.poll() is not None or listens(child.pid), READY_SECONDS)
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                return None
        return child.returncode

    def violations(self):
        return invariants.violations(self.orders, self.billing)

    def logs(self):
        lines = []
        for role in ("produce", "relay", "handle"):
            path = os.path.join(self.folder, role + ".log")
            if os.path.exists(path):
                with open(path, errors="replace") as log:
                    lines += ["%s: %s" % (role, line.rstrip()) for line in log.readlines()[-5:]]
        return lines

    def close(self, keep=False):
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()
        self.orders.close()
        self.billing.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
