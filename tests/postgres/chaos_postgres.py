#!/usr/bin/python3
"""Two relays between two PostgreSQL databases, killed and frozen at random while orders come in.

    chaos_postgres.py POSTROOM SECONDS

Each order counts its customer's number up under the row lock and enqueues in the same transaction;
some are rolled back. In the end, counted from outside by plain SQL: every committed message stands
at the other side, nothing else does, and the first copies of a customer are in order.
"""
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "house"), str(TESTS / "support")]
import tap  # noqa: E402
from postgres_cluster import Cluster  # noqa: E402

CUSTOMERS = 12
PRODUCERS = 3
TYPE = "urn:message:shop:order-placed"
ORDER = """BEGIN;
WITH a AS (UPDATE customers SET seq = seq + 1 WHERE id = {customer} RETURNING seq)
INSERT INTO postroom.outbox (type, key, body)
SELECT '{type}', 'customer-{customer}', convert_to(seq::text, 'UTF8') FROM a;
{end};
"""


def produce(server, stop, seed):
    """Orders through psql, a script at a time; a server that crashed meanwhile is tried again."""
    dice = random.Random(seed)
    while not stop.is_set():
        script = "".join(ORDER.format(customer=dice.randrange(CUSTOMERS), type=TYPE,
                                      end="ROLLBACK" if dice.random() < 0.1 else "COMMIT")
                         for _ in range(40))
        subprocess.run(["psql", "-XAtq", server.uri("orders")], input=script, text=True,
                       capture_output=True, check=False, timeout=120)


def start_relay(postroom, server, number):
    return subprocess.Popen(
        [postroom, "relay", "--store", server.uri("orders"), "--to", server.uri("billing"),
         "--lease", "700ms", "--batch", "30", "--poll", "20ms", "--owner", f"relay {number}",
         "--parent", str(os.getpid())],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def torment(postroom, server, seconds, dice):
    """Kills, freezes longer than a lease, and crashes of the server; how many of each."""
    relays = [start_relay(postroom, server, n) for n in range(2)]
    done = {"kill": 0, "freeze": 0, "crash": 0}
    until = time.monotonic() + seconds
    while time.monotonic() < until or min(done.values()) == 0:
        time.sleep(dice.uniform(0.2, 1.0))
        which = dice.randrange(2)
        what = dice.choices(["kill", "freeze", "crash"], [6, 4, 1])[0]
        if done["crash"] == 0 and time.monotonic() > until - seconds / 2:
            what = "crash"
        done[what] += 1
        if what == "crash":
            if not server.crash():
                raise RuntimeError("the server did not come back")
        elif what == "freeze":
            relays[which].send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(0.3, 1.5))
            relays[which].send_signal(signal.SIGCONT)
        else:
            relays[which].kill()
        if relays[which].poll() is not None or what == "kill":
            relays[which].wait()
            relays[which] = start_relay(postroom, server, which)
    for relay in relays:
        relay.terminate()
    for relay in relays:
        try:
            relay.wait(30)
        except subprocess.TimeoutExpired:
            relay.kill()
            relay.wait()
    return done


def prepare(postroom, server):
    for name in ("orders", "billing"):
        server.ask("postgres", f"CREATE DATABASE {name}")
        subprocess.run([postroom, "migrate", "--store", server.uri(name)], check=True,
                       stdout=subprocess.DEVNULL, timeout=60)
    server.ask("orders", "CREATE TABLE customers (id integer PRIMARY KEY, seq integer NOT NULL);"
                         f"INSERT INTO customers SELECT n, 0 FROM generate_series(0, {CUSTOMERS - 1})"
                         " AS n")
    server.ask("billing", "INSERT INTO postroom.subscription (name, destinations, order_policy,"
                          " temporary, start_id, start_pend) VALUES ('billing',"
                          f" '{{local://topic/{TYPE}}}', 'hold', false, 0, '{{}}')")


def drain(postroom, server):
    """Whatever is left, by one relay that nobody disturbs."""
    until = time.monotonic() + 60
    left = "1"
    while left != "0" and time.monotonic() < until:
        subprocess.run([postroom, "relay", "--once", "--store", server.uri("orders"), "--to",
                        server.uri("billing")], check=False, capture_output=True, timeout=60)
        left = server.ask("orders", "SELECT count(*) FROM postroom.outbox_state WHERE reader = 1 "
                                    "AND state <> 'published'")
    return left


def judge(server, left, done):
    sent = server.ask("orders", "SELECT message_id FROM postroom.outbox ORDER BY 1").split()
    come = server.ask("billing", "SELECT message_id FROM postroom.outbox ORDER BY 1").split()
    counted = server.ask("orders", "SELECT sum(seq) FROM customers")
    wrong = server.ask("billing", """SELECT count(*) FROM (SELECT seq, lag(seq) OVER (
        PARTITION BY key ORDER BY first) AS before FROM (SELECT key,
        convert_from(body, 'UTF8')::integer AS seq, min(id) AS first FROM postroom.outbox
        GROUP BY 1, 2) AS f) AS o WHERE seq <> coalesce(before, 0) + 1""")
    copies = len(come) - len(set(come))
    print(f"# {len(sent)} sent, {copies} copies, {done}")
    tap.check("orders and messages commit together", counted == str(len(sent)), counted)
    tap.check("there was something to do", len(sent) > 200, str(len(sent)))
    tap.check("relays were killed and frozen, and the server crashed", min(done.values()) > 0,
              str(done))
    tap.check("nothing is left", left == "0", left)
    tap.check("nothing is lost", not set(sent) - set(come), str(len(set(sent) - set(come))))
    tap.check("nothing came that was not sent", not set(come) - set(sent))
    tap.check("first copies are in order, without a gap", wrong == "0", wrong)
    dead = server.ask("orders", "SELECT count(*) FROM postroom.outbox_parked")
    tap.check("nothing is parked", dead == "0", dead)


def main():
    postroom, seconds = sys.argv[1], float(sys.argv[2])
    server = Cluster("--fsync")
    stop = threading.Event()
    try:
        prepare(postroom, server)
        producers = [threading.Thread(target=produce, args=(server, stop, seed))
                     for seed in range(PRODUCERS)]
        for thread in producers:
            thread.start()
        try:
            done = torment(postroom, server, seconds, random.Random(20261130))
        finally:
            stop.set()
            for thread in producers:
                thread.join()
        judge(server, drain(postroom, server), done)
    finally:
        server.end()
    tap.done()


if __name__ == "__main__":
    main()
