# SPDX-License-Identifier: Apache-2.0
"""What `headrace flow validate` finds: misspelt names, values that cannot be, unreadable files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Run


def document(*activities: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "p", "properties": {"activities": list(activities), **more}}


def activity(type_: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "a", "type": type_, "typeProperties": properties or {}, **more}


def custom(command: str = "true", **more: Any) -> dict[str, Any]:
    return activity("Custom", {"command": command}, **more)


def loop(**properties: Any) -> dict[str, Any]:
    inner = {**custom(), "name": "inner"}
    return activity("ForEach", {"items": "@createArray(1)", "activities": [inner], **properties})


def findings(run_headrace: Run, tmp_path: Path, what: Any) -> list[dict[str, Any]]:
    path = tmp_path / "p.json"
    path.write_text(what if isinstance(what, str) else json.dumps(what))
    done = run_headrace("flow", "validate", "p.json", "--json", cwd=tmp_path)
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    assert done.returncode == (2 if any(one["severity"] == "error" for one in found) else 0)
    return found


MISSPELT = [
    (document(custom(dependson=[])), "dependsOn"),
    (document(custom(polciy={})), "policy"),
    (document(custom(policy={"timout": "0.00:01:00"})), "timeout"),
    (document(custom(policy={"retyr": 1})), "retry"),
    (document(custom(), activites=[]), "activities"),
    (document(loop(isSequentail=True)), "isSequential"),
    (document(loop(failureBudget={"cuont": 1})), "count"),
    (
        document(
            activity(
                "Until",
                {
                    "expression": "@bool(1)",
                    "timout": "0:01:00",
                    "activities": [{**custom(), "name": "inner"}],
                },
            )
        ),
        "timeout",
    ),
    (document(activity("Custom", {"command": "true", "folderpath": "x"})), "folderPath"),
    (
        document(
            custom(),
            {
                **custom(),
                "name": "b",
                "dependsOn": [{"activity": "a", "dependencyCondition": ["Failed"]}],
            },
        ),
        "dependencyConditions",
    ),
    (document(custom(state="Inactiv")), "Inactive"),
    (document(custom(), parameters={"x": {"type": "Int", "defaultvalue": 1}}), "defaultValue"),
    (
        document(activity("IfCondition", {"expression": "@bool(1)", "ifTrueActivites": []})),
        "ifTrueActivities",
    ),
]


@pytest.mark.parametrize(("what", "meant"), MISSPELT, ids=[meant for _, meant in MISSPELT])
def test_a_misspelt_property_is_an_error(
    run_headrace: Run, tmp_path: Path, what: Any, meant: str
) -> None:
    errors = [one for one in findings(run_headrace, tmp_path, what) if one["severity"] == "error"]

    assert [one["code"] for one in errors] == ["E-PROPERTY"]
    assert f"did you mean '{meant}'?" in errors[0]["message"]
    assert errors[0]["where"].startswith("p.json:1:")


@pytest.mark.parametrize(
    ("what", "code", "name"),
    [
        (document(activity("Wait", {"waitTimeInSeconds": 0, "xx": 2})), "W-PROPERTY", "xx"),
        (document(custom(policy={"retires": 2})), "W-PROPERTY", "retires"),
        (document(custom(), concurrency=1), "W-IGNORED", "concurrency"),
        (
            document(custom(), policy={"elapsedTimeMetric": {"duration": "0.00:10:00"}}),
            "W-IGNORED",
            "elapsedTimeMetric",
        ),
        (
            document({**loop(), "policy": {"timeout": "0.00:01:00"}}),
            "W-IGNORED",
            "policy.timeout",
        ),
    ],
)
def test_what_is_not_acted_upon_is_a_warning_also_when_it_runs(
    run_headrace: Run, tmp_path: Path, what: Any, code: str, name: str
) -> None:
    found = findings(run_headrace, tmp_path, what)

    assert [one["code"] for one in found] == [code]
    assert name in found[0]["message"]
    done = run_headrace("flow", "run", "p.json", cwd=tmp_path)
    assert done.returncode == 0
    assert code in done.stderr and name in done.stderr


def test_what_data_factory_writes_for_its_editor_is_fine(run_headrace: Run, tmp_path: Path) -> None:
    whole = document(
        custom(description="d", userProperties=[], inputs=[], outputs=[], state="active"),
        description="d",
        annotations=[],
        folder={"name": "f"},
        lastPublishTime="2024-01-01T00:00:00Z",
        parameters={"x": {"type": "String", "defaultValue": "y"}},
    )
    whole |= {"type": "Microsoft.DataFactory/factories/pipelines", "etag": "e", "id": "/x"}

    assert findings(run_headrace, tmp_path, whole) == []


def test_no_json_has_a_code_and_a_place(run_headrace: Run, tmp_path: Path) -> None:
    found = findings(run_headrace, tmp_path, '{\n "name": "p" "properties": {}}')

    assert found[0]["code"] == "E-SYNTAX"
    assert found[0]["where"] == "p.json:2:14"
    done = run_headrace("flow", "validate", "p.json", cwd=tmp_path)
    assert done.stdout.startswith("p.json:2:14: E-SYNTAX: ")

    done = run_headrace("flow", "validate", "none.json", cwd=tmp_path)
    assert done.stdout.startswith("none.json: E-FILE: ")


@pytest.mark.parametrize(
    ("what", "codes", "part"),
    [
        (document(custom("@concat('a'")), ["E-EXPRESSION"], "never closed"),
        (document(custom("@string(add('a', 1))")), ["E-EXPRESSION"], "function 'add'"),
        (document(custom("@pipeline().Zz")), ["E-EXPRESSION"], "pipeline() has no 'Zz'"),
        (document({**custom(), "name": "-a"}), ["W-LIMIT"], "a digit or _ first"),
        (
            document(custom(policy={"retry": 1, "retryIntervalInSeconds": 90000})),
            ["W-POLICY"],
            "86400",
        ),
        (
            document(
                custom(),
                {
                    **custom(),
                    "name": "b",
                    "dependsOn": [{"activity": "a", "dependencyConditions": ["Skipped"]}],
                },
            ),
            ["W-DEPENDENCY"],
            "never happens",
        ),
        (document(loop(items="[1, 2]")), ["W-PROPERTY"], "@createArray"),
        (document(loop(items="a")), ["E-PROPERTY"], "must be an array"),
        (
            document(activity("Custom", {"command": "true", "folderPath": "none"})),
            ["E-PROPERTY"],
            "is not there",
        ),
    ],
)
def test_values_that_cannot_be_are_found_once(
    run_headrace: Run, tmp_path: Path, what: Any, codes: list[str], part: str
) -> None:
    found = findings(run_headrace, tmp_path, what)

    assert [one["code"] for one in found] == codes
    assert part in found[0]["message"]


@pytest.mark.parametrize(
    "command",
    ["@if(false, string(add('a', 1)), 'true')", "@coalesce('true', pipeline()?.Zz)"],
)
def test_what_is_never_evaluated_is_no_error(
    run_headrace: Run, tmp_path: Path, command: str
) -> None:
    assert findings(run_headrace, tmp_path, document(custom(command))) == []


def test_skipped_of_a_chain_can_happen(run_headrace: Run, tmp_path: Path) -> None:
    chain = [
        custom(),
        {
            **custom(),
            "name": "b",
            "dependsOn": [{"activity": "a", "dependencyConditions": ["Succeeded"]}],
        },
        {
            **custom(),
            "name": "c",
            "dependsOn": [{"activity": "b", "dependencyConditions": ["Skipped"]}],
        },
    ]
    assert findings(run_headrace, tmp_path, document(*chain)) == []


def test_a_fabric_item_is_named_by_its_folder(run_headrace: Run, tmp_path: Path) -> None:
    folder = tmp_path / "daily.DataPipeline"
    folder.mkdir()
    (folder / "pipeline-content.json").write_text(
        json.dumps({"properties": {"activities": [custom("echo hi")]}})
    )
    (folder / ".platform").write_text("{}")
    (folder / "other.json").write_text("{}")

    done = run_headrace("flow", "run", "daily.DataPipeline", "--dir", "run", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "of daily:" in run_headrace("flow", "status", "run", cwd=tmp_path).stdout


def test_types_for_tests_are_not_offered(run_headrace: Run, tmp_path: Path) -> None:
    found = findings(run_headrace, tmp_path, document(activity("NoOpp")))

    assert found[0]["code"] == "E-ACTIVITY-TYPE"
    assert "NoOp'" not in found[0]["message"].replace("'NoOpp'", "")


@pytest.mark.parametrize(
    "what",
    [
        document(activity("IfCondition", {"expresion": "@bool(1)"})),
        document(activity("Custom", {"comand": "true"})),
    ],
)
def test_a_misspelt_name_that_must_be_there_is_one_finding(
    run_headrace: Run, tmp_path: Path, what: Any
) -> None:
    found = findings(run_headrace, tmp_path, what)

    assert [one["code"] for one in found] == ["E-PROPERTY"]
    assert "did you mean '" in found[0]["message"]


@pytest.mark.parametrize(
    ("what", "meant"),
    [
        (document(custom(policies={"retry": 1})), "policy"),
        (document(custom(policy={"retires": 3})), "retry"),
        (document(custom(policy={"retries": 3})), "retry"),
        (document(custom(policy={"time": "0.00:01:00"})), "timeout"),
        (document(custom(depends=[])), "dependsOn"),
        (document(custom(), params={}), "parameters"),
    ],
)
def test_an_unknown_property_is_answered_with_what_may_be_meant(
    run_headrace: Run, tmp_path: Path, what: Any, meant: str
) -> None:
    found = findings(run_headrace, tmp_path, what)

    assert len(found) == 1
    assert f"did you mean '{meant}'?" in found[0]["message"]
