# SPDX-License-Identifier: Apache-2.0
"""Check what no compiler checks: sizes, banned calls, include arrows, names, first lines, paths.

The rules are those of CONTRIBUTING.md and ARCHITECTURE.md; the numbers and lists below are the one
place that holds them. Prints FILE:LINE: what is wrong and what to do; exit code 1 on any finding.
Usage: tidy.py [ROOT]
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

import tidy_cpp

FUNCTION_LINES_MAX = 70
SOURCE_LINES_MAX = 800
HEADER_LINES_MAX = 250

# Who may include whom; itself is always allowed. ARCHITECTURE.md shows the same table.
ARROWS = {
    "base": set[str](),
    "wire": {"base"},
    "proc": {"base", "wire"},
    "comm": {"base", "wire"},
    "lake": {"base", "wire", "proc"},
    "forecast": {"base"},
    "registry": {"base"},
    "flow": {"base", "wire", "proc"},
    "run": {"base", "wire", "proc"},
    "watch": {"base", "wire"},
}
ARROWS["jobs"] = {"comm", "lake", "forecast", "registry", "flow", "base", "wire", "proc"}
ARROWS["cli"] = set(ARROWS)

# Third-party headers and the only files that may name them.
WRAPPED_HEADERS: dict[str, str | tuple[str, ...]] = {
    r"(arrow|parquet)/": "headrace/lake/scan",
    r"sqlite3\.h": "headrace/registry/",
    r"CLI/": "headrace/cli/args.cc",
    r"spdlog/": "headrace/base/log.cc",
    r"sodium\.h": ("headrace/base/checksum.cc", "headrace/wire/"),
    r"xxhash\.h": "headrace/base/",
    r"simdjson\.h": "headrace/base/json",
    r"hwy/": ("headrace/forecast/", "headrace/comm/algo/", "headrace/base/kernel_targets.h"),
    r"nanobind/": "python/src/",
}

# Calls that only the named files may make: (pattern, allowed path prefixes, what to use instead).
BANNED_CALLS: list[tuple[str, tuple[str, ...], str]] = [
    (r"\b(secure_)?getenv\s*\(", ("headrace/base/environment.cc",), "base::environment"),
    (
        r"this_thread::sleep|\b(u|nano)sleep\s*\(|::sleep\s*\(",
        ("headrace/base/clock.cc",),
        "base::sleep_for, or better wait for the event",
    ),
    (
        r"\bstd::(jthread|async)\b|\bstd::thread\b(?!::)|\bpthread_create\b",
        ("headrace/base/thread.h", "headrace/base/thread.cc"),
        "base::Thread",
    ),
    (
        r"\bv?fork\s*\(|\bposix_spawnp?\s*\(|\bpopen\s*\(|\bstd::system\s*\(|::system\s*\(",
        ("headrace/proc/",),
        "proc::Child",
    ),
    (r"(?<![\w.>])(::)?socket\s*\(", ("headrace/wire/",), "wire::Endpoint"),
    (
        r"\bshm_open\s*\(|\bmemfd_create\s*\(",
        ("headrace/base/", "headrace/proc/"),
        "base::ShmSegment",
    ),
    (r"\brandom_device\b|\bstd::mt19937|\brand\s*\(\)", ("headrace/base/random.cc",), "base::Rng"),
    (
        r"system_clock::now|steady_clock::now|\bgettimeofday\s*\(|\bclock_gettime\s*\(|"
        r"(?<![\w.>])time\s*\(\s*(nullptr|NULL|0)\s*\)",
        ("headrace/base/clock.cc",),
        "base::Clock",
    ),
    (r"\bstd::(cout|cerr|clog)\b", (), "fmt::print or base::log"),
    (
        r"\bthrow\b(?!\s*\()",
        # metric_names.h: in a consteval function it is a compile error, not an exception
        ("python/src/", "headrace/lake/scan", "headrace/base/metric_names.h"),
        "return an Error",
    ),
    (
        r"\bcatch\s*\(",
        (
            "headrace/lake/scan",
            "python/src/",
            "headrace/comm/c_api.cc",
            "headrace/cli/args.cc",
            "headrace/cli/main.cc",
        ),
        "a Result; exceptions stop at the borders",
    ),
]

# Terms that have another name here (CONTRIBUTING.md, "Names").
BANNED_WORDS = {
    "num_procs": "world_size",
    "worker_id": "rank",
    "communicator": "process set",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "lookback": "context length",
    "kv_server": "store",
}
BANNED_FILE_NAMES = {"util", "utils", "common", "helper", "helpers", "misc"}

# Names of this project's own or of published documents; anything else in a file is a machine's.
ALLOWED_HOSTS = {
    "localhost",
    "127.0.0.1",
    "www.apache.org",
    "www.w3.org",
    "keepachangelog.com",
    "semver.org",
    "json-schema.org",
    "schema.management.azure.com",
    "arxiv.org",
    "protobuf.dev",
    "onnx.ai",
    "huggingface.co",
    "doi.org",
    "github.com",
    "docs.python.org",
    "contoso.com",
    "www.contoso.com",
    "example.com",
    "example.org",
}
MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(work|root|home|tmp|opt|mnt)/\w")

Finding = tuple[str, int, str]


class Tree:
    """The files of a checkout, read once."""

    def __init__(self, root: Path) -> None:
        """List what git knows or would add."""
        self.root = root
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\n")
        self.paths = sorted(p for p in listed if p and (root / p).is_file())
        self._texts: dict[str, str] = {}

    def text(self, path: str) -> str:
        """Content of a file."""
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self._texts[path]

    def code(self, path: str) -> str:
        """C++ with comments, strings and characters blanked out; lines stay where they are."""
        key = path + "\0code"
        if key not in self._texts:
            self._texts[key] = tidy_cpp.blank(self.text(path))
        return self._texts[key]

    def cpp(self) -> list[str]:
        """Our C++ files."""
        return [p for p in self.paths if p.endswith((".cc", ".h"))]


def is_test(path: str) -> bool:
    """Tests, their plain references, benchmarks and fuzzers: they may be long and call anything."""
    name = PurePosixPath(path).name
    return path.startswith(("tests/", "benchmarks/", "fuzz/")) or bool(
        re.search(r"_(test|benchmark|fuzz|reference)\w*\.(cc|h|py)$", name)
        or name.startswith("test_")
    )


def line_of(text: str, offset: int) -> int:
    """1-based line of an offset."""
    return text.count("\n", 0, offset) + 1


def sizes(tree: Tree) -> Iterator[Finding]:
    """Functions fit a screen; files are one thing."""
    for path in tree.cpp():
        lines = tree.text(path).count("\n")
        limit = HEADER_LINES_MAX if path.endswith(".h") else SOURCE_LINES_MAX
        if lines > limit and not is_test(path):
            yield path, lines, f"{lines} lines; at most {limit}: split it by what it is about"
        if is_test(path):
            continue
        for name, first, last in tidy_cpp.functions(tree.code(path)):
            if last - first + 1 > FUNCTION_LINES_MAX:
                yield path, first, f"{name} has {last - first + 1} lines; at most 70"
    for path in tree.paths:
        if not path.endswith(".py"):
            continue
        lines = tree.text(path).count("\n")
        if lines > SOURCE_LINES_MAX and not is_test(path):
            yield path, lines, f"{lines} lines; at most {SOURCE_LINES_MAX}"
        for node in ast.walk(ast.parse(tree.text(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX and not is_test(path):
                    yield path, node.lineno, f"{node.name} has {length} lines; at most 70"


def banned_calls(tree: Tree) -> Iterator[Finding]:
    """Each door to the system has one file."""
    for path in tree.cpp():
        if is_test(path):
            continue
        code = tree.code(path)
        for pattern, allowed, instead in BANNED_CALLS:
            if path.startswith(allowed) if allowed else False:
                continue
            for match in re.finditer(pattern, code):
                yield path, line_of(code, match.start()), f"{match[0].strip()}: use {instead}"


def room_of(path: str) -> str | None:
    """ "headrace/lake/scan/x.cc" -> "lake"; None outside the rooms."""
    parts = PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "headrace" else None


def arrows(tree: Tree) -> Iterator[Finding]:
    """Includes go down only, and foreign headers stay in the file that wraps them."""
    for path in tree.cpp():
        room = room_of(path)
        text = tree.text(path)
        for match in re.finditer(r'^#include ["<]([^">]+)[">]', text, re.MULTILINE):
            line = line_of(text, match.start())
            header = match[1]
            target = room_of(header)
            if room and target and target != room and target not in ARROWS.get(room, set()):
                yield path, line, f"{room} must not include {header}: the arrow does not exist"
            for pattern, owner in WRAPPED_HEADERS.items():
                if re.match(pattern, header) and not path.startswith(owner) and not is_test(path):
                    doors = owner if isinstance(owner, str) else " and ".join(owner)
                    yield path, line, f"<{header}> is wrapped by {doors}; use our header"
    for path in tree.paths:
        room = room_of(path)
        if not path.endswith("CMakeLists.txt") or room is None or room == "cli":
            continue
        declared = re.search(r"\bDEPENDS\s+([a-z\s]+?)\s*(?:[A-Z)])", tree.text(path))
        for name in declared[1].split() if declared else []:
            if name not in ARROWS.get(room, set()):
                yield path, 1, f"DEPENDS {name}: the arrow {room} -> {name} does not exist"


def listed_sources(tree: Tree) -> Iterator[Finding]:
    """No source that nothing builds."""
    for path in tree.cpp():
        if not path.endswith(".cc") or not path.startswith(("headrace/", "python/src/")):
            continue
        stem = PurePosixPath(path).stem
        folders = [str(p) for p in PurePosixPath(path).parents][:-1]
        lists = [
            tree.text(f"{f}/CMakeLists.txt") for f in folders if f"{f}/CMakeLists.txt" in tree.paths
        ]
        if not any(
            re.search(rf"(?<![\w-]){re.escape(stem)}(\.cc)?(?![\w-])", text) for text in lists
        ):
            yield path, 1, "no CMakeLists.txt names it"
        if stem.endswith("_fuzz"):
            room = room_of(path)
            name = stem.removesuffix("_fuzz")
            corpora = (f"fuzz/corpus/{name}/", f"fuzz/corpus/{room}_{name}/")
            if not any(p.startswith(corpora) for p in tree.paths):
                yield path, 1, f"has no corpus in fuzz/corpus/{name}/"


def first_lines(tree: Tree) -> Iterator[Finding]:
    """The licence line, and in a header what it is for."""
    for path in tree.paths:
        if not path.endswith((".cc", ".h", ".py", ".sh", ".pyi")):
            continue
        lines = [*tree.text(path).split("\n"), "", ""]
        start = 1 if lines[0].startswith("#!") else 0
        if lines[start].lstrip("/# ") != "SPDX-License-Identifier: Apache-2.0":
            yield path, 1, 'the first line is "SPDX-License-Identifier: Apache-2.0" in a comment'
        elif path.endswith(".h"):
            if not re.match(r"// [A-Z\"'`\d]", lines[1]):
                yield path, 2, "the second line says in one sentence what the header is for"
            # Highway includes its -inl.h files once per instruction set.
            if "#pragma once" not in tree.text(path) and not path.endswith("-inl.h"):
                yield path, 1, "no #pragma once"


def names(tree: Tree) -> Iterator[Finding]:
    """One term for one thing."""
    # Functions of MPI and NCCL are called what they are called.
    words = re.compile(rf"\b(?!MPI_|nccl)\w*({'|'.join(BANNED_WORDS)})\w*", re.IGNORECASE)
    for path in tree.paths:
        # Scripts written for Horovod import that one.
        if (
            PurePosixPath(path).stem in BANNED_FILE_NAMES
            and path != "python/headrace/common/util.py"
        ):
            yield path, 1, "a name that says nothing: name the file after what it is about"
        if path.endswith((".cc", ".h")):
            code = tree.code(path)
            for match in words.finditer(code):
                better = BANNED_WORDS[match[1].lower()]
                yield path, line_of(code, match.start()), f"{match[0]}: we say {better}"


def foreign_traces(tree: Tree) -> Iterator[Finding]:
    """Nothing of the machine it was written on; no promise without an issue."""
    for path in tree.paths:
        if path.startswith(("fuzz/corpus/", "examples/m4_hourly/")) or path == "tools/tidy.py":
            continue
        text = tree.text(path)
        if "\0" in text:
            continue
        for match in MACHINE_PATH.finditer(text):
            yield path, line_of(text, match.start()), f"{match[0]}...: a path of one machine"
        for match in re.finditer(r"\b[a-z]+://([\w.-]+)", text):
            host = match[1].lower()
            if match[0].startswith("http") and "." in host and host not in ALLOWED_HOSTS:
                yield path, line_of(text, match.start()), f"{host}: no host names in the tree"
        for match in re.finditer(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))", text):
            yield path, line_of(text, match.start()), f"{match[0]} without an issue: TODO(#12)"


def pages(tree: Tree) -> Iterator[Finding]:
    """A page that code or another page points to is there."""
    there = set(tree.paths)
    for path in tree.paths:
        if path.endswith((".cc", ".h", ".py", ".md")) and "tests/" not in path:
            text = tree.text(path)
            for match in re.finditer(r"(?<![\w/.-])docs/[\w/-]+\.md", text):
                if match[0] not in there:
                    yield path, line_of(text, match.start()), f"{match[0]} does not exist"


CHECKS: list[Callable[[Tree], Iterable[Finding]]] = [
    sizes,
    banned_calls,
    arrows,
    listed_sources,
    first_lines,
    names,
    foreign_traces,
    pages,
]


def main(arguments: list[str]) -> int:
    """Run all checks on a checkout."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    tree = Tree(root)
    findings = sorted({finding for check in CHECKS for finding in check(tree)})
    for path, line, text in findings:
        print(f"{path}:{line}: {text}")
    if findings:
        print(f"tidy: {len(findings)} findings in {len(tree.paths)} files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
