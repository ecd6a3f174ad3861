"""What must be true of two databases after any crash, asked with plain SQL on connections of its own.

Each check returns a list of violations, one line each; an empty list is a pass. S1 to S10 are the
invariants of docs/design/ledger.md. A database is one of stores.py's.
"""


def rows(database, sql):
    return database.rows(sql)


def number(database, sql):
    return rows(database, sql)[0][0]


# Everything an order's message may stand in: the log, or parked until its time. Ids are text here.
MESSAGES = """SELECT CAST(message_id AS TEXT) AS message_id FROM postroom_outbox
              UNION ALL SELECT CAST(message_id AS TEXT) FROM postroom_outbox_parked
              WHERE reader = 0"""


def s1_message_iff_committed(orders, _billing):
    return ["S1: %s %s" % (what, message) for what, message in rows(orders, """
        SELECT 'order without a message', message_id FROM orders
            WHERE message_id NOT IN (%s)
        UNION ALL SELECT 'message without an order', message_id FROM (%s) AS m
            WHERE message_id NOT IN (SELECT message_id FROM orders)
        UNION ALL SELECT 'message written twice', message_id FROM (%s) AS m
            GROUP BY message_id HAVING count(*) > 1""" % (MESSAGES, MESSAGES, MESSAGES))]


def s2_nothing_but_committed(orders, billing):
    placed = {row[0] for row in rows(orders, "SELECT message_id FROM orders")}
    sent = {row[0] for row in rows(billing, """SELECT message_id FROM postroom_outbox
        WHERE destination LIKE 'local://%'""")}
    billed = {row[0] for row in rows(billing, "SELECT message_id FROM invoices")}
    return ["S2: ghost %s" % message for message in (sent | billed) - placed]


def s3_published_was_confirmed(orders, billing):
    published = {row[0] for row in rows(orders, """SELECT message_id FROM postroom_outbox_state
        WHERE reader = 1 AND state = 'published'""")}
    arrived = {row[0] for row in rows(billing, "SELECT message_id FROM postroom_outbox")}
    return ["S3: published, never arrived: %s" % message for message in published - arrived]


def s4_nothing_vanishes(orders, billing, drained=True):
    problems = ["S4: %s is %s" % (message, state) for message, state in rows(orders, """
        SELECT message_id, state FROM postroom_outbox_state
        WHERE reader = 1 AND state <> 'published'""")] if drained else []
    stated = {row[0] for row in rows(orders, """SELECT message_id FROM postroom_outbox_state
        WHERE reader = 1""")}
    placed = {row[0] for row in rows(orders, "SELECT message_id FROM orders")}
    problems += ["S4: in no state: %s" % message for message in placed - stated]
    if drained:
        billed = {row[0] for row in rows(billing, "SELECT message_id FROM invoices")}
        problems += ["S4: lost: %s" % message for message in placed - billed]
    return problems


def journal_problems(database):
    """S5 and S6 for the journal: each open slice has one holder until its lease ends or it settles."""
    problems = []
    newest = {}
    for reader, lane, seq, kind, token, id_text, lease_until, at in rows(database, """
            SELECT reader, lane, seq, kind, token, ids, %s, %s FROM postroom_outbox_claim
            ORDER BY reader, lane, seq""" % (database.instant("lease_until"),
                                              database.instant("at"))):
        where = "reader %d lane %d seq %d" % (reader, lane, seq)
        ids = set(database.id_list(id_text))
        before = newest.get((reader, lane))
        if before:
            opened = before["ids"]
            if seq != before["seq"] + 1:
                problems.append("S6: a gap before %s" % where)
            if opened and kind == "claim" and token != before["token"]:
                if ids & opened and before["lease_until"] > at:
                    problems.append("S5: taken over while the lease lived: %s" % where)
            if opened and kind in ("settle", "renew", "release") and token != before["token"]:
                problems.append("S6: %s by a foreign token: %s" % (kind, where))
        newest[(reader, lane)] = {"seq": seq, "token": token, "ids": ids,
                                  "lease_until": lease_until}
    return problems


def s5_s6_journal(orders, billing):
    return journal_problems(orders) + journal_problems(billing)


def s7_one_effect(_orders, billing):
    return ["S7: %d effects of %s" % (count, message) for message, count in rows(billing, """
        SELECT message_id, count(*) FROM invoices GROUP BY message_id HAVING count(*) > 1""")] + [
        "S7: %d follow-ups for %d effects" % pair for pair in rows(billing, """
        SELECT (SELECT count(*) FROM postroom_outbox WHERE type = 'urn:message:crash:order-billed'),
               (SELECT count(*) FROM invoices)""") if pair[0] != pair[1]]


def s8_acked_is_marked_or_parked(_orders, billing):
    return ["S8: acked, neither marked nor parked: %s" % row[0] for row in rows(billing, """
        SELECT message_id FROM postroom_outbox_state
        WHERE reader > 1 AND state = 'published'
          AND CAST(message_id AS TEXT) NOT IN (SELECT message_id FROM postroom_inbox)
          AND CAST(message_id AS TEXT) NOT IN (SELECT message_id FROM postroom_inbox_parked)""")]


def s9_marks_stand(_orders, billing):
    return ["S9: %s" % row[0] for row in rows(billing, """
        SELECT 'effect without a mark ' || message_id FROM invoices
            WHERE message_id NOT IN (SELECT message_id FROM postroom_inbox)
        UNION ALL SELECT 'mark without an effect ' || message_id FROM postroom_inbox
            WHERE message_id NOT IN (SELECT message_id FROM invoices)
        UNION ALL SELECT 'parked beside its mark ' || message_id FROM postroom_inbox_parked
            WHERE message_id IN (SELECT message_id FROM postroom_inbox)""")]


def s10_order_per_key(_orders, billing):
    problems, last = [], {}
    for customer, order in rows(billing, """SELECT customer, number FROM invoices
            WHERE keyed = 1 ORDER BY id"""):
        if order < last.get(customer, -1):
            problems.append("S10: customer %d: order %d after %d" %
                            (customer, order, last[customer]))
        last[customer] = order
    return problems


CHECKS = [s1_message_iff_committed, s2_nothing_but_committed, s3_published_was_confirmed,
          s4_nothing_vanishes, s5_s6_journal, s7_one_effect, s8_acked_is_marked_or_parked,
          s9_marks_stand, s10_order_per_key]


def violations(orders, billing):
    problems = []
    for check in CHECKS:
        problems += check(orders, billing)
    return problems


def produced(orders, expected):
    return number(orders, "SELECT count(*) FROM orders") == expected


def relayed(orders):
    return number(orders, """SELECT count(*) FROM postroom_outbox_state
        WHERE reader = 1 AND state <> 'published'""") == 0


def acked(billing):
    """Has the consumer seen all that has come? It is handled, or parked."""
    return number(billing, """SELECT count(*) FROM postroom_outbox_state
        WHERE reader > 1 AND state <> 'published'""") == 0


def drained(orders, billing, expected):
    """Is all that was placed handled, and nothing left to do?"""
    return (produced(orders, expected)
            and number(billing, "SELECT count(DISTINCT message_id) FROM invoices") == expected
            and relayed(orders) and acked(billing)
            and number(billing, "SELECT count(*) FROM postroom_inbox_parked") == 0)
