"""The stores that the crash tests run on: a pair of databases for each world, and plain SQL on them.

SQL is written once, with the table names of SQLite; on PostgreSQL "postroom_" becomes "postroom.".
Nothing of ours is used to count: SQLite's own library, and psql.
"""

import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from postgres_cluster import Cluster  # noqa: E402

COLUMN, ROW, END = "\x1f", "\x1e", "\x1d"  # how psql separates what it prints


class SqliteDatabase:
    def __init__(self, path):
        self.path = self.address = path
        self.store = "sqlite:" + path

    def rows(self, sql):
        db = sqlite3.connect("file:%s?mode=ro" % self.path, uri=True, timeout=10)
        try:
            return db.execute(sql).fetchall()
        finally:
            db.close()

    def run(self, sql):
        """How many rows it changed."""
        db = sqlite3.connect(self.path, timeout=10)
        try:
            changed = db.execute(sql).rowcount
            db.commit()
            return changed
        finally:
            db.close()

    @staticmethod
    def instant(column):
        return column

    @staticmethod
    def id_list(value):
        return json.loads(value)

    def close(self):
        pass


class Sqlite:
    name = "sqlite"
    now = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"

    def pair(self, folder, template=None):
        """Two databases of a world's own, as copies of another's or empty."""
        pair = []
        for n, name in enumerate(("orders", "billing")):
            pair.append(SqliteDatabase(os.path.join(folder, name + ".db")))
            if template:
                shutil.copy(template[n].path, pair[n].path)
        return pair

    @staticmethod
    def in_use(database):
        return "sqlite" if database.rows("SELECT sqlite_version()") else ""

    def end(self):
        pass


class PostgresDatabase:
    def __init__(self, cluster, name):
        self.cluster, self.name, self.psql = cluster, name, None
        self.address = self.store = cluster.uri(name)

    def ask(self, sql):
        """What one psql that stays prints for one statement."""
        if not self.psql:
            self.psql = subprocess.Popen(
                ["psql", "-XAtq", "-F", COLUMN, "-R", ROW, self.address], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.psql.stdin.write("%s;\n\\echo '%s'\n" % (sql.replace("postroom_", "postroom."), END))
        self.psql.stdin.flush()
        text = ""
        while not text.endswith(END + "\n"):
            line = self.psql.stdout.readline()
            if not line:
                raise RuntimeError("psql ended: " + text)
            text += line
        text = text[:-2]
        if text.startswith("ERROR") or "\nERROR" in text:
            raise RuntimeError("%s: %s" % (text.strip(), sql))
        return text.rstrip("\n")

    def rows(self, sql):
        text = self.ask(sql)
        return [tuple(int(value) if value.lstrip("-").isdigit() else value
                      for value in row.split(COLUMN)) for row in text.split(ROW) if row]

    def run(self, sql):
        return self.rows("WITH changed AS (%s RETURNING 1) SELECT count(*) FROM changed" % sql)[0][0]

    @staticmethod
    def instant(column):
        return "(extract(epoch FROM %s) * 1000000)::bigint" % column

    @staticmethod
    def id_list(value):
        return [int(one) for one in str(value).strip("{}").split(",") if one]

    def leave(self):
        """Close psql: who copies a database must be alone in it."""
        if self.psql:
            self.psql.stdin.close()
            self.psql.wait(30)
            self.psql.stdout.close()
            self.psql = None

    def close(self):
        self.leave()
        self.cluster.ask("postgres", "DROP DATABASE %s WITH (FORCE)" % self.name)


class Postgres:
    """One cluster for the whole run. Its clients are killed and it is not, so it flushes nothing."""

    name = "postgres"
    now = "clock_timestamp()"

    def __init__(self):
        self.cluster = Cluster()
        self.made = 0

    def pair(self, _folder, template=None):
        self.made += 1
        pair = []
        for n, name in enumerate(("orders", "billing")):
            pair.append(PostgresDatabase(self.cluster, "%s_%d" % (name, self.made)))
            if template:
                template[n].leave()
            self.cluster.ask("postgres", "CREATE DATABASE %s TEMPLATE %s" %
                             (pair[n].name, template[n].name if template else "template1"))
        return pair

    @staticmethod
    def in_use(database):
        return str(database.rows("SELECT version()")[0][0]).split(" ", maxsplit=1)[0].lower() \
            .replace("postgresql", "postgres")

    def end(self):
        self.cluster.end()


def open_provider(name):
    return {"sqlite": Sqlite, "postgres": Postgres}[name]()
