# SPDX-License-Identifier: Apache-2.0
"""Put the checkout on the path of the environment that runs this: `import headrace`, bin/headrace.

The build has already linked module and binary into python/headrace; what is left is a path file and
one link. Usage: .venv/bin/python tools/develop.py
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def replace_link(link: Path, target: Path) -> None:
    """Make `link` point to `target`, whatever it was before."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def main() -> None:
    """Write headrace.pth and bin/headrace."""
    package = ROOT / "python"
    binary = package / "headrace" / "bin" / "headrace"
    if not binary.exists():
        sys.exit(f"{binary} is not built; run `make build`")
    path_file = Path(sysconfig.get_path("purelib")) / "headrace.pth"
    line = f"{package}\n"
    if not path_file.exists() or path_file.read_text() != line:
        path_file.write_text(line)
    replace_link(Path(sysconfig.get_path("scripts")) / "headrace", binary)


if __name__ == "__main__":
    main()
