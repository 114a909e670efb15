# SPDX-License-Identifier: Apache-2.0
"""`headrace models`: what is shown, and what asks before it does harm."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import STARTED
from headrace import registry

WIDTH = 80


@pytest.fixture
def churn(tmp_path: Path) -> registry.Registry:
    """Two versions of a model of one item, with many metrics and a long header."""
    r = registry.open(tmp_path / "registry")
    candidates = {
        f"{candidate}.{name}": 1.0
        for candidate in ("local", "global", "seasonal_naive", "local+naive")
        for name in ("mase", "mean_wql", "coverage_80", "rmse")
    }
    for mase in (0.9, 0.8):
        r.add(
            "churn/north",
            {"w": np.ones(3, "f4")},
            kind="deepar",
            metrics={"coverage_80": 0.8, "mase": mase, "mean_wql": 0.1, "rmse": 3.0, **candidates},
            params={"depth": 4},
            header={"kind": "deepar", "frequency": "D", "horizon": 14, "long": list(range(100))},
            item="north",
            run="r1",
        )
    return r


def test_a_list_fits_a_terminal_and_all_of_it_can_be_asked_for(
    churn: registry.Registry, run_headrace
) -> None:
    churn.alias("churn/north:2", "champion")
    lines = run_headrace("models", "list").stdout.splitlines()
    assert lines[0].split() == ["name", "version", "aliases", "created", "mase", "mean_wql"]
    assert max(map(len, lines)) <= WIDTH
    assert "champion" in lines[2]

    wide = run_headrace("models", "list", "--all").stdout.splitlines()[0].split()
    assert wide[:6] == ["name", "version", "kind", "item", "aliases", "created"]
    assert {"mase", "rmse", "local+naive.coverage_80"} <= set(wide)
    assert run_headrace("models", "list", "--sort", "-rmse").stdout.split()[4] == "rmse"
    csv = run_headrace("models", "list", "--csv").stdout.splitlines()[0]
    assert csv.startswith("name,version,kind,aliases,created,")


def test_a_version_is_shown_on_one_screen(churn: registry.Registry, run_headrace) -> None:
    short = run_headrace("models", "show", "churn/north").stdout
    assert len(short.splitlines()) < 30
    for text in ("churn/north:2", "mase", "depth", "north", "horizon", "14", "--all"):
        assert text in short
    assert "local.mase" not in short
    full = run_headrace("models", "show", "churn/north", "--all").stdout
    assert "local.mase" in full
    assert '"long"' in full


def test_get_overwrites_only_when_it_is_told_to(
    churn: registry.Registry, run_headrace, tmp_path: Path
) -> None:
    words = ["models", "get", "churn/north:1", "--out", tmp_path / "out"]
    assert run_headrace(*words).returncode == 0
    (path,) = (tmp_path / "out").iterdir()
    path.write_bytes(b"mine")
    done = run_headrace(*words)
    assert done.returncode == 1
    assert f"{path} is there already" in done.stderr
    assert "--force" in done.stderr
    assert path.read_bytes() == b"mine"
    assert run_headrace(*words, "--force").returncode == 0
    assert path.read_bytes() != b"mine"


def test_delete_asks_or_wants_yes(churn: registry.Registry, run_headrace) -> None:
    done = run_headrace("models", "delete", "churn/north:1")
    assert done.returncode == 2
    assert "churn/north:1 would be deleted; add --yes" in done.stderr
    assert churn.get("churn/north:1").version == 1
    assert run_headrace("models", "delete", "churn/north:1", "--dry-run").returncode == 0
    assert churn.get("churn/north:1").version == 1
    assert run_headrace("models", "delete", "churn/north:1", "--yes").returncode == 0
    assert [v.version for v in churn.list("churn")] == [2]


def test_delete_goes_by_the_answer_on_a_terminal(
    churn: registry.Registry, headrace_binary: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "HEADRACE_REGISTRY": str(tmp_path / "registry")}
    words = [headrace_binary, "models", "delete", "churn/north:1"]
    for answer, code, left in [(b"n\n", 1, [1, 2]), (b"y\n", 0, [2])]:
        ours, theirs = os.openpty()
        os.write(ours, answer)
        done = subprocess.run(
            words, env=environment, stdin=theirs, capture_output=True, timeout=60, check=False
        )
        os.close(ours)
        os.close(theirs)
        assert done.returncode == code
        assert b"delete churn/north:1? [y/N]" in done.stderr
        assert [v.version for v in churn.list("churn")] == left


def test_delete_takes_what_it_asked_about_though_latest_leads_elsewhere_by_now(
    churn: registry.Registry, headrace_binary: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "HEADRACE_REGISTRY": str(tmp_path / "registry")}
    words = [headrace_binary, "models", "delete", "churn/north@latest"]
    ours, theirs = os.openpty()
    process = subprocess.Popen(words, env=environment, stdin=theirs, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        asked = b""
        while not asked.endswith(b"[y/N] "):
            assert select.select([process.stderr], [], [], 30)[0], asked
            piece = os.read(process.stderr.fileno(), 4096)
            assert piece, asked
            asked += piece
        assert asked == b"delete churn/north:2? [y/N] "
        churn.add("churn/north", {"w": np.zeros(3, "f4")}, kind="deepar")
        os.write(ours, b"y\n")
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
    assert process.returncode == 0
    assert sorted(v.version for v in churn.list("churn")) == [1, 3]


def test_a_dry_run_of_an_alias_is_refused_as_the_real_one(
    churn: registry.Registry, run_headrace
) -> None:
    churn.alias("churn/north:2", "champion")
    words = ["models", "alias", "churn/north:1", "champion", "--expect", "3"]
    real = run_headrace(*words, "--json")
    dry = run_headrace(*words, "--json", "--dry-run")
    error = json.loads(real.stdout)["error"]
    assert error["code"] == "mismatch"
    assert "points to version 2, not to the expected 3" in error["message"]
    assert (dry.returncode, json.loads(dry.stdout)["error"]) == (real.returncode, error)
    assert run_headrace(*words[:-1], "2", "--dry-run").stdout == (
        "churn/north@champion: version 1 (before: 2)\n"
    )
    assert churn.get("churn/north@champion").version == 2


def test_alias_says_from_where_to_where(churn: registry.Registry, run_headrace) -> None:
    def alias(*words: str) -> str:
        done = run_headrace("models", "alias", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert alias("churn/north:1", "champion", "--dry-run") == (
        "churn/north@champion: version 1 (before: none)\n"
    )
    assert alias("churn/north:1", "champion") == "churn/north@champion: version 1 (before: none)\n"
    uid = f"uid:{churn.get('churn/north:2').uid}"
    assert alias(uid, "champion") == "churn/north@champion: version 2 (before: 1)\n"
    assert alias("churn/*", "champion") == "churn/north@champion: version 2 (before: 2)\n"
    done = run_headrace("models", "alias", "churn/north", "champion", "--remove", "--json")
    assert json.loads(done.stdout)["changes"] == [
        {"name": "churn/north", "alias": "champion", "from": 2, "to": None}
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--where", "mas < 1"], 'no version has a metric "mas"; there are: coverage_80, mase'),
        (["--where", "param.dept = 4"], 'no version has a param "dept"; there are: depth'),
        (["--where", "tag.team = 'x'"], 'no version has a tag "team"; there are none'),
        (["--where", "mase < 1 or mas < 1"], 'no version has a metric "mas"'),
        (["--sort", "mas"], 'no version has a metric "mas"'),
        (["--metrics", "mas"], 'no version has a metric "mas"'),
    ],
)
def test_names_that_no_version_has_are_told(
    churn: registry.Registry, run_headrace, words: list[str], told: str
) -> None:
    assert told in run_headrace("models", "list", *words).stderr
    assert "no version has" not in run_headrace("models", "list", "--where", "mase < 0.1").stderr


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"


def test_a_select_that_takes_too_long_ends(churn: registry.Registry, run_headrace) -> None:
    begin = time.monotonic()
    done = run_headrace("models", "sql", ENDLESS, "--timeout", "0.3")
    assert done.returncode == 1
    assert "ran for 0.3 s" in done.stderr
    assert "--timeout" in done.stderr
    assert time.monotonic() - begin < 20
    for value in ("-1", "nan", "inf", "2e9"):
        done = run_headrace("models", "sql", "SELECT 1", "--timeout", value)
        assert done.returncode == 2
        assert f'--timeout takes a number from 0 to 1000000000, not "{value}"' in done.stderr


def test_an_interrupt_ends_a_select(
    churn: registry.Registry, headrace_binary: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "HEADRACE_REGISTRY": str(tmp_path / "registry")}
    words = [headrace_binary, "models", "sql", ENDLESS, "--timeout", "0"]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE) as process:
        try:
            stat = Path(f"/proc/{process.pid}/stat")
            deadline = time.monotonic() + 60  # it counts once it has used some processor time
            while int(stat.read_text().split()[13]) < 5:
                assert time.monotonic() < deadline, "it never began to count"
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()


# Each is one row, and but for the first one step of SQLite's machine: it cannot be asked to stop.
ONE_ROW = [
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
    "SELECT instr(hex(zeroblob(2000000)), hex(zeroblob(1000000)) || '1')",
    "SELECT replace(hex(zeroblob(2000000)), hex(zeroblob(1000000)) || '1', '')",
    "SELECT hex(zeroblob(2000000)) GLOB '*' || hex(zeroblob(20000)) || '1*'",
]


@pytest.mark.parametrize("query", ONE_ROW, ids=["machine", "instr", "replace", "glob"])
@pytest.mark.parametrize("json_words", [[], ["--json"]], ids=["text", "json"])
def test_a_query_ends_in_time_within_one_row_too(
    churn, run_headrace, query: str, json_words: list[str]
) -> None:
    began = time.monotonic()
    done = run_headrace("models", "sql", query, "--timeout", "0.5", *json_words, timeout=30)
    assert time.monotonic() - began < 5
    assert done.returncode == 1
    told = json.loads(done.stdout)["error"] if json_words else {"message": done.stderr}
    assert "0.5 s" in told["message"], told
    assert told.get("code", "timeout") == "timeout"


@pytest.mark.parametrize("query", ONE_ROW, ids=["machine", "instr", "replace", "glob"])
def test_ctrl_c_ends_a_query_within_one_row_too(
    churn, headrace_binary: Path, tmp_path: Path, query: str
) -> None:
    env = {**os.environ, "HEADRACE_REGISTRY": str(tmp_path / "registry")}
    process = subprocess.Popen([headrace_binary, "models", "sql", query], env=env)
    STARTED.append(process)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1.0)  # it is in the query by then: it has nothing else to do
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 130
