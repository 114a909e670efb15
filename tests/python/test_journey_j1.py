# SPDX-License-Identifier: Apache-2.0
"""The main journey: a lake of series, one model each, registered, judged, reported, resumable.

The example's own pipeline runs on six series, one of them without a single value, at a small
budget.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.parquet as pq  # noqa: E402

from test_report_backtest import SPOKEN  # noqa: E402

pytestmark = pytest.mark.slow

GOOD = ["H1", "H10", "H100", "H101", "H102"]
EMPTY = "empty"
START = datetime.datetime(2015, 7, 1)


@pytest.fixture(scope="session")
def pipeline(source_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's pipeline beside a lake of six series, with a budget for a test."""
    folder = tmp_path_factory.mktemp("journey")
    example = source_root / "examples" / "m4_hourly"
    lake = pq.read_table(example / "lake", filters=[("item_id", "in", GOOD)])
    hours = [START + datetime.timedelta(hours=hour) for hour in range(300)]
    nothing = pa.table([[EMPTY] * 300, hours, [None] * 300], schema=lake.schema)
    (folder / "lake").mkdir()
    pq.write_table(pa.concat_tables([lake, nothing]), folder / "lake" / "part-0.parquet")
    shutil.copy(example / "test.parquet", folder / "test.parquet")
    document = json.loads((example / "pipeline.json").read_text())

    def shrink(node: object) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("train"), dict):
                node["train"] |= {"epochs": 2, "batches_per_epoch": 10}
                node["train"].pop("patience", None)
            node.pop("policy", None)  # no second try for the series without a value
            for value in node.values():
                shrink(value)
        elif isinstance(node, list):
            for value in node:
                shrink(value)

    shrink(document)
    path = folder / "pipeline.json"
    path.write_text(json.dumps(document, indent=1))
    return path


class Journey:
    """The command line on one pipeline, with a registry and a run folder of its own."""

    def __init__(self, binary: Path, pipeline: Path, folder: Path) -> None:
        self.binary, self.pipeline = binary, pipeline
        self.run = folder / "run"
        self.environment = {**os.environ, "HEADRACE_REGISTRY": str(folder / "registry")}

    def start_words(self) -> list[str]:
        return ["flow", "run", str(self.pipeline), "--dir", str(self.run), "-p", "members=1"]

    def call(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [self.binary, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def states(self) -> list[dict]:
        """The items of TrainEach; none while the run has not come so far."""
        done = subprocess.run(
            [self.binary, "flow", "status", str(self.run), "--items", "--json"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            return []  # the journal is not there yet
        activities = json.loads(done.stdout)["activities"]
        found = (one.get("item_list", []) for one in activities if one["path"] == "TrainEach")
        return next(found, [])

    def models(self) -> list[str]:
        """Names of the items' registered versions, one entry per version."""
        listed = json.loads(self.call("models", "list", "--json"))
        assert not listed["more"]
        names = (version["name"] for version in listed["versions"])
        return [name for name in names if "-global/" not in name]


@pytest.fixture
def journey(headrace_binary: Path, pipeline: Path, tmp_path: Path) -> Journey:
    return Journey(headrace_binary, pipeline, tmp_path)


def check_end(journey: Journey) -> None:
    """What is there once the run has come to its end, however it got there."""
    items = {item["key"]: item["status"] for item in journey.states()}
    assert items == {**dict.fromkeys(GOOD, "Succeeded"), EMPTY: "Failed"}
    models = journey.models()
    assert Counter(name.rpartition("/")[2] for name in models) == Counter(GOOD), models
    forecasts = pq.read_table(journey.run / "forecasts.parquet")
    assert Counter(forecasts["item_id"].to_pylist()) == Counter(dict.fromkeys(GOOD, 48))
    assert forecasts["q0.5"].null_count == 0
    report = journey.call("flow", "report", str(journey.run))
    assert "report.html" in report
    data = data_of(journey.run / "report.html")
    by_key = {item["key"]: item for item in data["items"] if item["activity"] == "TrainEach"}
    assert set(by_key) == {*GOOD, EMPTY}
    assert EMPTY in by_key[EMPTY]["error"]["message"]
    for key in GOOD:
        assert len(by_key[key]["plot"]["median"]) == len(by_key[key]["plot"]["actual"]) == 48
        assert [band["percent"] for band in by_key[key]["plot"]["bands"]] == [95, 80, 50]
        assert by_key[key]["labels"][0] in SPOKEN.values()


def data_of(report: Path) -> dict:
    found = re.search(r'id="data">(.*?)</script>', report.read_text(), re.S)
    assert found
    return json.loads(found[1])


def test_one_command_trains_registers_judges_and_reports(journey: Journey):
    # Evaluate waits for Completed; a failed item fails the run at its last leaf, afterwards.
    out = journey.call(*journey.start_words(), codes=(1,))

    assert "seasonal naive" in out
    assert "1 failed" in out
    check_end(journey)


def test_a_killed_run_goes_on_without_training_a_series_twice(journey: Journey):
    run = subprocess.Popen(
        [journey.binary, *journey.start_words()],
        env=journey.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    done: dict[str, str] = {}
    try:
        while run.poll() is None and time.monotonic() < deadline and not done:
            done = succeeded(journey)
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGKILL)
        run.wait(timeout=30)
    # The loop above may have seen the last item end; then this would test nothing.
    assert run.returncode == -signal.SIGKILL
    done = succeeded(journey)
    assert done

    journey.call("flow", "resume", str(journey.run), codes=(1,))

    check_end(journey)
    after = succeeded(journey)
    assert {key: after[key] for key in done} == done


def succeeded(journey: Journey) -> dict[str, str]:
    """Items that ended well, and when they were started: the stamp changes if one runs again."""
    return {
        item["key"]: item["started"] for item in journey.states() if item["status"] == "Succeeded"
    }
