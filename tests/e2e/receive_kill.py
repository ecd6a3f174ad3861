#!/usr/bin/python3
"""Receivers killed, frozen and stopped at random, their database crashed: what became of messages.

Two endpoints receive the same messages with a command, one process a message and in JSON lines, each
by two receivers with two workers. The command notes its message in a file and sends a follow-up. At
the end plain SQL and the file are counted: each message has one mark and one follow-up of each
endpoint, and at least one effect; effects beyond that are no more than what was in hand when somebody
was killed or frozen; first effects of a key are in its order; no command is left behind.
With rabbitmq the store is SQLite and a relay carries the messages through a broker, which is killed.
TAP; usage: receive_kill.py sqlite|postgres|rabbitmq POSTROOM.
"""
import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "crash"))
from stores import Sqlite, open_provider  # noqa: E402

KEYS, ROUNDS, EACH_ROUND, WORKERS = 5, 20, 6, 2
MESSAGES = ROUNDS * EACH_ROUND
TYPE, DONE = "urn:message:test:to-do", "urn:message:test:done"
LEASE_S = 0.6
DEADLINE_S = 90
NEWS = re.compile("postroom receive: (no messages come, trying again: .*|messages come again)")
ENDPOINTS = {"single": [], "lines": ["--lines"]}
COMMANDS = {
    "single": """n=$(cat); echo "single $n" >>effects; sleep 0.$((n %% 4));
        echo "{\\"type\\":\\"%s\\",\\"body\\":$n}" """ % DONE,
    "lines": """exec /usr/bin/python3 -c 'if 1:
        import json, os, sys, time
        for line in sys.stdin:
            message = json.loads(line)
            out = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(out, b"lines %%d\\n" %% message["body"])
            os.close(out)
            time.sleep(message["body"] %% 4 / 10)
            print(json.dumps({"id": message["id"], "verdict": "ok",
                              "send": [{"type": "%s", "body": message["body"]}]}), flush=True)'
        """ % DONE,
}


