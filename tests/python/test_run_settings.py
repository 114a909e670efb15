# SPDX-License-Identifier: Apache-2.0
"""Settings of the engine: flags, configuration file, `--print-env`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conftest import Run


def printed(run_headrace: Run, *words: str) -> dict[str, str]:
    done = run_headrace("run", "--print-env", *words)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_only_flags_that_are_given_appear(run_headrace: Run) -> None:
    assert printed(run_headrace) == {}
    assert printed(run_headrace, "-np", "2", "--fusion-threshold-mb", "32", "python", "x.py") == {
        "HOROVOD_FUSION_THRESHOLD": "33554432"
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--cycle-time-ms", "20"], {"HOROVOD_CYCLE_TIME": "20.0"}),
        (["--cache-capacity", "512"], {"HOROVOD_CACHE_CAPACITY": "512"}),
        (["--hierarchical-allreduce"], {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}),
        (["--no-hierarchical-allgather"], {"HOROVOD_HIERARCHICAL_ALLGATHER": "0"}),
        (
            ["--autotune", "--autotune-log-file", "l.txt", "--autotune-warmup-samples", "5"],
            {
                "HOROVOD_AUTOTUNE": "1",
                "HOROVOD_AUTOTUNE_LOG": "l.txt",
                "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "5",
            },
        ),
        (["--autotune-log-file", "l.txt"], {}),
        (
            ["--timeline-filename", "t.json", "--timeline-mark-cycles"],
            {"HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_MARK_CYCLES": "1"},
        ),
        (["--timeline-mark-cycles"], {}),
        (["--no-stall-check"], {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
        (
            ["--stall-check-warning-time-seconds", "10"],
            {"HOROVOD_STALL_CHECK_TIME_SECONDS": "10"},
        ),
        (["--thread-affinity", "0"], {"HOROVOD_THREAD_AFFINITY": "0"}),
        (["--gloo-timeout-seconds", "60"], {"HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}),
        (["--log-level", "DEBUG"], {"HOROVOD_LOG_LEVEL": "DEBUG"}),
        (["--log-without-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "1"}),
        (["--log-hide-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "1"}),
        (["--log-with-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "0"}),
    ],
)
def test_each_flag_has_its_variable(
    run_headrace: Run, words: list[str], expected: dict[str, str]
) -> None:
    assert printed(run_headrace, *words) == expected


def test_a_flag_wins_over_the_configuration_file(run_headrace: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "params:\n  fusion_threshold_mb: 64\n  cycle_time_ms: 5\n"
        "stall_check:\n  enabled: False\nlogging:\n  level: INFO\n"
    )
    assert printed(
        run_headrace, "--cycle-time-ms", "7", "--config-file", str(config), "--stall-check"
    ) == {
        "HOROVOD_FUSION_THRESHOLD": "67108864",
        "HOROVOD_CYCLE_TIME": "7.0",
        "HOROVOD_STALL_CHECK_DISABLE": "0",
        "HOROVOD_LOG_LEVEL": "INFO",
    }
    as_json = run_headrace("run", "--print-env", "--json", "--config-file", str(config))
    assert json.loads(as_json.stdout)["HOROVOD_CYCLE_TIME"] == "5.0"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--fusion-threshold-mb", "-1"], "--fusion-threshold-mb takes"),
        (["--cycle-time-ms", "-1"], "--cycle-time-ms takes"),
        (["--cache-capacity", "-1"], "--cache-capacity takes"),
        (["--autotune", "--autotune-gaussian-process-noise", "2"], "from 0 to 1"),
        (["--config-file", "no-such-file"], "no-such-file"),
        (["--log-level", "LOUD"], "one of TRACE"),
    ],
)
def test_a_refused_value_is_an_error(run_headrace: Run, words: list[str], text: str) -> None:
    done = run_headrace("run", "--print-env", *words)
    assert done.returncode != 0
    assert done.stdout == ""
    assert text in done.stderr


def test_the_ranks_have_the_settings(run_headrace: Run) -> None:
    done = run_headrace(
        "run", "-np", "1", "--cycle-time-ms", "3", "--start-timeout", "77",
        "sh", "-c", "echo $HOROVOD_CYCLE_TIME $HEADRACE_START_TIMEOUT",
    )  # fmt: skip
    assert done.stdout == "[0]<stdout>:3.0 77\n"


def test_the_start_timeout_of_the_environment_counts(run_headrace: Run) -> None:
    echo = ["sh", "-c", "echo $HOROVOD_START_TIMEOUT"]
    done = run_headrace("run", "-np", "1", *echo, env={"HOROVOD_START_TIMEOUT": "55"})
    assert done.stdout == "[0]<stdout>:55\n"
    done = run_headrace(
        "run", "-np", "1", "--start-timeout", "5", *echo, env={"HOROVOD_START_TIMEOUT": "55"}
    )
    assert done.stdout == "[0]<stdout>:5\n"
    assert "HOROVOD_START_TIMEOUT=55 is not" in done.stderr


@pytest.mark.parametrize("value", ["-5", "nan", "inf"])
def test_the_environment_is_as_strict_as_the_flags(run_headrace: Run, value: str) -> None:
    done = run_headrace(
        "run", "-np", "1", sys.executable, "-c", "import headrace; headrace.init()",
        env={"HOROVOD_CYCLE_TIME": value},
    )  # fmt: skip
    assert done.returncode == 1
    assert f"HOROVOD_CYCLE_TIME) is '{value}'; it takes a number of at least 0" in done.stderr
