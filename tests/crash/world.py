"""One world of the crash tests: two databases in a folder, and the processes that work on them.

Processes are started from the real binaries and ended by their own id only.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time

import invariants

PR_SET_PDEATHSIG = 1
STARTING_SECONDS = 1
LIBC = ctypes.CDLL(None)


def die_with_parent():
    """A campaign that is ended from outside leaves nothing running."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class World:
    def __init__(self, actor, postroom, template=None, orders=60, customers=4, lease_ms=300):
        self.actor, self.postroom = actor, postroom
        self.count, self.customers, self.lease_ms = orders, customers, lease_ms
        self.folder = tempfile.mkdtemp(prefix="postroom-crash-")
        self.orders = os.path.join(self.folder, "orders.db")
        self.billing = os.path.join(self.folder, "billing.db")
        self.children = []
        if template:
            shutil.copy(template.orders, self.orders)
            shutil.copy(template.billing, self.billing)
        else:
            subprocess.run([actor, "prepare", self.orders, self.billing], check=True, timeout=30)

    def arguments(self, role):
        return {
            "produce": [self.actor, "produce", self.orders, str(self.count), str(self.customers)],
            "relay": [self.postroom, "relay", "--store", "sqlite:" + self.orders,
                      "--to", "sqlite:" + self.billing, "--lease", "%dms" % self.lease_ms],
            "handle": [self.actor, "handle", self.billing, str(self.lease_ms)],
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
        child.started = time.monotonic()
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
        """End a child kindly, or not; its exit status, None when it had to be killed.

        One that was asked to end before it could know what that means has ended well too.
        """
        if child.poll() is None:
            starting = time.monotonic() - child.started < STARTING_SECONDS
            child.send_signal(signal.SIGCONT)
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                return None
            if starting and child.returncode == -signal.SIGTERM:
                return 0
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
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
