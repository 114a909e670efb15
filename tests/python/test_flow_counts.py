# SPDX-License-Identifier: Apache-2.0
"""Items of a run are counted once, whoever shows them: list, status, the line of progress."""

from __future__ import annotations

import json
import re
from pathlib import Path

from conftest import Run
from test_flow_cli import start, wait_for
from test_flow_findings import activity, custom, document


def each(name: str, command: str, count: int, **properties: object) -> dict[str, object]:
    inner = {**custom(command), "name": f"{name}-inner"}
    items = {"items": f"@range(0, {count})", "activities": [inner], **properties}
    return {**activity("ForEach", items), "name": name}


def test_list_counts_the_items_of_a_cancelled_run_as_status_does(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    whole = document(each("a", "sleep 600", 6, batchCount=2))
    (tmp_path / "p.json").write_text(json.dumps(whole))
    engine = start(headrace_binary, tmp_path, "run", "p.json", "--dir", "runs/r", "--slots", "2")
    wait_for(lambda: (tmp_path / "runs/r/workers/1.log").exists())
    assert run_headrace("flow", "cancel", "r", cwd=tmp_path).returncode == 0
    engine.communicate(timeout=30)

    expected = {"total": 6, "ended": 6, "failed": 0, "cancelled": 6, "skipped": 0}
    for source in ("summary", "journal"):
        listed = run_headrace("flow", "list", "--json", cwd=tmp_path)
        assert json.loads(listed.stdout)["runs"][0]["items"] == expected, source
        (tmp_path / "runs/r/summary.json").unlink(missing_ok=True)
    header, row = run_headrace("flow", "list", cwd=tmp_path).stdout.splitlines()
    assert header.split()[3:7] == ["items", "failed", "cancelled", "skipped"]
    assert row.split()[3:7] == ["6/6", "0", "6", "0"]


def test_a_summary_of_older_counting_gives_way_to_the_journal(
    run_headrace: Run, tmp_path: Path
) -> None:
    (tmp_path / "p.json").write_text(json.dumps(document(each("a", "true", 3))))
    assert run_headrace("flow", "run", "p.json", "--dir", "runs/r", cwd=tmp_path).returncode == 0
    path = tmp_path / "runs/r/summary.json"
    kept = json.loads(path.read_text())
    kept.pop("items_succeeded", None)
    path.write_text(json.dumps(kept | {"items_failed": -2}))

    listed = run_headrace("flow", "list", "--json", cwd=tmp_path)

    assert json.loads(listed.stdout)["runs"][0]["items"]["failed"] == 0


def test_two_loops_side_by_side_have_a_line_of_progress_each(
    run_headrace: Run, tmp_path: Path
) -> None:
    long = each("A", "sleep 0.2; test $HEADRACE_ITEM != 0", 8, batchCount=4)
    short = each("B", "sleep 0.3", 3, batchCount=3)
    (tmp_path / "p.json").write_text(json.dumps(document(long, short)))

    done = run_headrace("flow", "run", "p.json", "--slots", "4", cwd=tmp_path)

    shown = re.findall(r"^([AB]): (\d+)/(\d+)(.*)$", done.stderr, re.M)
    assert {name for name, *_ in shown} == {"A", "B"}, done.stderr
    for name, ended, total, rest in shown:
        assert int(total) == {"A": 8, "B": 3}[name]
        assert int(ended) <= int(total), done.stderr
        assert not (name == "B" and "1 failed" in rest), done.stderr
    assert ("A", "8", "8") in {one[:3] for one in shown}, done.stderr
    assert ("B", "3", "3") in {one[:3] for one in shown}, done.stderr


def test_cancel_says_what_it_did(headrace_binary: Path, run_headrace: Run, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(document(each("a", "sleep 600", 2))))
    engine = start(headrace_binary, tmp_path, "run", "p.json", "--dir", "runs/r", "--slots", "2")
    wait_for(lambda: (tmp_path / "runs/r/workers/1.log").exists())
    item = run_headrace("flow", "cancel", "r", "--item", "1", cwd=tmp_path)
    assert item.stdout == "item 1 of run r is cancelled\n", item.stderr
    whole = run_headrace("flow", "cancel", "r", cwd=tmp_path)
    engine.communicate(timeout=30)
    assert whole.stdout == "run r is cancelled\n", whole.stderr


def test_a_report_is_not_written_over_what_it_is_made_of(run_headrace: Run, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(document(each("a", "true", 2))))
    assert run_headrace("flow", "run", "p.json", "--dir", "run", cwd=tmp_path).returncode == 0
    journal = tmp_path / "run/journal"
    (tmp_path / "link.html").hardlink_to(journal)
    (tmp_path / "soft.html").symlink_to(journal)
    before = journal.read_bytes()
    kept = next(path for path in (tmp_path / "run").iterdir() if path.suffix == ".json")
    for out in ("run/journal", "run/../run/journal", "link.html", "soft.html", f"run/{kept.name}"):
        done = run_headrace("flow", "report", "run", "--out", out, cwd=tmp_path)
        assert done.returncode == 2, (out, done.stdout, done.stderr)
        assert out in done.stderr
        assert journal.read_bytes() == before
    for out in ("run/report.html", "run/other.html", "r.html"):
        done = run_headrace("flow", "report", "run", "--out", out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
