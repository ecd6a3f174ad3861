#!/usr/bin/env python3
"""Kill the producer, the relay and the handler at every fault point that they pass.

A first run without faults writes down which points each process passes and how often. Then, for each
point, a run in which the process is killed at its first, second and last hit, started again, drained,
and counted from outside. TAP; usage: crash_points.py STORE ACTOR POSTROOM [all | sample | POINT-SUBSTRING];
a sample is the first hit of every third point.

One process works at a time, each until it has nothing left to do, and what waits for a time is made
due by hand: so a run passes the same points as the run before it, however busy the machine is, and
each must be reached. What comes of processes that work at the same time is chaos.py's.
"""

import collections
import os
import signal
import sys

import invariants
from stores import open_provider
from world import World

ROLES = ("produce", "relay", "handle")
DRAIN_SECONDS = 60
HOUR_MS = 3600000
LEASE_MS = 600

# Leases are renewed by who is held up for more than a third of them: a slow run is for those points.
SLOW_MS = 250
SLOW_POINT = "renew"
SLOW_RELAY = "relay.after_submit:1:delay:%d" % SLOW_MS

# Passed with nothing to do as well, so that the clock decides how often: the first hit is certain.
# Settles and acks go in batches, and the clock decides how many: so a last hit may be passed by, and
# a second where there are few. A process that was not killed is looked at all the same.
FEW = 3
POLLED = ("relay.before_claim", "relay.after_claim", "relay.before_promote", "relay.after_promote")


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def new_world(slow, actor, postroom, provider, template=None):
    return World(actor, postroom, provider, template, orders=34, lease_ms=LEASE_MS,
                 retry_ms=HOUR_MS, slow_ms=SLOW_MS if slow else 0)


class Run:
    """One run to its end; one process of one role may be killed at a point."""

    def __init__(self, world, role=None, fault=None, traces=None):
        self.world, self.role, self.fault, self.traces = world, role, fault, traces
        self.killed, self.problems = False, []

    def start(self, role, first):
        faults = [self.fault] if self.fault and first and role == self.role else []
        if role == "relay" and self.world.slow_ms:
            faults.append(SLOW_RELAY)
        return self.world.start(role, ",".join(faults), self.traces and self.traces[role])

    def was_killed(self, role, status):
        """An end by the kill that was ordered, once."""
        if role == self.role and status == -signal.SIGKILL and not self.killed:
            self.killed = True
            return True
        return False

    def stage(self, role, done):
        """One process until its work is done, however often it has to be started."""
        child = self.start(role, first=True)

        def step():
            nonlocal child
            status = child.poll()
            if status is None or (role == "produce" and status == 0):
                return done()
            if not self.was_killed(role, status):
                return True
            child = self.start(role, first=False)
            return False

        if not self.world.wait(step, DRAIN_SECONDS):
            self.problems.append("%s: not done after %d s" % (role, DRAIN_SECONDS))
        status = self.world.stop(child)
        if self.was_killed(role, status):  # the last hits may be passed while it stops
            self.stage(role, done)
        elif status != 0:
            self.problems.append("%s ended with %s when it was stopped" % (role, status))

    def produced(self):
        return invariants.produced(self.world.orders, self.world.count)

    def relayed(self):
        return invariants.relayed(self.world.orders)

    def handled(self):
        """Once all that came is handled or parked, what failed is due."""
        if invariants.acked(self.world.billing):
            self.world.billing.run("UPDATE postroom_inbox_parked SET next_attempt_at = %s "
                                   "WHERE state = 'failed'" % self.world.provider.now)
        return self.world.drained()

    def go(self):
        """(Was it killed at the point?, problems)."""
        self.stage("produce", self.produced)
        self.world.orders.run("UPDATE postroom_outbox_parked SET next_attempt_at = %s "
                              "WHERE reader = 0" % self.world.provider.now)
        for role, done in (("relay", self.relayed), ("handle", self.handled)):
            if not self.problems:
                self.stage(role, done)
        return self.killed, self.problems + self.world.violations()


def count_hits(paths):
    hits = collections.OrderedDict()
    for role in ROLES:
        counter = collections.OrderedDict()
        with open(paths[role]) as trace:
            for line in trace:
                name = line.split()[0]
                counter[name] = counter.get(name, 0) + 1
        for name, count in counter.items():
            hits[(role, name)] = count
    return hits


def undisturbed(slow, *of_world):
    """How often each point is passed: (hits, problems)."""
    world = new_world(slow, *of_world)
    traces = {role: os.path.join(world.folder, role + ".trace") for role in ROLES}
    _, problems = Run(world, traces=traces).go()
    hits = {point: count for point, count in count_hits(traces).items()
            if slow == (SLOW_POINT in point[1])}
    problems += world.logs() if problems else []
    world.close()
    return hits, problems


def choose(hits, which):
    """(role, point, hit, label, is it certain?) of each case."""
    cases = []
    for (role, name), count in hits.items():
        wanted = {count: "last", 2: "second", 1: "first"}
        if name in POLLED or which == "sample":
            wanted = {1: "first"}
        cases += [(role, name, hit, label, hit == 1 or (hit == 2 and count > FEW))
                  for hit, label in sorted(wanted.items()) if hit <= count]
    if which == "sample":
        return cases[::3]
    return [case for case in cases if which == "all" or which in case[1]]


def kill_at(case, *of_world):
    """(was it killed?, problems) of one case."""
    role, name, hit, _, certain = case
    world = new_world(SLOW_POINT in name, *of_world)
    killed, problems = Run(world, role, "%s:%d:kill" % (name, hit)).go()
    if not killed and certain:
        problems.append("the point was not reached")
    problems += world.logs() if problems else []
    world.close()
    return killed, problems


def main():
    provider = open_provider(sys.argv[1])
    actor, postroom = sys.argv[2], sys.argv[3]
    which = sys.argv[4] if len(sys.argv) > 4 else "all"
    template = new_world(False, actor, postroom, provider)
    of_world = (actor, postroom, provider, template)
    hits, problems = undisturbed(False, *of_world)
    if not problems:
        slow_hits, problems = undisturbed(True, *of_world)
        hits.update(slow_hits)
    in_use = provider.in_use(template.orders)
    if in_use != sys.argv[1]:
        problems.append("the store is " + in_use)
    if problems:
        say("Bail out! without any fault: %s" % "; ".join(problems[:8]))
        return 1

    cases = choose(hits, which)
    say("1..%d" % len(cases))
    failed = not cases
    for n, case in enumerate(cases, 1):
        killed, problems = kill_at(case, *of_world)
        say("%s %d - %s killed at the %s hit of %s%s" %
            ("not ok" if problems else "ok", n, case[0], case[3], case[1],
             "" if killed else " (passed less often this time)"))
        for line in problems[:12]:
            say("# " + line)
        failed = failed or bool(problems)
    template.close()
    provider.end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
