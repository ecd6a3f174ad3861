#!/usr/bin/python3
"""Messages written by other languages: psql, Python's own driver, COPY and plain INSERT give the very
rows that the C library gives, lane included; and a producer can do that and nothing else.

    writers_postgres.py POSTROOM
"""
import base64
import io
import json
import os
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "house"), str(TESTS / "support")]
import tap  # noqa: E402
from postgres_cluster import Cluster  # noqa: E402

try:
    import psycopg2
    import psycopg2.errors
except ImportError:
    psycopg2 = None

DATABASE = "shop"
TYPE = "urn:message:shop:order-placed"
FULL = {"type": TYPE, "type_version": 3, "content_type": "application/json",
        "destination": "broker://topic/" + TYPE, "source": "shop 'one'", "key": "customer-7",
        "tenant": "acme", "correlation_id": "c\\1", "causation_id": "{2}",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": "a=b", "headers": '{"kind":"\u00e4","signature":{"bytes":"AAE="}}',
        "occurred_at": "2026-01-31T12:00:00.123457Z", "expires_at": "2126-01-31T12:00:00Z",
        "body": b'{"order": 1}', "message_id": "019a22d1-1ccc-7ba9-89b4-000000000001"}
SHORT = {"type": TYPE, "content_type": "application/octet-stream",
         "occurred_at": "2026-01-31T12:00:00.000001Z"}
MESSAGES = [
    FULL,
    {**SHORT, "key": "\u043a\u043b\u044e\u0447 \U0001f4ee", "body": b"\x00\xff\\x31\t\n",
     "message_id": "019a22d1-1ccc-7ba9-89b4-000000000002"},
    {**SHORT, "key": "it's \"a\" \\ key; --", "body": b"",
     "message_id": "019a22d1-1ccc-7ba9-89b4-000000000003"},
    {**SHORT, "key": "x" * 255, "body": b"\\.", "message_id":
     "019a22d1-1ccc-7ba9-89b4-000000000004"},
    {**SHORT, "body": bytes(range(256)), "message_id": "019a22d1-1ccc-7ba9-89b4-000000000005"},
]
# a message without a key has the lane of its id, which is another each time
ROWS = """SELECT message_id, count(*), count(DISTINCT (CASE WHEN key IS NULL THEN lane - (id & 15)
    ELSE lane END, type, type_version, content_type, destination, source, key, tenant,
    correlation_id, causation_id, traceparent, tracestate, headers, body, occurred_at, expires_at)),
    count(DISTINCT id) FROM postroom.outbox GROUP BY message_id ORDER BY message_id"""


def literal(value):
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def copy_text(value):
    """A value in COPY's text format."""
    text = "\\x" + value.hex() if isinstance(value, bytes) else str(value)
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


# ---- the writers: each writes all messages in one transaction ----

def by_psql(server, statements):
    done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-1",
                           server.uri(DATABASE).replace("user=postgres", "user=app")],
                          input=statements, capture_output=True, text=True, check=False,
                          timeout=60)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout


def psql_function(server):
    by_psql(server, "".join(
        "SELECT postroom.enqueue(" + ", ".join(f"{name} => {literal(value)}"
                                               for name, value in message.items()) + ");\n"
        for message in MESSAGES))


def psql_insert(server):
    by_psql(server, "".join(
        f"INSERT INTO postroom.outbox ({', '.join(message)}) VALUES ("
        + ", ".join(literal(value) for value in message.values()) + ");\n"
        for message in MESSAGES))


def psql_copy(server):
    by_psql(server, "".join(
        f"COPY postroom.outbox ({', '.join(message)}) FROM STDIN;\n"
        + "\t".join(copy_text(value) for value in message.values()) + "\n\\.\n"
        for message in MESSAGES))


def connect(server):
    return psycopg2.connect(host=server.folder, port=server.port, dbname=DATABASE, user="app")


def python_function(server):
    with connect(server) as db, db.cursor() as cursor:
        for message in MESSAGES:
            names = ", ".join(f"{name} => %({name})s" for name in message)
            cursor.execute(f"SELECT postroom.enqueue({names})", typed(message))
            if cursor.fetchone()[0] != message["message_id"]:
                raise RuntimeError("another id")


