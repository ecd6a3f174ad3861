#!/usr/bin/env python3
"""The counting itself is tested: each invariant is violated by hand, and its check must say so.

TAP; usage: test_invariants.py STORE ACTOR POSTROOM.
"""

import sys

from stores import open_provider
from world import World

# (what is done, database, statement, what the answer must contain)
SEEDED = [
    ("an order loses its message", "orders",
     "DELETE FROM postroom_outbox WHERE id = (SELECT min(id) FROM postroom_outbox)", "S1:"),
    ("a message without an order", "orders",
     "DELETE FROM orders WHERE number = 3", "S1:"),
    ("a message stands twice", "orders",
     """INSERT INTO postroom_outbox (message_id, type, body)
        SELECT message_id, type, body FROM postroom_outbox LIMIT 1""", "S1:"),
    ("a ghost was billed", "billing",
     "INSERT INTO invoices (number, customer, message_id, keyed) VALUES (999, 1, 'ghost', 1)",
     "S2:"),
    ("a published message never arrived", "billing",
     """DELETE FROM postroom_outbox WHERE CAST(message_id AS TEXT) =
        (SELECT message_id FROM invoices ORDER BY id LIMIT 1)""", "S3:"),
    ("an order was never billed", "billing",
     "DELETE FROM invoices WHERE number = 5", "S4:"),
    ("a settle by a foreign token", "orders",
     """UPDATE postroom_outbox_claim SET token = '00000000-0000-0000-0000-0000000000ff' WHERE kind = 'settle'
        AND seq = (SELECT min(seq) FROM postroom_outbox_claim WHERE kind = 'settle')""", "S6:"),
    ("a second effect", "billing",
     """INSERT INTO invoices (number, customer, message_id, keyed)
        SELECT number, customer, message_id, keyed FROM invoices LIMIT 1""", "S7:"),
    ("an effect without its mark", "billing",
     "DELETE FROM postroom_inbox WHERE message_id = (SELECT min(message_id) FROM invoices)",
     "S8:"),
    ("a mark without its effect", "billing",
     """INSERT INTO postroom_inbox (tenant, consumer, message_id, body_hash, processed_at)
        SELECT '', 'billing', 'x', body_hash, processed_at FROM postroom_inbox LIMIT 1""""", "S9:"),
    ("two orders of a customer the wrong way round", "billing",
     """UPDATE invoices SET number = 1000000 WHERE id =
        (SELECT min(id) FROM invoices WHERE keyed = 1)""", "S10:"),
]


def main():
    provider = open_provider(sys.argv[1])
    actor, postroom = sys.argv[2], sys.argv[3]
    template = World(actor, postroom, provider)
    children = [template.start(role) for role in ("produce", "relay", "handle")]
    drained = template.wait(template.drained, 40)
    for child in children[1:]:
        template.stop(child)
    print("1..%d" % (len(SEEDED) + 2))
    in_use = provider.in_use(template.orders)
    print("%s 1 - the store is %s" % ("ok" if in_use == sys.argv[1] else "not ok", in_use))
    healthy = drained and not template.violations()
    print("%s 2 - a healthy pair has no violation" % ("ok" if healthy else "not ok"))
    for line in template.violations()[:5] + template.logs():
        print("# " + line)
    failed = not healthy or in_use != sys.argv[1]
    for n, (what, database, statement, wanted) in enumerate(SEEDED, 3):
        world = World(actor, postroom, provider, template)
        changed = getattr(world, database).run(statement)
        found = changed > 0 and any(line.startswith(wanted) for line in world.violations())
        print("%s %d - found: %s" % ("ok" if found else "not ok", n, what))
        failed = failed or not found
        world.close()
    template.close()
    provider.end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
