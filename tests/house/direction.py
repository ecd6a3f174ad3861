#!/usr/bin/python3
"""Direction: base <- port <- core <- ops <- cli; adapters see base and port only;
compose puts core and the transports of libpostroom together.

Two lists are checked: what each folder of src includes, and what each module's archive leaves
undefined (nm -u). Also that no module but base keeps mutable globals, and that the library neither
prints nor ends the process. The rules are tested themselves, on seeded violations.

    direction.py ROOT CC NAME=ARCHIVE ...
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import tap

# What a module may use: our own modules, headers of others, libraries of others.
MODULES = {
    "base": ([], ["sodium.h"], ["sodium"]),
    "port": (["base"], [], []),
    "core": (["base", "port"], ["jansson.h"], ["jansson"]),
    "store/sqlite": (["base", "port"], ["sqlite3.h"], ["sqlite3"]),
    "store/postgres": (["base", "port"], ["libpq-fe.h"], ["pq"]),
    "transport/memory": (["base", "port"], [], []),
    "transport/database": (["base", "port"], [], []),
    "transport/amqp": (["base", "port"], ["jansson.h", "amqp.h", "amqp_framing.h",
                                          "amqp_tcp_socket.h", "amqp_ssl_socket.h"],
                       ["jansson", "rabbitmq"]),
    "compose": (["base", "port", "core", "transport/memory", "transport/database"], [], []),
    "ops": (["base", "port", "core"], ["jansson.h"], ["jansson"]),
}
BACKEND_HEADERS = ["sodium.h", "jansson.h", "sqlite3.h", "libpq-fe.h", "amqp.h", "amqp_framing.h",
                   "amqp_tcp_socket.h", "amqp_ssl_socket.h", "microhttpd.h",
                   "libsmartcols.h", "libsmartcols/libsmartcols.h"]
BASE_PUBLIC = ["error.h", "export.h", "limits.h", "status.h"]  # base knows nothing of messages
# The library prints nothing, ends nothing and changes nothing of its process.
FORBIDDEN = ["exit", "_exit", "abort", "setlocale", "signal", "sigaction", "printf", "puts",
             "putchar", "fprintf", "vprintf", "vfprintf", "perror", "system", "popen"]
FORBIDDEN_BUT = {"base": ["abort", "fprintf", "vfprintf"]}  # a failed pr_assert says why
RUNTIME = re.compile(r"^(__asan|__ubsan|__tsan|__sanitizer|__stack_chk|_GLOBAL_OFFSET_TABLE_|__gcov)")


def module_of(path):
    parts = path.parts[1:-1]
    return "/".join(parts[:2]) if parts[0] in ("store", "transport") else parts[0]


def check_include(module, name):
    """None, or why this module must not include that name."""
    allowed, headers, _ = MODULES[module]
    if name.startswith("postroom/"):
        if module == "base" and name.split("/", 1)[1] not in BASE_PUBLIC:
            return "base knows nothing of messages"
        return None
    if name in BACKEND_HEADERS and name not in headers:
        return f"'{name}' is not for {module}"
    for other in [*MODULES, "cli"]:
        if name.startswith(other + "/") and other != module and other not in allowed:
            return f"{module} must not see {other}"
    return None


def include_faults(root):
    faults = []
    for path in sorted((root / "src").rglob("*.[ch]")):
        module = module_of(path.relative_to(root))
        if module not in MODULES:  # the programs name everything
            continue
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', text, re.M):
            why = check_include(module, name)
            if why:
                faults.append(f"{path.relative_to(root)}: includes {name}: {why}")
    return faults


def nm(path, *options):
    out = subprocess.run(["nm", *options, str(path)], check=True, capture_output=True,
                         text=True).stdout
    return [line.split() for line in out.splitlines() if line.strip()]


def symbols(archive):
    defined, undefined = set(), set()
    for words in nm(archive):
        if len(words) >= 2 and len(words[-2]) == 1:
            (undefined if words[-2] in "Uwv" else defined).add(words[-1])
    return defined, undefined - defined


def library_symbols(compiler, name):
    path = subprocess.run([compiler, f"-print-file-name={name}"], check=True,
                          capture_output=True, text=True).stdout.strip()
    return {words[-1].split("@")[0] for words in nm(path, "-D", "--defined-only")}


def mutable_globals(archive):
    """Objects in .data or .bss; tables of constant pointers are in .data.rel.ro."""
    out = subprocess.run(["objdump", "-t", str(archive)], check=True, capture_output=True,
                         text=True).stdout
    found = re.findall(r"^[0-9a-f]+ .*\sO \.(?:data|bss|tbss|tdata)(?:\.(?!rel\.ro)\S+)?\s+"
                       r"[0-9a-f]+\s+(?:\.hidden )?(\S+)$", out, re.M)
    return sorted(name for name in found if not re.match(r"__(asan|ubsan|odr_asan|gcov)", name))


def symbol_faults(archives, compiler):
    known = {module: symbols(path) for module, path in archives.items()}
    system = library_symbols(compiler, "libc.so.6") | library_symbols(compiler, "libm.so.6")
    faults = []
    for module, (defined, undefined) in known.items():
        allowed, _, libraries = MODULES[module]
        reachable = set(system)
        for other in allowed:
            reachable |= known[other][0] if other in known else set()
        for library in libraries:
            reachable |= library_symbols(compiler, f"lib{library}.so")
        for name in sorted(undefined):
            if name in FORBIDDEN and name not in FORBIDDEN_BUT.get(module, []):
                faults.append(f"{module}: calls {name}, which the library must not")
            elif name not in reachable and not RUNTIME.match(name):
                owner = [other for other in known if name in known[other][0]]
                faults.append(f"{module}: needs {name}, of {owner or 'nobody that it may use'}")
        if module != "base":
            faults += [f"{module}: '{name}' is a global that can change"
                       for name in mutable_globals(archives[module])]
    return faults


def build_archive(compiler, folder, name, source):
    (folder / f"{name}.c").write_text(source, encoding="utf-8")
    subprocess.run([compiler, "-c", "-o", folder / f"{name}.o", folder / f"{name}.c"], check=True)
    subprocess.run(["ar", "rcs", folder / f"{name}.a", folder / f"{name}.o"], check=True)
    return folder / f"{name}.a"


def test_the_rules(compiler):
    """Every rule must fire on a seeded violation."""
    seeds = [
        ("base", "postroom/message.h", "knows nothing"), ("base", "port/store.h", "must not see"),
        ("port", "core/relay.h", "must not see"), ("core", "store/sqlite/store.h", "must not see"),
        ("core", "sqlite3.h", "is not for"), ("store/sqlite", "core/unit.h", "must not see"),
        ("transport/memory", "transport/database/transport.h", "must not see"),
        ("transport/database", "sqlite3.h", "is not for"), ("ops", "cli/options.h", "must not see"),
        ("compose", "store/sqlite/store.h", "must not see"),
        ("compose", "transport/amqp/transport.h", "must not see"),
        ("core", "compose/bus_open.h", "must not see"),
    ]
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for module, header, words in seeds:
            path = root / "src" / module / "seed.c"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#include <stdio.h>\n#include \"{header}\"\n", encoding="utf-8")
            faults = include_faults(root)
            tap.check(f"seeded: {module} includes {header}",
                      len(faults) == 1 and words in faults[0], "\n".join(faults) or "not found")
            path.unlink()
        sources = {
            "base": "int pr__low(void) {return 1;}",
            "core": "int pr__low(void); int pr__deep(void) {return pr__low();}",
            "port": "int pr__deep(void); int pr__up(void) {return pr__deep();}",
            "transport/memory": "int sqlite3_close(void *); int pr__t(void)"
                                "{return sqlite3_close(0);}",
            "ops": "void exit(int); void pr__end(void) {exit(1);} int count_of_calls;"
                   "static const char *const names[] = {\"a\"};"
                   "const char *pr__name(int i) {return names[i];}",
        }
        archives = {module: build_archive(compiler, root, module.replace("/", "-"), source)
                    for module, source in sources.items()}
        faults = "\n".join(symbol_faults(archives, compiler))
        for label, words in [("port needs core", "port: needs pr__deep, of ['core']"),
                             ("a transport needs SQLite", "transport/memory: needs sqlite3_close"),
                             ("the library ends the process", "ops: calls exit"),
                             ("a global that can change", "ops: 'count_of_calls' is a global")]:
            tap.check(f"seeded: {label}", words in faults, faults or "not found")
        tap.check("seeded: nothing else is found", len(faults.splitlines()) == 4, faults)


def main():
    root, compiler = pathlib.Path(sys.argv[1]), sys.argv[2]
    archives = dict(item.split("=", 1) for item in sys.argv[3:])
    test_the_rules(compiler)
    faults = include_faults(root)
    tap.check("includes go in the allowed direction", not faults, "\n".join(faults))
    faults = symbol_faults(archives, compiler)
    tap.check("archives need only what they may use", archives and not faults, "\n".join(faults))
    tap.done()


if __name__ == "__main__":
    main()
