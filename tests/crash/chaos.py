#!/usr/bin/env python3
"""Two relays and two handlers under random SIGKILL and SIGSTOP while orders keep coming.

TAP; usage: chaos.py STORE ACTOR POSTROOM [SECONDS [SEED]]. Afterwards everything is drained and counted from
outside: 0 lost, 0 ghosts, 0 duplicate effects, 0 order violations. Orders are placed in bursts, so that
there is load until the end.
"""

import random
import signal
import sys
import time

import invariants
from stores import open_provider
from world import World

DRAIN_SECONDS = 90
BURST = 40


class Campaign:
    def __init__(self, world, seed):
        self.world, self.random = world, random.Random(seed)
        self.slots = {}    # (role, n): process
        self.frozen = {}   # (role, n): when it goes on
        self.counts = {"kill": 0, "freeze": 0, "start": 0, "burst": 0}
        self.problems = []

    def keep_alive(self):
        for slot in [("relay", 0), ("relay", 1), ("handle", 0), ("handle", 1)]:
            child = self.slots.get(slot)
            status = child.poll() if child else -signal.SIGKILL
            if status is None:
                continue
            if status != -signal.SIGKILL:
                self.problems.append("%s ended with %d" % (slot[0], status))
            self.slots[slot] = self.world.start(slot[0])
            self.frozen.pop(slot, None)
            self.counts["start"] += 1

    def produce(self):
        child = self.slots.get("produce")
        if child and child.poll() is None:
            return
        if child and child.returncode not in (0, -signal.SIGKILL):
            self.problems.append("produce ended with %d" % child.returncode)
        if not child or child.returncode == 0:
            self.world.count += BURST
            self.counts["burst"] += 1
        self.slots["produce"] = self.world.start("produce")

    def disturb(self):
        now = time.monotonic()
        for slot, until in list(self.frozen.items()):
            if now >= until:
                if self.slots[slot].poll() is None:
                    self.slots[slot].send_signal(signal.SIGCONT)
                del self.frozen[slot]
        slot = self.random.choice(list(self.slots))
        child = self.slots[slot]
        if child.poll() is not None:
            return
        if self.random.random() < 0.5:
            child.kill()
            child.wait()
            self.counts["kill"] += 1
        elif slot != "produce" and slot not in self.frozen:
            child.send_signal(signal.SIGSTOP)
            # Often past the lease, so that it wakes up as a holder that was taken over.
            self.frozen[slot] = now + self.random.uniform(0.05, 3 * self.world.lease_ms / 1000)
            self.counts["freeze"] += 1

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.problems:
            self.keep_alive()
            self.produce()
            time.sleep(self.random.uniform(0.02, 0.25))
            self.disturb()

    def finish(self):
        for slot in list(self.frozen):
            if self.slots[slot].poll() is None:
                self.slots[slot].send_signal(signal.SIGCONT)
        self.frozen.clear()

        def step():
            self.keep_alive()
            child = self.slots["produce"]
            if child.poll() is not None and child.returncode != 0:
                self.slots["produce"] = self.world.start("produce")
            return bool(self.problems) or self.world.drained()

        if not self.world.wait(step, DRAIN_SECONDS):
            self.problems.append("not drained after %d s" % DRAIN_SECONDS)
        for slot, child in self.slots.items():
            status = self.world.stop(child)
            if status != 0:
                self.problems.append("%s ended with %s when it was stopped" % (slot, status))
        return self.problems + self.world.violations()


def main():
    provider = open_provider(sys.argv[1])
    actor, postroom = sys.argv[2], sys.argv[3]
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 60
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else int(time.time())
    world = World(actor, postroom, provider, orders=0, customers=7)
    campaign = Campaign(world, seed)
    sys.stdout.write("1..2\n# seed %d\n" % seed)
    campaign.run(seconds)
    problems = campaign.finish()
    copies = invariants.number(world.billing, """SELECT count(*) - count(DISTINCT message_id)
        FROM postroom_outbox WHERE destination LIKE 'local://%'""")
    if not problems and (campaign.counts["kill"] < 5 or campaign.counts["freeze"] < 5):
        problems.append("hardly anything was disturbed: %s" % campaign.counts)
    sys.stdout.write("# %d orders, %d copies absorbed, %s\n" %
                     (world.count, copies, campaign.counts))
    sys.stdout.write("%s 1 - two relays and two handlers killed and frozen for %d s\n" %
                     ("not ok" if problems else "ok", seconds))
    for line in (problems + world.logs())[:30] if problems else []:
        sys.stdout.write("# %s\n" % line)
    in_use = provider.in_use(world.orders)
    sys.stdout.write("%s 2 - the store was %s\n" %
                     ("ok" if in_use == sys.argv[1] else "not ok", in_use))
    world.close(keep=False)
    provider.end()
    return 1 if problems or in_use != sys.argv[1] else 0


if __name__ == "__main__":
    sys.exit(main())
