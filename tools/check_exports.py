# SPDX-License-Identifier: Apache-2.0
"""Check that what installed headers declare can be linked: each function is in libheadrace.so.

clang says what the headers declare and do not define, nm what the library gives.

Usage: check_exports.py PREFIX [ROOM...]
PREFIX is an install tree. Default: all rooms; what lies in the namespace headrace itself is base.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FUNCTIONS = {
    "FunctionDecl",
    "CXXMethodDecl",
    "CXXConstructorDecl",
    "CXXDestructorDecl",
    "CXXConversionDecl",
}
# Their members are made where they are used.
TEMPLATES = {"ClassTemplateDecl", "FunctionTemplateDecl", "ClassTemplatePartialSpecializationDecl"}

Node = dict[str, Any]


def documents(text: str) -> Iterator[Node]:
    """The JSON values that clang writes one after the other."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        node, end = decoder.raw_decode(text, at)
        yield node
        at = text.find("{", end)


def functions(node: Node, path: tuple[str, ...]) -> Iterator[tuple[str, str, bool]]:
    """(mangled name, readable name, whether it has a body) of each function under `node`."""
    for child in node.get("inner", ()):
        kind = child.get("kind")
        name = (*path, str(child.get("name", "")))
        if kind in TEMPLATES or child.get("isImplicit"):
            continue
        if kind in FUNCTIONS:
            if child.get("pure") or child.get("explicitlyDeleted"):
                continue
            body = any(part.get("kind") == "CompoundStmt" for part in child.get("inner", ()))
            mangled = str(child.get("mangledName", ""))
            yield mangled, "::".join(name), body or "explicitlyDefaulted" in child
        else:
            yield from functions(child, name)


def room_of(name: str) -> str:
    """The room of headrace::ROOM::... or hr_ROOM_..."""
    if name.startswith("hr_"):
        return name.split("_")[1]
    parts = name.split("::")
    return parts[1] if len(parts) > 2 and parts[1].islower() else "base"


def parsed(include: Path, names: str) -> str:
    """What the installed headers declare under names that contain `names`, as clang tells it."""
    headers = [
        str(path.relative_to(include))
        for path in sorted(include.rglob("*.h"))
        if not path.name.startswith("torch_")  # nothing is declared there alone
    ]
    told = subprocess.run(
        "clang++-19 -std=c++20 -fsyntax-only -x c++ - -Xclang -ast-dump=json "
        f"-Xclang -ast-dump-filter={names} -I {include}".split(),
        cwd=include,  # a source of standard input looks for headers there first
        input="".join(f'#include "{header}"\n' for header in headers),
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode != 0:
        sys.exit(f"the headers do not compile:\n{told.stderr[:3000]}")
    return told.stdout


def missing(prefix: Path, rooms: list[str]) -> tuple[list[str], int]:
    """What the headers of these rooms declare and nothing defines; and how many they declare."""
    declared: dict[str, str] = {}
    defined: set[str] = set()
    for names in ("headrace", "hr_"):
        for document in documents(parsed(prefix / "include", names)):
            nodes = {"inner": [document]} if document["kind"] in FUNCTIONS else document
            path = () if nodes is not document else (str(document.get("name", "")),)
            for mangled, name, body in functions(nodes, path):
                if body:
                    defined.add(mangled)
                elif not rooms or room_of(name) in rooms:
                    declared[mangled] = name
    library = next(iter(prefix.glob("lib*/**/libheadrace.so")))
    table = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    exported = {line.split()[-1] for line in table.splitlines()}
    absent = [name for mangled, name in declared.items() if mangled not in defined | exported]
    return sorted(absent), len(declared)


def main(arguments: list[str]) -> int:
    """Print what is missing."""
    if not arguments:
        sys.exit(__doc__)
    absent, count = missing(Path(arguments[0]), arguments[1:])
    for name in absent:
        print(f"{name}: declared in an installed header and not exported; mark it with HR_API")
    print(f"{count} functions declared, {len(absent)} of them missing in the library")
    return 1 if absent or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