class Rabbit(Sqlite):
    name = "rabbitmq"

    def __init__(self):
        self.broker = subprocess.Popen(
            [os.environ["POSTROOM_RABBITMQ_SERVER"], "--parent", str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        words = self.broker.stdout.readline().split()
        if words[:1] != ["ready"]:
            missing = self.broker.wait(60) == 3
            skipped = missing and os.environ.get("POSTROOM_REQUIRE_BACKENDS") != "1"
            print("1..0 # SKIP no broker is installed" if skipped else "Bail out! no broker")
            sys.exit(0 if skipped else 1)
        self.uri = "amqp://guest:guest@127.0.0.1:%s" % words[2]

    def crash(self):
        self.broker.stdin.write("restart kill\n")
        self.broker.stdin.flush()
        if not self.broker.stdout.readline().startswith("ok"):
            raise RuntimeError("the broker does not come again")

    def end(self):
        self.broker.stdin.close()
        self.broker.wait(60)


class Receivers:
    def __init__(self, postroom, store, folder, source):
        self.postroom, self.store, self.folder = postroom, store, folder
        self.source = ["--from", source] if source else []
        self.running = []
        self.harmed = 0  # how often somebody may have lost what was in hand

    def start(self, endpoint, *more):
        command = [self.postroom, "receive", "--store", self.store, "--endpoint", endpoint, "--type",
                   TYPE, *self.source, *ENDPOINTS[endpoint], *([] if ENDPOINTS[endpoint] else ["--follow-ups"]),
                   "--backoff", "20ms", "--lease", "%dms" % (LEASE_S * 1000), "--kill-after", "1s",
                   "--exec", COMMANDS[endpoint], *more]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE)

    def fill(self):
        for endpoint in ENDPOINTS:
            while sum(name == endpoint for name, _ in self.running) < 2:
                self.running.append((endpoint, self.start(endpoint, "--workers", str(WORKERS))))

    def harm(self, chance):
        name, process = self.running.pop(chance.randrange(len(self.running)))
        how = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
        process.send_signal(how)
        if how == signal.SIGSTOP:
            time.sleep(2 * LEASE_S)
            process.send_signal(signal.SIGCONT)
            self.running.append((name, process))
        else:
            process.communicate(timeout=DEADLINE_S)
        self.harmed += how != signal.SIGTERM

    def end(self, outage):
        """What they wrote that is no news of an outage, if there was one, and how they ended."""
        errors = b""
        for _, process in self.running:
            process.send_signal(signal.SIGTERM)
        for _, process in self.running:
            errors += process.communicate(timeout=DEADLINE_S)[1]
            if process.returncode not in (0, -signal.SIGTERM):  # as it had not begun yet
                errors += b"exit %d\n" % process.returncode
        lines = errors.decode().splitlines()
        return "\n".join(line for line in lines if not (outage and NEWS.fullmatch(line)))


def left_behind(folder):
    """Processes whose current folder it is."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") == folder:
                found.append((process / "cmdline").read_text().replace("\0", " ")[:80])
        except OSError:
            pass
    return found


def wait_for(condition):
    until = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def effects_of(folder):
    """By endpoint, the messages in the order of their effects."""
    effects = collections.defaultdict(list)
    for line in (pathlib.Path(folder) / "effects").read_text().splitlines():
        name, number = line.split()
        effects[name].append(int(number))
    return effects


def out_of_order(numbers):
    """Keys whose first effects are not in the order of their messages."""
    first = list(dict.fromkeys(numbers))
    return [key for key in range(KEYS)
            if [n for n in first if n % KEYS == key] != sorted(n for n in first if n % KEYS == key)]


def campaign(provider, postroom, folder, chance):
    database, other = provider.pair(folder)
    broker = provider.uri if provider.name == "rabbitmq" else None
    source = other if broker else database
    made = Receivers(postroom, database.store, folder, broker)

    def run(*arguments, text=None, of=database):
        subprocess.run([postroom, *arguments, "--store", of.store], input=text, text=True,
                       stdout=subprocess.DEVNULL, check=True, timeout=DEADLINE_S, cwd=folder)

    run("migrate", "--default-transport", "local")
    if broker:
        run("migrate", "--default-transport", "rabbitmq", of=source)
    for endpoint in ENDPOINTS:  # subscribe, before there is a message
        made.start(endpoint, "--until-idle", "50ms").communicate(timeout=DEADLINE_S)
        if broker:
            subprocess.run([postroom, "topology", "declare", endpoint, "--type", TYPE], check=True,
                           stdout=subprocess.DEVNULL, env={**os.environ, "POSTROOM_AMQP": broker})
    marks = "SELECT count(*) FROM postroom_inbox"
    crashes = 0
    for number in range(ROUNDS):
        run("send", "--lines", text="".join(
            '{"type": "%s", "key": "k%d", "body": %d}\n' % (TYPE, n % KEYS, n)
            for n in range(number * EACH_ROUND, (number + 1) * EACH_ROUND)), of=source)
        if broker:
            run("relay", "--once", "--to", broker, of=source)
        made.fill()
        time.sleep(chance.uniform(0.05, 0.3))
        made.harm(chance)
        if provider.name == "postgres" and number % 9 == 4:
            database.leave()
            provider.cluster.crash()
            crashes += 1
        if broker and number == ROUNDS // 2:
            provider.crash()
    made.fill()
    wait_for(lambda: database.rows(marks)[0][0] >= 2 * MESSAGES)
    errors = made.end(outage=crashes > 0 or broker)
    gone = wait_for(lambda: not left_behind(folder))
    effects = effects_of(folder)
    again = {name: len(effects[name]) - len(set(effects[name])) for name in ENDPOINTS}
    bound = WORKERS * (made.harmed + 4 * crashes)
    print("# %d harmed, %d crashes of the server, effects again: %s" % (made.harmed, crashes, again))
    yield "no receiver ends with an error", errors, ""
    yield "each message has one mark of each endpoint", database.rows(
        "SELECT consumer, count(*), count(DISTINCT message_id) FROM postroom_inbox "
        "GROUP BY consumer ORDER BY consumer"), [(n, MESSAGES, MESSAGES) for n in sorted(ENDPOINTS)]
    yield "nothing is parked", database.rows(
        "SELECT state, attempts, last_error FROM postroom_inbox_parked"), []
    yield "each message has one follow-up of each endpoint", database.rows(
        "SELECT source, count(*), count(DISTINCT causation_id) FROM postroom_outbox "
        "WHERE type = '%s' GROUP BY source ORDER BY source" % DONE), [
            (n, MESSAGES, MESSAGES) for n in sorted(ENDPOINTS)]
    for name in ENDPOINTS:
        yield "each message has its effect: " + name, sorted(set(effects[name])), \
            list(range(MESSAGES))
        if not broker:  # which deals the messages of one queue out to all receivers
            yield "a key's first effects are in order: " + name, out_of_order(effects[name]), []
    yield "no more are doubled than were in hand", sum(again.values()) <= bound, True
    yield "something was doubled, so that there was something to see", sum(again.values()) > 0, True
    yield "no command is left behind", (gone, left_behind(folder)), (True, [])
    database.close()


def main():
    provider = Rabbit() if sys.argv[1] == "rabbitmq" else open_provider(sys.argv[1])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    print("# seed %d" % seed)
    failed = count = 0
    with tempfile.TemporaryDirectory(prefix="postroom-receive-kill-") as folder:
        try:
            for label, got, wanted in campaign(
                    provider, os.path.abspath(sys.argv[2]), folder, random.Random(seed)):
                count += 1
                failed += got != wanted
                print("%sok %d - %s" % ("" if got == wanted else "not ", count, label))
                if got != wanted:
                    print("# got %r, wanted %r" % (got, wanted))
        finally:
            provider.end()
    print("1..%d" % count)
    sys.exit(1 if failed else 0)


main()
