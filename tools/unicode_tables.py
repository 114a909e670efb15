# SPDX-License-Identifier: Apache-2.0
"""Write headrace/registry/unicode_tables.inc: canonical decompositions and combining classes.

Usage: python3 tools/unicode_tables.py > headrace/registry/unicode_tables.inc
The tables come from the interpreter's unicodedata; the first line names its Unicode version.
"""

import sys
import unicodedata


def canonical(code: int) -> list[int]:
    """Return the canonical decomposition of one code point, one level, without Hangul."""
    text = unicodedata.decomposition(chr(code))
    return [] if not text or text.startswith("<") else [int(part, 16) for part in text.split()]


def write_rows(rows: list[str]) -> None:
    line = ""
    for row in rows:
        if len(line) + len(row) + 2 > 98:
            print("    " + line.rstrip())
            line = ""
        line += row + ", "
    print("    " + line.rstrip())


def main() -> None:
    codes = [c for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Unicode {unicodedata.unidata_version}, written by tools/unicode_tables.py.")
    print("// clang-format off")
    print("// {code, first, second (0: none), 1 when the pair composes again}, ascending by code.")
    print("constexpr Decomposition kDecompositions[] = {")
    rows = []
    for code in codes:
        parts = canonical(code)
        if parts:
            composes = unicodedata.normalize("NFC", "".join(map(chr, parts))) == chr(code)
            second = parts[1] if len(parts) > 1 else 0
            rows.append(f"{{{code:#x},{parts[0]:#x},{second:#x},{int(composes and second != 0)}}}")
    write_rows(rows)
    print("};")
    print("// {first, last, combining class}, ascending; every code that is absent has class 0.")
    print("constexpr CombiningRange kCombining[] = {")
    ranges: list[list[int]] = []
    for code in codes:
        value = unicodedata.combining(chr(code))
        if value == 0:
            continue
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == value:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, value])
    write_rows([f"{{{first:#x},{last:#x},{value}}}" for first, last, value in ranges])
    print("};")
    print("// clang-format on")


if __name__ == "__main__":
    main()
