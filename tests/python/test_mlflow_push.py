# SPDX-License-Identifier: Apache-2.0
"""What `headrace models push` decides, with a mirror that only remembers: no MLflow is needed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headrace import InvalidArgument, _mlflow_push, registry

OPTIONS = argparse.Namespace(items="bundle", follow=False, settle=60.0, give_up=7 * 86400.0, run="")


class Memory:
    """Stands in for an MLflow server: what was pushed, by uid."""

    def __init__(self) -> None:
        self.pushed: list[_mlflow_push.Unit] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.error: Exception | None = None

    def push(self, r: registry.Registry, unit: _mlflow_push.Unit) -> dict[str, object]:
        if self.error is not None:
            raise self.error
        self.pushed.append(unit)
        self.meanwhile()
        return {"name": unit.name, "version": len(self.pushed), "run_id": "x"}

    def is_unreachable(self, error: Exception) -> bool:
        return isinstance(error, ConnectionError)

    def take_notes(self) -> list[str]:
        return []


@pytest.fixture
def r(tmp_path: Path) -> registry.Registry:
    return registry.open(tmp_path / "registry")


@pytest.fixture
def mirror() -> Memory:
    return Memory()


def add(r: registry.Registry, name: str, **details: object) -> registry.Version:
    version = r.add(name, {"w": np.zeros(4, "f4")}, kind="deepar", **details)
    r.request_push(name, "mlflow")
    return version


def add_item(r: registry.Registry, item: str) -> registry.Version:
    return add(r, f"m4/{item}", run="run-1", item=item)


def options(**other: object) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(OPTIONS), **other})


def states(r: registry.Registry) -> list[tuple[str, int]]:
    rows = r.pushes("mlflow", unfinished_only=False)
    return [(row["state"], row["tries"]) for row in rows]


def test_a_pass_with_nothing_new_pushes_nothing(r, mirror) -> None:
    add_item(r, "H1")
    add(r, "alone")
    assert _mlflow_push.drain(r, mirror, OPTIONS).left == 0
    assert len(mirror.pushed) == 2
    report = _mlflow_push.drain(r, mirror, OPTIONS)
    assert (report.pushed, report.left) == ([], 0)
    assert len(mirror.pushed) == 2


def test_all_items_of_a_pushed_set_are_recorded_also_those_not_due(r, mirror) -> None:
    add_item(r, "H1")
    [row] = r.pushes("mlflow")
    r.record_push({**row, "tries": 3, "next_us": int((time.time() + 3600) * 1e6)})
    add_item(r, "H2")
    report = _mlflow_push.drain(r, mirror, OPTIONS)
    assert report.left == 0
    assert [v.name for v in mirror.pushed[0].versions] == ["m4/H1", "m4/H2"]
    assert states(r) == [("done", 4), ("done", 1)]


def test_an_item_that_comes_during_a_push_waits_for_the_next_pass(r, mirror) -> None:
    add_item(r, "H1")
    mirror.meanwhile = lambda: add_item(r, "H2")
    report = _mlflow_push.drain(r, mirror, OPTIONS)
    assert report.left == 1
    mirror.meanwhile = lambda: None
    assert _mlflow_push.drain(r, mirror, OPTIONS).left == 0
    assert [len(unit.versions) for unit in mirror.pushed] == [1, 2]


def test_a_push_whose_record_was_lost_has_the_same_uid_again(r, mirror) -> None:
    add_item(r, "H1")
    add_item(r, "H2")
    rows = r.pushes("mlflow")
    _mlflow_push.drain(r, mirror, OPTIONS)
    for row in rows:
        r.record_push(row)
    _mlflow_push.drain(r, mirror, OPTIONS)
    first, second = mirror.pushed
    assert first.uid == second.uid


def test_only_items_of_the_run_make_its_set(r, mirror) -> None:
    add_item(r, "H1")
    add(r, "m4/start", run="run-1")
    add(r, "m4/H2", run="run-2", item="H2")
    _mlflow_push.drain(r, mirror, OPTIONS)
    sets = sorted((unit.name, [v.name for v in unit.versions]) for unit in mirror.pushed)
    assert sets == [("m4", ["m4/H1"]), ("m4", ["m4/H2"]), ("m4/start", ["m4/start"])]


def test_following_holds_a_run_back_until_it_is_quiet(r, mirror) -> None:
    add_item(r, "H1")
    add(r, "alone")
    report = _mlflow_push.drain(r, mirror, options(follow=True, settle=3600.0))
    assert [unit.name for unit in mirror.pushed] == ["alone"]
    assert (report.left, report.settling) == (1, 1)
    report = _mlflow_push.drain(r, mirror, options(follow=True, settle=0.0))
    assert [unit.name for unit in mirror.pushed] == ["alone", "m4"]
    assert (report.left, report.settling) == (0, 0)


@pytest.mark.parametrize(
    ("created_s", "settled"),
    [
        ([940.0], True),  # 60 s ago
        ([941.0], False),
        ([900.0, 999.0], False),
        ([900.0, 940.0], True),
        # Something every second, for an hour and for a second less.
        ([float(t) for t in range(-2600, 1000)], True),
        ([float(t) for t in range(-2599, 1000)], False),
    ],
)
def test_a_run_is_settled_when_quiet_or_waiting_for_long(
    created_s: list[float], settled: bool
) -> None:
    assert _mlflow_push.is_settled(created_s, 1000.0, 60.0) is settled


def test_a_push_is_given_up_after_so_many_tries(r, mirror) -> None:
    version = add(r, "m")
    mirror.error = RuntimeError("the model is refused")
    tries: list[tuple[str, int]] = []
    while not tries or tries[-1][0] == "waiting":
        report = _mlflow_push.drain(r, mirror, options(give_up=1800.0))
        assert report.errors == ["m: RuntimeError: the model is refused"]
        [row] = r.pushes("mlflow")
        tries.append((row["state"], row["tries"]))
        r.record_push({**row, "next_us": 0})  # do not wait for the pause
    # A try stands for the longest pause, ten minutes: 3 of them are 1800 s, the 4th is past it.
    assert tries == [("waiting", 1), ("waiting", 2), ("waiting", 3), ("failed", 4)]
    assert row["error"] == "RuntimeError: the model is refused"

    mirror.error = None
    report = _mlflow_push.drain(r, mirror, options(give_up=1800.0))
    assert (report.pushed, report.left) == ([], 1)  # given up: it does not come by itself
    assert r.request_push("m", "mlflow") == 1
    assert _mlflow_push.drain(r, mirror, options(give_up=1800.0)).left == 0
    assert [unit.uid for unit in mirror.pushed] == [version.uid]


def test_pauses_double_up_to_ten_minutes(r, mirror) -> None:
    add(r, "m")
    mirror.error = RuntimeError("busy")
    pauses: list[float] = []
    for _ in range(9):
        before = time.time()
        _mlflow_push.drain(r, mirror, OPTIONS)
        after = time.time()
        [row] = r.pushes("mlflow")
        pause = row["next_us"] / 1e6 - before
        pauses.append(round(pause - (after - before) / 2, -1))
        r.record_push({**row, "next_us": 0})
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_an_unreachable_server_counts_one_try_and_ends_the_pass(r, mirror) -> None:
    add(r, "a")
    add(r, "b")
    mirror.error = ConnectionError("refused")
    report = _mlflow_push.drain(r, mirror, OPTIONS)
    assert report.errors == ["a: ConnectionError: refused"]
    assert report.left == 2
    assert states(r) == [("waiting", 1), ("waiting", 0)]


def test_what_is_not_due_is_not_looked_up(r, mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    for item in ("H1", "H2", "H3"):
        add_item(r, item)
    add(r, "alone")
    mirror.error = ValueError("refused")
    _mlflow_push.drain(r, mirror, OPTIONS)  # from here on all of them wait for their next try
    asked: list[str] = []
    for name in ("get", "list"):
        method = getattr(registry.Registry, name)

        def count(*words: object, _method=method, **more: object) -> object:
            asked.append(str(words[1]))
            return _method(*words, **more)

        monkeypatch.setattr(registry.Registry, name, count)
    assert _mlflow_push.drain(r, mirror, OPTIONS).left == 4
    assert asked == []

    mirror.error = None
    new = add_item(r, "H4")
    other = r.add("m4/H5", {"w": np.zeros(4, "f4")}, kind="deepar", run="run-2", item="H5")
    assert _mlflow_push.drain(r, mirror, OPTIONS).left == 1  # "alone"
    assert asked == [f"uid:{new.uid}", "m4/*"]
    [unit] = mirror.pushed
    assert other.uid not in {version.uid for version in unit.versions}
    assert len(unit.others) == 3


def test_an_alias_that_changes_during_a_push_is_pushed_by_the_next(r, mirror) -> None:
    version = add(r, "m")
    mirror.meanwhile = lambda: r.alias("m:1", "champion")
    assert _mlflow_push.drain(r, mirror, OPTIONS).left == 1
    mirror.meanwhile = lambda: None
    assert _mlflow_push.drain(r, mirror, OPTIONS).left == 0
    assert [unit.versions[0].aliases for unit in mirror.pushed] == [(), ("champion",)]
    assert mirror.pushed[1].uid == version.uid


def test_a_deleted_version_is_pushed_once_more_for_its_aliases(r, mirror) -> None:
    add(r, "m")
    r.alias("m:1", "champion")
    _mlflow_push.drain(r, mirror, OPTIONS)
    r.delete("m:1", force=True)
    assert _mlflow_push.drain(r, mirror, OPTIONS).left == 0
    gone = mirror.pushed[1]
    assert (gone.name, gone.versions, gone.gone["version"]) == ("m", [], 1)


def test_a_run_alone_is_pushed(r, mirror) -> None:
    add_item(r, "H1")
    add(r, "other", run="run-2")
    report = _mlflow_push.drain(r, mirror, options(run="run-1"))
    assert report.left == 0
    assert [unit.name for unit in mirror.pushed] == ["m4"]
    assert len(r.pushes("mlflow")) == 1


def test_a_run_of_mlflow_per_item_is_for_so_many_items(
    r, mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_mlflow_push, "ITEM_RUNS_MAX", 2)
    add_item(r, "H1")
    add_item(r, "H2")
    assert _mlflow_push.drain(r, mirror, options(items="runs")).left == 0
    add_item(r, "H3")
    with pytest.raises(InvalidArgument, match=r"run-1 has 3 items.* 2 at most.*--items bundle"):
        _mlflow_push.drain(r, mirror, options(items="runs"))
