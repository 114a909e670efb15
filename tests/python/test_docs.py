# SPDX-License-Identifier: Apache-2.0
"""The manual is true: every code block runs, the reference is what the binary says.

The bash and python blocks of a page run in order, in one fresh folder in which `examples` and
`build` are the checkout's. A comment `<!-- run by make fresh -->` before a block marks what only a
fresh machine can run (cloning, installing, the whole demo). Output is shown in `text` and `console`
blocks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(<!-- run by make fresh -->\n)?^```(bash|python)\n(.*?)^```$", re.M | re.S)

sys.path.insert(0, str(ROOT / "tools"))
import reference_pages  # noqa: E402


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """(line, language, text) of what is to be run."""
    text = page.read_text()
    return [
        (text.count("\n", 0, match.start(3)) + 1, match[2], match[3])
        for match in BLOCK.finditer(text)
        if not match[1]
    ]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_code_block_of_a_page_runs(page: Path, tmp_path: Path, headrace_binary: Path) -> None:
    for name in ("examples", "build"):
        (tmp_path / name).symlink_to(ROOT / name)
    path = f"{headrace_binary.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "HOME": str(tmp_path),
        "HEADRACE_REGISTRY": str(tmp_path / "registry"),
        "HEADRACE_PYTHON": sys.executable,
    }
    for line, language, text in blocks(page):
        command = (
            ["bash", "-euo", "pipefail", "-c", text]
            if language == "bash"
            else [sys.executable, "-c", text]
        )
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, (
            f"{page.relative_to(ROOT)}:{line} ended with {done.returncode}\n"
            f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )


def test_no_code_block_is_of_a_language_that_nothing_runs() -> None:
    for page in PAGES:
        languages = set(re.findall(r"^```(\w+)$", page.read_text(), flags=re.MULTILINE))
        known = {"bash", "python", "text", "console", "json", "c", "cpp", "ini", "html", "sql"}
        assert languages <= known, page


def test_the_command_reference_is_what_the_binary_says(headrace_binary: Path) -> None:
    written = reference_pages.COMMANDS_PAGE.read_text()
    expected = reference_pages.commands_page(str(headrace_binary))
    assert written == expected, "run `make docs-reference`"


def test_the_list_of_metrics_is_that_of_the_code() -> None:
    written = reference_pages.METRICS_PAGE.read_text()
    assert written == reference_pages.metrics_page(), "run `make docs-reference`"


def test_every_environment_variable_in_the_code_is_documented() -> None:
    documented = (ROOT / "docs/reference/environment.md").read_text()
    used = set()
    for folder in ("headrace", "python"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".py") and not path.stem.endswith("_test"):
                if path.is_symlink():
                    continue
                used |= set(re.findall(r'"(HEADRACE_[A-Z_]+)"', path.read_text()))
    missing = {name for name in used if f"`{name}`" not in documented}
    assert not missing, "docs/reference/environment.md does not list them"
