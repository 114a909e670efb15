# SPDX-License-Identifier: Apache-2.0
"""The library as users of C++ and C have it: installed, found by CMake, compiled against, run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Rooms whose public headers declare nothing that cannot be linked.
LINKABLE = ["base", "wire", "comm", "proc", "lake", "forecast", "jobs"]


def run(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def need(program: str) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not there; `tools/apt.sh build fuzz` installs it")
    return program


@pytest.fixture(scope="module")
def installed(headrace_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `cmake --install` leaves, moved to where nobody said it would be."""
    first = tmp_path_factory.mktemp("install") / "first"
    run(need("cmake"), "--install", headrace_binary.resolve().parents[1], "--prefix", first)
    return first.rename(first.with_name("moved"))


def build(source: Path, folder: Path, installed: Path, *options: str) -> Path:
    cache = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    # Warnings of our headers count, though they are not of the program.
    loud = "-DCMAKE_NO_SYSTEM_FROM_IMPORTED=ON"
    prefix = f"-DCMAKE_PREFIX_PATH={installed}"
    run("cmake", "-S", source, "-B", folder, prefix, loud, *cache, *options)
    # The folders of tests have other names each time; ccache is to know the program again.
    names = {"CCACHE_BASEDIR": os.path.commonpath([folder, installed]), "CCACHE_NOHASHDIR": "1"}
    run("cmake", "--build", folder, "--parallel", "2", **names)
    return folder


def ranks(installed: Path, count: int, program: Path) -> str:
    told = run(installed / "bin" / "headrace", "run", "-np", str(count), program)
    return re.sub(r"^\[0\]<stdout>:", "", told, flags=re.MULTILINE)


def headers(installed: Path) -> list[str]:
    include = installed / "include"
    return sorted(str(path.relative_to(include)) for path in include.rglob("*.h"))


def test_public_headers_are_installed_and_nothing_else(installed: Path) -> None:
    there = headers(installed)
    fronts = {"buffer", "c_api", "context", "environment", "named_set", "process_set", "work"}
    assert {
        f"headrace/comm/{name}.h" for name in fronts | {"torch_adapter", "torch_gradients"}
    } <= set(there)
    assert not [
        path for path in there if re.search(r"_internal|_test|/test_|_testing|/cli/|-inl", path)
    ]
    assert (installed / "lib/cmake/headrace/headrace-config-version.cmake").exists()


@pytest.mark.parametrize(
    ("compiler", "standard"), [("g++", "c++20"), ("g++", "c++23"), ("clang++-19", "c++20")]
)
def test_public_headers_compile_with_warnings_as_errors(
    installed: Path, tmp_path: Path, compiler: str, standard: str
) -> None:
    # The other order for one of them: a header that needs another one includes it.
    names = [name for name in headers(installed) if "/torch_" not in name]
    names.sort(reverse=standard == "c++23")
    source = tmp_path / "all.cc"
    source.write_text("".join(f'#include "{name}"\n' for name in names))
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    run(need(compiler), f"-std={standard}", *flags, "-I", installed / "include", source)


def test_what_the_headers_declare_is_exported(installed: Path, source_root: Path) -> None:
    need("clang++-19")
    told = run(sys.executable, source_root / "tools/check_exports.py", installed, *LINKABLE)
    assert int(told.split()[0]) > 500  # functions were looked at


def test_a_function_that_is_not_exported_is_found(
    installed: Path, source_root: Path, tmp_path: Path
) -> None:
    need("clang++-19")
    prefix = tmp_path / "prefix"
    (prefix / "include/headrace/comm").mkdir(parents=True)
    (prefix / "lib").mkdir()
    (prefix / "lib/libheadrace.so").symlink_to(installed / "lib/libheadrace.so")
    (prefix / "include/headrace/comm/new.h").write_text(
        "namespace headrace::comm { struct Open { void hidden(); void seen() {} }; }\n"
        'extern "C" void hr_comm_new(void);\n'
    )
    checked = subprocess.run(
        [sys.executable, source_root / "tools/check_exports.py", prefix, "comm"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 1
    found = [line.partition(": ")[0] for line in checked.stdout.splitlines()]
    assert found[:-1] == ["headrace::comm::Open::hidden", "hr_comm_new"]


def test_nothing_of_an_install_tree_lies_outside_of_it(installed: Path) -> None:
    for file in (installed / "bin/headrace", installed / "lib/libheadrace.so"):
        for line in run("ldd", file).splitlines():
            assert "not found" not in line
            path = re.search(r"=> (/\S+)", line)
            assert not path or path[1].startswith(("/lib", "/usr/lib", str(installed))), line


def test_the_example_has_the_same_losses_for_any_number_of_ranks(
    installed: Path, source_root: Path, tmp_path: Path
) -> None:
    folder = build(source_root / "examples/cpp_allreduce", tmp_path / "build", installed)
    alone = ranks(installed, 1, folder / "train")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", alone)]
    assert len(losses) == 3
    assert losses[2] < 0.5 * losses[0]
    assert ranks(installed, 2, folder / "train") == alone
    assert ranks(installed, 4, folder / "train") == alone


def test_a_program_in_c_uses_the_c_names(
    installed: Path, source_root: Path, tmp_path: Path
) -> None:
    folder = build(source_root / "tests/cpp", tmp_path, installed)
    for count, total in ((1, 1), (3, 6)):
        assert ranks(installed, count, folder / "c_ranks") == f"{count} ranks in C, sum {total}\n"


def test_tensors_of_libtorch_go_through_the_collectives(
    installed: Path, source_root: Path, tmp_path: Path, reference_python: Path
) -> None:
    where = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    torch = run(reference_python, "-c", where).strip()
    folder = build(source_root / "tests/cpp", tmp_path, installed, f"-DTORCH_FOLDER={torch}")
    for count in (1, 2):
        told = ranks(installed, count, folder / "torch_ranks")
        assert told == f"{count} ranks with LibTorch\n"


def test_a_checkout_says_where_the_package_of_cmake_is() -> None:
    import headrace

    with pytest.raises(headrace.NotFound, match="cmake --install build/release --prefix PREFIX"):
        headrace.cmake_dir()
