"""A PostgreSQL cluster of a script's own, by tools/postgres-server; gone when the script ends.

POSTROOM_POSTGRES_SERVER and POSTROOM_POSTGRES_TEMPLATE come from Meson (postgres_test_env). Where no
server is installed the script is skipped, or bails out when backends are required.
"""
import os
import subprocess
import sys

NO_SERVER = 3  # the program's exit status


class Cluster:
    def __init__(self, *more):
        self.process = subprocess.Popen(
            [os.environ["POSTROOM_POSTGRES_SERVER"], "--parent", str(os.getpid()), "--template",
             os.environ["POSTROOM_POSTGRES_TEMPLATE"], *more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        words = self.process.stdout.readline().split()
        if len(words) != 3 or words[0] != "ready":
            self.give_up(words)
        self.folder, self.port = words[1], words[2]

    def give_up(self, words):
        missing = self.process.wait(60) == NO_SERVER
        if missing and os.environ.get("POSTROOM_REQUIRE_BACKENDS") != "1":
            print("1..0 # SKIP no PostgreSQL server is installed (Debian: postgresql)")
            sys.exit(0)
        print("Bail out! " + " ".join(words))
        sys.exit(1)

    def uri(self, database):
        return f"postgresql:///{database}?host={self.folder}&port={self.port}&user=postgres"

    def ask(self, database, sql):
        """What psql prints; many statements are one script."""
        done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", self.uri(database)],
                              input=sql, capture_output=True, text=True, check=True, timeout=120)
        return done.stdout.strip()

    def command(self, line):
        """A command of tools/postgres-server; did it go well?"""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().startswith("ok")

    def crash(self):
        return self.command("restart immediate")

    def end(self):
        self.process.stdin.close()
        self.process.wait(120)
