# SPDX-License-Identifier: Apache-2.0
"""tools/tidy.py finds what it must, and nothing in a clean tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
CMAKE = "headrace_library(base\n  SOURCES a.cc\n  DEPENDS)\n"


def tidy(root: Path, files: dict[str, str], source_root: Path) -> list[str]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, str(source_root / "tools/tidy.py"), str(root)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert done.returncode == (1 if lines else 0)
    return lines[:-1]  # the last line counts them


def long_function(lines: int) -> str:
    return "int f(int x) {\n" + "  x += 1;\n" * (lines - 2) + "}\n"


def test_a_clean_tree_has_no_findings(tmp_path: Path, source_root: Path) -> None:
    files = {
        "headrace/base/a.cc": SPDX + '#include "headrace/base/a.h"\n' + long_function(70),
        "headrace/base/a.h": SPDX + "// What a is for.\n#pragma once\n",
        "headrace/base/CMakeLists.txt": CMAKE,
    }
    assert tidy(tmp_path, files, source_root) == []


CASES = {
    "a long function": (
        {"headrace/base/a.cc": SPDX + long_function(71)},
        "headrace/base/a.cc:2: f has 71 lines",
    ),
    "a long member of a class": (
        {
            "headrace/base/a.cc": SPDX
            + "class A {\n  A(int x) : x_{x} {\n"
            + "    x_ += 1;\n" * 70
            + "  }\n  int x_;\n};\n"
        },
        "headrace/base/a.cc:3: A has 72 lines",
    ),
    "a long function in Python": (
        {"tools/x.py": SPDX.replace("//", "#") + "def f() -> None:\n" + "    print()\n" * 70},
        "tools/x.py:2: f has 71 lines",
    ),
    "a page that is not there": (
        {"headrace/base/a.h": SPDX + "// As docs/a.md says.\n#pragma once\n"},
        "headrace/base/a.h:2: docs/a.md does not exist",
    ),
    "a long header": (
        {"headrace/base/a.h": SPDX + "// Purpose.\n#pragma once\n" + "int a();\n" * 250},
        "headrace/base/a.h:253: 253 lines; at most 250",
    ),
    "getenv": (
        {"headrace/base/a.cc": SPDX + 'auto x = std::getenv("HOME");\n'},
        "headrace/base/a.cc:2: getenv(: use base::environment",
    ),
    "a thread": (
        {"headrace/base/a.cc": SPDX + "\nstd::thread t;\n"},
        "headrace/base/a.cc:3: std::thread: use base::Thread",
    ),
    "the wall clock": (
        {"headrace/base/a.cc": SPDX + "auto t = std::chrono::system_clock::now();\n"},
        "headrace/base/a.cc:2: system_clock::now: use base::Clock",
    ),
    "an arrow that points up": (
        {"headrace/base/a.cc": SPDX + '#include "headrace/flow/b.h"\n'},
        "headrace/base/a.cc:2: base must not include headrace/flow/b.h",
    ),
    "an arrow between planes": (
        {
            "headrace/flow/a.cc": SPDX + '#include "headrace/registry/b.h"\n',
            "headrace/flow/CMakeLists.txt": "a.cc",
        },
        "headrace/flow/a.cc:2: flow must not include headrace/registry/b.h",
    ),
    "an arrow in CMake": (
        {"headrace/flow/CMakeLists.txt": "headrace_library(flow DEPENDS base lake)"},
        "headrace/flow/CMakeLists.txt:1: DEPENDS lake: the arrow flow -> lake does not exist",
    ),
    "a wrapped header": (
        {"headrace/base/a.cc": SPDX + "#include <arrow/api.h>\n"},
        "headrace/base/a.cc:2: <arrow/api.h> is wrapped by headrace/lake/scan",
    ),
    "a source that nothing builds": (
        {"headrace/base/b.cc": SPDX},
        "headrace/base/b.cc:1: no CMakeLists.txt names it",
    ),
    "a fuzzer without a corpus": (
        {
            "headrace/base/a_fuzz.cc": SPDX,
            "headrace/base/CMakeLists.txt": CMAKE + "FUZZERS a_fuzz.cc",
        },
        "headrace/base/a_fuzz.cc:1: has no corpus in fuzz/corpus/a/",
    ),
    "no licence line": (
        {"headrace/base/a.cc": "int a;\n"},
        "headrace/base/a.cc:1: the first line is",
    ),
    "a header without its purpose": (
        {"headrace/base/a.h": SPDX + "#pragma once\n"},
        "headrace/base/a.h:2: the second line says",
    ),
    "another word for a thing": (
        {"headrace/base/a.cc": SPDX + "int num_procs;\n"},
        "headrace/base/a.cc:2: num_procs: we say world_size",
    ),
    "a file name that says nothing": (
        {"headrace/base/utils.h": SPDX + "// Purpose.\n#pragma once\n"},
        "headrace/base/utils.h:1: a name that says nothing",
    ),
    "a path of one machine": (
        {"docs/a.md": "see /" + "home/me/file\n"},
        "docs/a.md:1: /" + "home/m...: a path of one machine",
    ),
    "a host": ({"docs/a.md": "from https:/" + "/pypi.invalid/x\n"}, "docs/a.md:1: pypi.invalid"),
    "a promise without an issue": (
        {"docs/a.md": "TO" + "DO: more\n"},
        "docs/a.md:1: TO" + "DO without an issue",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_finds(case: str, tmp_path: Path, source_root: Path) -> None:
    files, expected = CASES[case]
    files = {"headrace/base/CMakeLists.txt": CMAKE, **files}
    found = tidy(tmp_path, files, source_root)
    assert len(found) == 1, found
    assert found[0].startswith(expected)


def test_comments_texts_and_initialisers_are_no_code(tmp_path: Path, source_root: Path) -> None:
    code = (
        SPDX
        + "// getenv( is banned, so is std::thread\n"
        + 'const char* text = "std::thread t; getenv(";\n'
        + 'const char* raw = R"(std::thread { getenv( )";\n'
        + "constexpr int kTable[] = {\n"
        + "    1,\n" * 100
        + "};\n"
        + "const std::vector<int> made(f({\n"
        + "    1,\n" * 100
        + "}));\n"
    )
    files = {"headrace/base/a.cc": code, "headrace/base/CMakeLists.txt": CMAKE}
    assert tidy(tmp_path, files, source_root) == []


def test_tests_may_be_long_and_use_threads(tmp_path: Path, source_root: Path) -> None:
    files = {
        "headrace/base/a_test.cc": SPDX + "std::thread t;\n" + long_function(300),
        "headrace/base/CMakeLists.txt": CMAKE + "TESTS a_test.cc",
    }
    assert tidy(tmp_path, files, source_root) == []
