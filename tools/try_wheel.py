# SPDX-License-Identifier: Apache-2.0
"""Try a wheel as a stranger would: a fresh environment, no pyarrow, no checkout on any path.

Usage: try_wheel.py WHEEL
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

MODULE_CHECK = """
import sys, headrace
from headrace._core import native
assert "pyarrow" not in sys.modules
assert native.__version__ == headrace.__version__
try:
    native._raise_for_test("not_found", "as it should")
except FileNotFoundError as error:
    assert isinstance(error, headrace.Error)
else:
    raise SystemExit("no exception came")
"""


def run(*command: str | Path) -> str:
    """Run and answer the output; anything but success ends the trial."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=600, cwd="/", check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def check_libraries(binary: Path, environment: Path) -> None:
    """Each library is the system's, or lies in the wheel."""
    for line in run("ldd", binary).splitlines():
        if "not found" in line:
            sys.exit(f"{binary}: {line.strip()}")
        path = re.search(r"=> (/\S+)", line)
        if path and not path[1].startswith(("/lib", "/usr/lib", str(environment))):
            sys.exit(f"{binary} takes {path[1]}, which lies outside the wheel")


def check_package(python: Path, environment: Path) -> None:
    """The example builds against what the wheel has for C++, and runs on two ranks."""
    package = run(python, "-c", "import headrace; print(headrace.cmake_dir())").strip()
    source = Path(__file__).resolve().parent.parent / "examples" / "cpp_allreduce"
    folder = environment / "train-build"
    run("cmake", "-S", source, "-B", folder, f"-Dheadrace_DIR={package}")
    run("cmake", "--build", folder)
    check_libraries(folder / "train", environment)
    told = run(environment / "bin" / "headrace", "run", "-np", "2", folder / "train")
    if "step 300: loss" not in told:
        sys.exit(f"the example in C++ said:\n{told}")


def main(wheel: str) -> None:
    """Install, look at what is linked, run binary and module."""
    if "-cp310-abi3-" not in wheel:
        sys.exit(f"{wheel} is bound to one Python version")
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder).resolve()
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        run(python, "-m", "pip", "install", "-qq", Path(wheel).resolve())
        installed = run(python, "-m", "pip", "list", "--format=freeze").lower()
        assert "pyarrow" not in installed, "pyarrow must not be needed"
        binaries = list(environment.glob("lib/python*/site-packages/headrace/bin/headrace"))
        check_libraries(binaries[0], environment)
        print(run(environment / "bin" / "headrace", "--version").strip())
        run(python, "-c", MODULE_CHECK)
        check_package(python, environment)
    print(f"{wheel}: works without pyarrow, {Path(wheel).stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1])
