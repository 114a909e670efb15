# SPDX-License-Identifier: Apache-2.0
"""The package: what importing costs, how errors of the core arrive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace import _errors
from headrace._core import native


def run_python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_loads_no_framework() -> None:
    loaded = run_python(
        "import sys, headrace; "
        "print(*sorted({m.partition('.')[0] for m in sys.modules} & "
        "{'numpy', 'pyarrow', 'pandas', 'torch', 'tensorflow', 'mlflow', 'onnxruntime'}))"
    )
    assert loaded == ""


def test_every_code_of_the_core_has_an_exception_class() -> None:
    # The list of codes stands in headrace/base/result.h.
    codes = [
        "invalid_argument",
        "not_found",
        "already_exists",
        "mismatch",
        "corrupt",
        "io",
        "out_of_space",
        "out_of_memory",
        "timeout",
        "cancelled",
        "child_failed",
        "unsupported",
        "busy",
        "peer_dead",
        "auth_failed",
        "internal",
    ]
    assert list(_errors.BY_CODE) == codes
    for code in codes:
        with pytest.raises(headrace.Error) as caught:
            native._raise_for_test(code, f"a message for {code}")
        assert type(caught.value) is _errors.BY_CODE[code]
        assert str(caught.value) == f"a message for {code}"
        assert caught.value.code == code
        assert caught.value.origin is None


@pytest.mark.parametrize(
    ("code", "builtin"),
    [
        ("invalid_argument", ValueError),
        ("not_found", FileNotFoundError),
        ("already_exists", FileExistsError),
        ("timeout", TimeoutError),
        ("io", OSError),
        ("out_of_space", OSError),
        ("out_of_memory", MemoryError),
        ("unsupported", NotImplementedError),
        ("auth_failed", PermissionError),
    ],
)
def test_an_error_is_also_the_builtin_that_fits(code: str, builtin: type[Exception]) -> None:
    with pytest.raises(builtin):
        native._raise_for_test(code, "x")


def test_where_a_failure_began_travels_with_the_exception() -> None:
    with pytest.raises(headrace.ChildFailed) as caught:
        native._raise_for_test("child_failed", "rank 3 ended", with_origin=True)
    assert caught.value.origin == {"rank": 3, "host": "b", "pid": 17, "exit": "SIGKILL"}


def test_the_module_and_the_package_have_one_version() -> None:
    assert native.__version__ == headrace.__version__


def test_the_module_is_bound_to_no_single_python_version() -> None:
    assert native.__file__ is not None
    assert native.__file__.endswith("_native.abi3.so")


def test_a_preloaded_library_switches_deep_binding_off() -> None:
    code = (
        "import sys, os; seen = []; real = sys.setdlopenflags\n"
        "sys.setdlopenflags = lambda flags: (seen.append(flags), real(flags))\n"
        "import headrace._core\n"
        "print(any(flags & os.RTLD_DEEPBIND for flags in seen))"
    )
    assert run_python(code) == "True"
    assert run_python(code, LD_PRELOAD="libc.so.6") == "False"


def test_the_stubs_are_those_of_the_built_module() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
    import stub

    assert stub.written() == stub.render(), "run `make stubs`"
