#!/usr/bin/python3
"""docs/cli.md shows every command's --help as it is; tools/cli-docs writes it anew with --update.

    cli_docs.py ROOT PROGRAM
"""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "house"))
import tap  # noqa: E402


def compare(root, program, page):
    done = subprocess.run([sys.executable, str(root / "tools" / "cli-docs"), program, str(page)],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    root, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    page = root / "docs" / "cli.md"
    status, output = compare(root, program, page)
    tap.check("docs/cli.md is what --help says", status == 0, output)
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for label, old, new in [("an option that is not there", "  --key KEY", "  --kee KEY"),
                                ("a command that is missing", "## postroom cancel", "## gone")]:
            seeded = pathlib.Path(folder) / "cli.md"
            seeded.write_text(text.replace(old, new), encoding="utf-8")
            status, output = compare(root, program, seeded)
            tap.check(f"seeded: {label}", status == 1 and "differs" in output, output)
    tap.done()


if __name__ == "__main__":
    main()
