# SPDX-License-Identifier: Apache-2.0
"""Write the stubs of the built module headrace._native: python/headrace/_native/*.pyi.

Usage: .venv/bin/python tools/stub.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A folder without __init__.py: Python imports the module beside it, type checkers read the folder.
STUBS = ROOT / "python/headrace/_native"
# nanobind writes bare `list` and `dict` for containers it does not know, and a method named `list`
# hides the type in its class.
HEAD = (
    "# SPDX-License-Identifier: Apache-2.0\n# Made by tools/stub.py from the built module.\n"
    '# mypy: disable-error-code="type-arg,valid-type"\n\n'
)


def formatted(text: str, name: str) -> str:
    """The text as `make lint` wants it: imports in order, then the layout."""
    for step in (["check", "-q", "--fix", "--select", "I"], ["format"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *step, "--stdin-filename", str(STUBS / name), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            cwd=ROOT,
        ).stdout
    return text


def render() -> dict[str, str]:
    """File name -> text of every stub."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["-q", "-P", "-r", "--exclude-values", "-i", str(ROOT / "python"), "-O", folder]
        subprocess.run(
            [sys.executable, "-m", "nanobind.stubgen", *options, "-m", "headrace._native"],
            check=True,
            timeout=120,
        )
        made = sorted(Path(folder).rglob("*.pyi"))
        return {path.name: formatted(HEAD + path.read_text(), path.name) for path in made}


def written() -> dict[str, str]:
    """The same of what the checkout holds."""
    return {path.name: path.read_text() for path in sorted(STUBS.glob("*.pyi"))}


if __name__ == "__main__":
    STUBS.mkdir(exist_ok=True)
    for old in STUBS.glob("*.pyi"):
        old.unlink()
    for name, text in render().items():
        (STUBS / name).write_text(text)
