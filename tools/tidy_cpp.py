# SPDX-License-Identifier: Apache-2.0
"""As much of C++ as tools/tidy.py needs: code without its texts, bounds of functions."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|(?:\bu8|\b[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"|'
    r"\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def blank(text: str) -> str:
    """Replace comments and texts by spaces; lines and columns stay.

    What an #include names is kept.
    """

    def spaces(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    out = _TOKEN.sub(spaces, text)
    # A function-like macro's definition is no function; its lines end in a backslash.
    return re.sub(r"^[ \t]*#[^\n]*(?:(?<=\\)\n[^\n]*)*", spaces, out, flags=re.MULTILINE)


_NOT_FUNCTION = re.compile(r"(^|[\s;}])(namespace|class|struct|union|enum|extern)\b[^()=]*$")


def functions(code: str) -> Iterator[tuple[str, int, int]]:
    """(name, first line, last line) of each function body that stands in no other function.

    `code` comes from `blank`. A brace opens a function when the statement before it has parameters
    and is no class, namespace or initialiser; everything inside belongs to it.
    """
    statement = 0  # offset where the current statement began
    open_braces: list[str] = []  # "scope", "body" or "list", outermost first
    name, first_line = "", 0
    for match in re.finditer(r"[{};]", code):
        at, token = match.start(), match[0]
        if token == "{":
            head = code[statement:at]
            if open_braces and open_braces[-1] in ("body", "list"):
                kind = "list"
            elif not head[-1:].isspace() and head.strip():
                kind = "list"  # `x_{1}`: a body has a space before its brace
            elif _opens_function(head):
                kind = "body"
                first = statement + len(head) - len(head.lstrip())
                name, first_line = _name(head), code.count("\n", 0, first) + 1
            else:
                kind = "scope"
                statement = at + 1
            open_braces.append(kind)
            continue
        if token == "}":
            kind = open_braces.pop() if open_braces else "scope"
            if kind == "body":
                yield name, first_line, code.count("\n", 0, at) + 1
            if kind != "list":
                statement = at + 1
        elif "list" not in open_braces and "body" not in open_braces:
            statement = at + 1


def _opens_function(head: str) -> bool:
    if "(" not in head or _NOT_FUNCTION.search(head):
        return False
    # `std::array x = {` and `Option{` are initialisers; `f(int x = 0) {` is a function.
    outside = re.sub(r"\([^()]*\)", "", head)
    while outside != (shorter := re.sub(r"\([^()]*\)", "", outside)):
        outside = shorter
    outside = re.sub(r"operator\s*\S+", "", outside)
    return "=" not in outside and "(" not in outside


def _name(head: str) -> str:
    found = re.search(r"([~\w:]+|operator\s*[^\s(]+)\s*\(", head)
    return found[1] if found else "a function"
