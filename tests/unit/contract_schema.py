#!/usr/bin/python3
"""A contract's schema and its decoder say the same, as far as a schema can.

    contract_schema.py PROBE

For each contract: the schema is a valid one, the generated example passes schema and decoder, and
so does (or does not) everything that a mutation makes of the example: members taken away, set to
null, replaced by values of every kind, added. Where they differ, the difference must be one of those
that docs/design/contract.md names.
"""
import copy
import json
import os
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("1..0 # SKIP python3-jsonschema is not installed")
    sys.exit(1 if os.environ.get("POSTROOM_REQUIRE_BACKENDS") == "1" else 0)

UUID = "0190b8f5-7d0c-7000-8000-00000000000a"
VALUES = [
    None, True, 0, 7, -1.5, 1e300, 9223372036854775807, -9223372036854775808, "", "red", "Red",
    "x", "12345678", "123456789", [], ["red"], ["x"], [1], [None], [[]], {}, {"a": 1}, UUID, UUID.upper(),
    UUID[:-1], UUID + "0", "0190b8f57d0c70008000-00000000000a", "AAEC", "AAE=", "AA==", "AB==", "AAE", "AAF=",
    "A===", "A-_=", "2026-01-31T12:00:00Z", "2026-01-31t12:00:00.123456789+23:59", "2026-01-31T12:00:00",
    "2026-13-31T12:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:00:60Z", "2026-01-31 12:00:00Z",
    "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00.1234567890Z", "2026-1-31T12:00:00Z",
]
# What a schema has no words for: the body, and why the decoder refuses it.
BEYOND = [
    ("1.0", "is not an integer", "a schema takes 1.0 for an integer"),
    ("123456789012345678901", "64 bits do not hold", "a whole number that no integer of ours holds"),
    ('"2026-02-30T12:00:00Z"', "is not an RFC 3339 time", "days of a month"),
    ('"0001-01-01T00:00:00+10:00"', "is not an RFC 3339 time", "a time before the year 1"),
    ('"\u20ac\u20ac\u20ac"', "is larger than its size_max", "bytes, not characters"),
    ('"\\u0000"', "a NUL character", "a text with a NUL"),
]


class Contract:
    def __init__(self, probe, name):
        self.probe, self.name = probe, name
        self.schema = json.loads(self.run("schema"))
        self.example = json.loads(self.run("example"))
        jsonschema.Draft202012Validator.check_schema(self.schema)
        self.validator = jsonschema.Draft202012Validator(self.schema)

    def run(self, what, text=None):
        return subprocess.run([self.probe, what, self.name], input=text, capture_output=True,
                              text=True, check=True, timeout=60).stdout

    def decode(self, bodies):
        answers = self.run("decode", "".join(body + "\n" for body in bodies)).splitlines()
        assert len(answers) == len(bodies), (len(answers), len(bodies))
        return answers


def places(value, path=()):
    """The paths of all members and elements."""
    items = value.items() if isinstance(value, dict) else \
        enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield path + (key,)
        yield from places(inner, path + (key,))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def mutations(example):
    yield example
    yield from VALUES
    for path in places(example):
        for value in VALUES:
            changed = copy.deepcopy(example)
            at(changed, path[:-1])[path[-1]] = value
            yield changed
        changed = copy.deepcopy(example)
        outer = at(changed, path[:-1])
        if isinstance(outer, list):
            outer.extend([outer[0], outer[0]])
        else:
            del outer[path[-1]]
        yield changed
        if isinstance(at(example, path), dict):
            changed = copy.deepcopy(example)
            at(changed, path)["more"] = {"a": [1]}
            yield changed
    yield {**example, "more": "x"}


def is_beyond(body, answer):
    """A float that is whole is an integer for a schema."""
    return "is not an integer" in answer and (".0" in body or "e+" in body)


def check_example(contract):
    contract.validator.validate(contract.example)
    assert contract.decode([json.dumps(contract.example)]) == ["ok"], contract.example


def check_mutations(contract):
    bodies = [json.dumps(value) for value in mutations(contract.example)]
    taken = refused = 0
    for body, answer in zip(bodies, contract.decode(bodies)):
        valid = contract.validator.is_valid(json.loads(body))
        if valid != (answer == "ok") and not (valid and is_beyond(body, answer)):
            raise AssertionError(f"schema says {valid}, the decoder '{answer}' of {body}")
        taken += answer == "ok"
        refused += answer != "ok"
    assert taken > 20 and refused > 100, (taken, refused)


def check_beyond(contract):
    """The differences that are known are really there, and the decoder is the stricter one."""
    found = 0
    for value, why, _ in BEYOND:
        for path in places(contract.example):
            marked = copy.deepcopy(contract.example)
            at(marked, path[:-1])[path[-1]] = "@@@"
            body = json.dumps(marked, ensure_ascii=False).replace('"@@@"', value)
            answer = contract.decode([body])[0]
            found += why in answer and contract.validator.is_valid(json.loads(body))
    assert found >= 4, found


def check_defaults(contract):
    properties = contract.schema["properties"]
    assert properties["height"]["default"] == 3 and properties["shade"]["default"] == "green"
    assert properties["shades"]["default"] == []
    assert "height" not in contract.schema["required"]
    weight = contract.schema["$defs"]["table"]["properties"]["weight"]
    assert weight["description"] == 'in grams, "dry"', weight
    assert set(contract.schema["$defs"]) == {"table", "table-2"}
    assert contract.schema["$defs"]["table"]["additionalProperties"] is False
    assert "additionalProperties" not in contract.schema  # OTHERS keeps them
    assert contract.schema["title"] == "urn:message:wood:tree-grown"
    assert contract.schema["description"] == "command, version 1"


def check_raw(probe):
    done = subprocess.run([probe, "schema", "raw"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "has no fields to describe (unsupported)" in done.stderr, done


def main():
    probe = sys.argv[1]
    tree, order, strict = (Contract(probe, name) for name in ("tree", "order", "strict"))
    steps = [("raw bytes have none", lambda: check_raw(probe)),
             ("defaults, descriptions, names", lambda: check_defaults(tree))]
    for contract in (tree, order, strict):
        steps += [(f"{contract.name}: the example", lambda c=contract: check_example(c)),
                  (f"{contract.name}: mutations", lambda c=contract: check_mutations(c)),
                  (f"{contract.name}: beyond", lambda c=contract: check_beyond(c))]
    failed = 0
    print(f"1..{len(steps)}")
    for number, (label, step) in enumerate(steps, 1):
        try:
            step()
            print(f"ok {number} - {label}")
        except Exception as error:  # every failure is told, whatever it is
            failed += 1
            print(f"not ok {number} - {label}")
            print("# " + str(error)[:2000].replace("\n", "\n# "))
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    sys.exit(main())