def typed(message):
    """The driver sends texts as literals of no type; the two functions differ by the body's."""
    return {**message, "body": psycopg2.Binary(message["body"])}


def python_insert(server):
    with connect(server) as db, db.cursor() as cursor:
        for message in MESSAGES:
            cursor.execute(f"INSERT INTO postroom.outbox ({', '.join(message)}) VALUES ("
                           + ", ".join(f"%({name})s" for name in message) + ")", typed(message))


def python_copy(server):
    with connect(server) as db, db.cursor() as cursor:
        for message in MESSAGES:
            line = "\t".join(copy_text(value) for value in message.values()) + "\n"
            cursor.copy_expert(f"COPY postroom.outbox ({', '.join(message)}) FROM STDIN",
                               io.StringIO(line))


def library(postroom, server):
    lines = []
    for message in MESSAGES:
        line = {("id" if name == "message_id" else "version" if name == "type_version" else name):
                value for name, value in message.items() if name not in ("body", "headers")}
        line["body_base64"] = base64.b64encode(message["body"]).decode()
        if "headers" in message:
            line["headers"] = json.loads(message["headers"])
        lines.append(json.dumps(line) + "\n")
    subprocess.run([postroom, "send", "--lines", "--store", server.uri(DATABASE)],
                   input="".join(lines), text=True, check=True, capture_output=True, timeout=60)


# ---- the cases ----

def equal_rows(postroom, server):
    writers = [("psql, the function", psql_function), ("psql, INSERT", psql_insert),
               ("psql, COPY", psql_copy)]
    if psycopg2:
        writers += [("Python, the function", python_function), ("Python, INSERT", python_insert),
                    ("Python, COPY", python_copy)]
    library(postroom, server)
    for count, (label, write) in enumerate(writers, 2):
        try:
            write(server)
        except Exception as error:  # pylint: disable=broad-except
            tap.check(label, False, error)
            continue
        rows = [line.split("|") for line in server.ask(DATABASE, ROWS).splitlines()]
        wrong = [row for row in rows if row[1:] != [str(count), "1", str(count)]]
        tap.check(label, len(rows) == len(MESSAGES) and not wrong, wrong)


def defaults(server):
    """What a writer does not say is what the library takes for it."""
    for statement in ("SELECT postroom.enqueue('{}', '1'::bytea)",
                      "SELECT postroom.enqueue('{}', '1'::text)",
                      "INSERT INTO postroom.outbox (type, body) VALUES ('{}', '1')"):
        by_psql(server, statement.format("urn:message:shop:short"))
    row = server.ask(DATABASE, """SELECT DISTINCT type_version, content_type, tenant, body,
        coalesce(destination, source, key, correlation_id, causation_id, traceparent, tracestate,
        headers, expires_at::text) IS NULL, abs(extract(epoch FROM now() - occurred_at)) < 60,
        message_id::text ~ '^.{14}7.{4}[89ab]' FROM postroom.outbox
        WHERE type = 'urn:message:shop:short'""")
    tap.check("defaults", row == "1|application/json||\\x31|t|t|t", row)
    tap.check("the interface's version",
              by_psql(server, "SELECT postroom.api_version()").strip() == "1")


def host_transaction(server):
    """Business rows and messages commit together, or roll back together."""
    with connect(server) as db, db.cursor() as cursor:
        cursor.execute("CREATE TABLE public.orders (n integer)")
        for n in range(4):
            cursor.execute("SAVEPOINT s")
            cursor.execute("INSERT INTO public.orders VALUES (%s)", (n,))
            cursor.execute("SELECT postroom.enqueue('urn:message:shop:host', %s::text)", (str(n),))
            if n % 2:
                cursor.execute("ROLLBACK TO SAVEPOINT s")
        db.commit()
        cursor.execute("INSERT INTO public.orders VALUES (9)")
        cursor.execute("SELECT postroom.enqueue('urn:message:shop:host', '9'::text)")
        db.rollback()
    rows = server.ask(DATABASE, """SELECT string_agg(convert_from(body, 'UTF8'), ',' ORDER BY id),
        (SELECT string_agg(n::text, ',' ORDER BY n) FROM public.orders) FROM postroom.outbox
        WHERE type = 'urn:message:shop:host'""")
    tap.check("Python's transaction", rows == "0,2|0,2", rows)


