"""A few lines of TAP for the tests of the house."""
import sys

_results = []


def check(label, passed, why=""):
    """One case: label, whether it passed, and what to print when it did not."""
    _results.append(bool(passed))
    print(f"{'ok' if passed else 'not ok'} {len(_results)} - {label}")
    if not passed:
        for line in str(why).splitlines():
            print(f"# {line}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return bool(passed)


def done():
    print(f"1..{len(_results)}")
    sys.exit(0 if _results and all(_results) else 1)
