#!/usr/bin/env python3
"""No body of a message is told by anything but the one command that shows it.

A message that carries a canary in its body, and another in a header, fails in every way that the
command can bring about; then all that was printed, logged or kept as an error is searched for them.
Lists as JSON give the headers, as part of the envelope, and never the body. TAP; usage: no_bodies.py
POSTROOM.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile

CANARY = "c4nary-9d1f"
HEADER_CANARY = "h3ader-77b0"
TYPE = "urn:message:test:secret-kept"


def main():
    postroom = sys.argv[1]
    cases = []
    with tempfile.TemporaryDirectory(prefix="postroom-no-bodies-") as folder:
        store, other = os.path.join(folder, "a.db"), os.path.join(folder, "b.db")
        body = json.dumps({"secret": CANARY})
        header = "note=" + HEADER_CANARY

        def run(name, *arguments, stdin=""):
            done = subprocess.run([postroom, *arguments], input=stdin, capture_output=True, text=True,
                                  timeout=60)
            cases.append((name, done.stdout + done.stderr))
            return done

        for path in (store, other):
            run("migrate", "migrate", "--store", path)
        sent = run("send", "send", TYPE, "--header", header, "--store", store, stdin=body)
        message = sent.stdout.split()[-1]
        run("a bad type", "send", "no type at all", "--header", header, "--store", store, stdin=body)
        run("a body too large", "send", TYPE, "--store", store, "--body-max", "4",
            stdin=body)
        run("a bad line", "send", "--lines", "--store", store,
            stdin='{"type": "%s", "body": {"secret": "%s"}, "key": 7}\n' % (TYPE, CANARY))
        run("a line that is no JSON", "send", "--lines", "--store", store,
            stdin='{"body": "%s"\n' % CANARY)
        run("returned", "relay", "--once", "--verbose", "--retry-max", "0", "--store", store,
            "--to", "sqlite:" + other)
        for command in (["status"], ["outbox", "list"], ["dead", "list"], ["explain", message]):
            run(" ".join(command), *command, "--store", store)
            run(" ".join(command) + " --json", *command, "--json", "--store", store)
        run("redrive", "dead", "redrive", message, "--reason", "test", "--store", store)
        database = sqlite3.connect(store)
        errors = database.execute("SELECT coalesce(group_concat(last_error), '') "
                                  "FROM postroom_outbox_parked").fetchone()[0]
        failed = database.execute("SELECT count(*) FROM postroom_outbox_parked").fetchone()[0]
        audit = database.execute("SELECT coalesce(group_concat(subject || reason), '') "
                                 "FROM postroom_audit").fetchone()[0]
        database.close()
        cases.append(("the error kept with the message", errors))
        cases.append(("the audit", audit))
        shown = run("show", "outbox", "show", message, "--store", store).stdout
        cases.pop()
    print("1..%d" % (len(cases) + 1))
    ok = sent.returncode == 0 and failed == 1 and CANARY in shown and HEADER_CANARY in shown
    print("%s 1 - the message failed, and show alone shows it" % ("ok" if ok else "not ok"))
    for n, (name, text) in enumerate(cases, 2):
        leaks = CANARY in text or (HEADER_CANARY in text and "list --json" not in name)
        ok = ok and not leaks
        print("%s %d - %s" % ("not ok" if leaks else "ok", n, name))
        if leaks:
            print("# " + text.replace("\n", "\n# "))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