def nothing_else(server):
    """The role has the right of each of these refused; the code is the server's own."""
    forbidden = {
        "xid": ("INSERT INTO postroom.outbox (xid, type, body) VALUES ('1', %s, '')", "42501"),
        "id": ("INSERT INTO postroom.outbox (id, type, body) VALUES (1, %s, '')", "428C9"),
        "id, overriding": ("INSERT INTO postroom.outbox (id, type, body) OVERRIDING SYSTEM VALUE "
                           "VALUES (1, %s, '')", "42501"),
        "lane": ("INSERT INTO postroom.outbox (lane, type, body) VALUES (1, %s, '')", "428C9"),
        "bodies": ("SELECT body FROM postroom.outbox WHERE type = %s", "42501"),
        "a returned body": ("INSERT INTO postroom.outbox (type, body) VALUES (%s, '') RETURNING "
                            "body", "42501"),
        "COPY out": ("COPY postroom.outbox (body) TO STDOUT", "42501"),
        "update": ("UPDATE postroom.outbox SET body = '' WHERE type = %s", "42501"),
        "delete": ("DELETE FROM postroom.outbox", "42501"),
        "truncate": ("TRUNCATE postroom.outbox", "42501"),
        "the journal": ("INSERT INTO postroom.outbox_claim SELECT * FROM postroom.outbox_claim",
                        "42501"),
        "a claim": ("SELECT 1 FROM postroom.outbox_claim", "42501"),
        "parked rows": ("INSERT INTO postroom.outbox_parked (reader) VALUES (1)", "42501"),
        "a redrive": ("UPDATE postroom.outbox_parked SET state = 'failed'", "42501"),
        "marks": ("INSERT INTO postroom.inbox VALUES ('', '', '', '', now())", "42501"),
        "subscriptions": ("SELECT 1 FROM postroom.subscription", "42501"),
        "settings": ("SELECT 1 FROM postroom.setting", "42501"),
        "the audit": ("SELECT 1 FROM postroom.audit", "42501"),
        "the view": ("SELECT 1 FROM postroom.outbox_state", "42501"),
        "the sequence": ("SELECT setval('postroom.outbox_id_seq', 1)", "42501"),
        "a lock": ("LOCK TABLE postroom.outbox IN SHARE MODE", "42501"),
        "a trigger": ("CREATE TRIGGER t BEFORE INSERT ON postroom.outbox EXECUTE FUNCTION "
                      "pg_catalog.suppress_redundant_updates_trigger()", "42501"),
        "a table": ("CREATE TABLE postroom.mine ()", "42501"),
        "the function's body": ("CREATE OR REPLACE FUNCTION postroom.api_version() RETURNS integer "
                                "LANGUAGE sql AS 'SELECT 2'", "42501"),
    }
    db = connect(server)
    for label, (statement, code) in forbidden.items():
        with db.cursor() as cursor:
            try:
                if statement.startswith("COPY"):
                    cursor.copy_expert(statement, io.StringIO())
                else:
                    cursor.execute(statement, (TYPE,) if "%s" in statement else None)
                found = "nothing"
            except psycopg2.Error as error:
                found = error.pgcode
            db.rollback()
        tap.check(f"a producer cannot: {label}", found == code, found)
    db.close()


def main():
    postroom = sys.argv[1]
    if not psycopg2 and os.environ.get("POSTROOM_REQUIRE_BACKENDS") == "1":
        print("Bail out! python3-psycopg2 is not installed, and it is required")
        sys.exit(1)
    server = Cluster()
    try:
        server.ask("postgres", f"CREATE DATABASE {DATABASE}")
        subprocess.run([postroom, "migrate", "--store", server.uri(DATABASE)], check=True,
                       stdout=subprocess.DEVNULL, timeout=60)
        server.ask(DATABASE, "CREATE ROLE app LOGIN IN ROLE postroom_producer;"
                             "GRANT CREATE ON SCHEMA public TO app")
        equal_rows(postroom, server)
        defaults(server)
        if psycopg2:
            host_transaction(server)
            nothing_else(server)
    finally:
        server.end()
    tap.done()


if __name__ == "__main__":
    main()
