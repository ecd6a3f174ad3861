#!/usr/bin/python3
"""The documentation keeps its word: links lead somewhere, nothing is promised that cannot be kept,
docs/capabilities.md names only tests that exist. Each check is tried on seeded faults first.

    docs.py ROOT BUILD
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import tap

PROMISE = re.compile(r"exactly[- ]once\s+deliver|deliver\w*\s+exactly[- ]once|global(?:ly)?\s+order"
                     r"|total\s+order", re.I)
DENIAL = re.compile(r"\b(no|not|never|nor|neither|without|nobody)\b", re.I)


def pages(root):
    found = [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in found if page.exists()]


def sentences(text):
    text = re.sub(r"```.*?```", " ", text, flags=re.S)
    return re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\|", text)


def promise_faults(name, text):
    return [f"{name}: promises: {' '.join(sentence.split())[:100]}" for sentence in sentences(text)
            if PROMISE.search(sentence) and not DENIAL.search(sentence)]


def link_faults(root, page):
    faults = []
    text = re.sub(r"```.*?```|`[^`\n]*`", " ", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            continue
        path = target.split("#", 1)[0]
        if not (page.parent / path).exists():
            faults.append(f"{page.relative_to(root)}: {target} leads nowhere")
    return faults


def seeded_promises():
    for text, count in [("We deliver exactly once.", 1), ("It gives exactly-once delivery.", 1),
                        ("There is no exactly-once delivery.", 0), ("A global order is kept.", 1),
                        ("No global order is promised.", 0), ("Effects at most once.", 0),
                        ("It never loses. Exactly-once delivery is what you get.", 1)]:
        found = promise_faults("seed", text)
        tap.check(f"seeded: {text}", len(found) == count, found)


def seeded_links():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        page = root / "README.md"
        page.write_text("[a](README.md#x) [b](gone.md) [c](https://example.org) `[d](no.md)`\n",
                        encoding="utf-8")
        found = link_faults(root, page)
        tap.check("seeded: a link that leads nowhere", found == ["README.md: gone.md leads nowhere"],
                  found)


def run_tool(root, build, text):
    tool = root / "tools" / "capabilities"
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        (copy / "docs").mkdir()
        (copy / "tests").mkdir()
        (copy / "tests" / "seed.c").write_text("void a_known_case(void);\n", encoding="utf-8")
        (copy / "docs" / "capabilities.md").write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, str(tool), "--root", folder, "--build", build],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


def seeded_capabilities(root, build):
    good = {n: "not yet: somewhere" for n in range(1, 132)}
    good[1], good[2] = "`docs`", "`docs:a_known_case`"

    def page(**changes):
        table = dict(good)
        table.update({int(key[1:]): value for key, value in changes.items()})
        return "".join(f"| {n} | It works. | {shown} |\n" for n, shown in table.items() if shown)

    for label, text, status, words in [
            ("a good page", page(), 0, "2 shown, 129 not yet"),
            ("a test that does not exist", page(_3="`gone`"), 1, "no test 'gone'"),
            ("a case that does not exist", page(_3="`docs:gone_case`"), 1, "'gone_case'"),
            ("neither a test nor not yet", page(_3="soon"), 1, "capability 3: names no test"),
            ("a line that is missing", page(_7=None), 1, "row 8 where 7 belongs"),
            ("the last line missing", page(_131=None), 1, "ends at 130")]:
        got, output = run_tool(root, build, text)
        tap.check(f"seeded: {label}", got == status and words in output, f"{got}: {output}")


def main():
    root, build = pathlib.Path(sys.argv[1]), sys.argv[2]
    seeded_promises()
    seeded_links()
    seeded_capabilities(root, build)
    faults = [fault for page in pages(root) for fault in link_faults(root, page)]
    tap.check("links lead somewhere", not faults, "\n".join(faults))
    texts = [(page.relative_to(root), page.read_text(encoding="utf-8")) for page in pages(root)]
    texts += [(path.name, re.sub(r"\n \* ?", "\n", path.read_text(encoding="utf-8")))
              for path in sorted((root / "include" / "postroom").glob("*.h"))]
    faults = [fault for name, text in texts for fault in promise_faults(name, text)]
    tap.check("nothing is promised that nobody can keep", not faults, "\n".join(faults))
    done = subprocess.run([sys.executable, str(root / "tools" / "capabilities"), "--build", build],
                          capture_output=True, text=True, check=False)
    tap.check("docs/capabilities.md names tests that exist", done.returncode == 0,
              done.stdout + done.stderr)
    tap.done()


if __name__ == "__main__":
    main()
