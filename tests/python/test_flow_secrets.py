# SPDX-License-Identifier: Apache-2.0
"""What a pipeline marks as secret is in no file of its run and on no terminal."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import Run

SECRET = "zz1secret"
OWNERS = ("secrets.json", "secrets.outputs")


def custom(name: str, command: str, **more: Any) -> dict[str, Any]:
    properties = {"command": command, **more.pop("properties", {})}
    return {"name": name, "type": "Custom", "typeProperties": properties, **more}


def write(tmp_path: Path, *activities: dict[str, Any], **more: Any) -> Path:
    path = tmp_path / "pipeline.json"
    properties = {"activities": list(activities), **more}
    path.write_text(json.dumps({"name": "p", "properties": properties}, indent=1))
    return path


def run(run_headrace: Run, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = run_headrace("flow", "run", "pipeline.json", "--dir", "run", *words, cwd=tmp_path)
    return done


def leaks(run_headrace: Run, tmp_path: Path, *told: str, secret: str = SECRET) -> list[str]:
    """Where the secret is to be seen, but for the files that its owner alone can read."""
    run_headrace("flow", "report", "run", cwd=tmp_path)
    places = [
        str(path.relative_to(tmp_path))
        for path in sorted((tmp_path / "run").rglob("*"))
        if path.is_file() and path.name not in OWNERS and secret.encode() in path.read_bytes()
    ]
    places += [f"terminal: {text}" for text in told if secret in text]
    for words in (["status", "run", "--items", "--json"], ["logs", "run", "--all"]):
        done = run_headrace("flow", *words, cwd=tmp_path)
        places += [f"flow {words[0]}" for text in (done.stdout, done.stderr) if secret in text]
    return places


def log_of(tmp_path: Path, name: str) -> str:
    return (tmp_path / "run/activities" / f"{name}.1.log").read_text()


def test_a_secure_output_of_a_failed_command_is_not_kept(run_headrace: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        custom("A", f"echo {SECRET[:5]}''{SECRET[5:]}; exit 1", policy={"secureOutput": True}),
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 1
    assert "exit code 1; its output is secure and not kept" in done.stderr
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []
    assert log_of(tmp_path, "A") == "headrace: the output is secure and not kept\n"


def test_a_secure_output_line_is_in_no_log_and_can_be_used(
    run_headrace: Run, tmp_path: Path
) -> None:
    line = f'{{"k": "{SECRET[:5]}\'\'{SECRET[5:]}"}}'
    write(
        tmp_path,
        custom("A", f"echo '##headrace-output {line}'", policy={"secureOutput": True}),
        custom(
            "B",
            "test ${#HR_PARAM_k} = 9 && "
            "test \"$HR_PARAM_k\" = '@{activity('A').output.customOutput.k}'",
            properties={"extendedProperties": {"k": "@activity('A').output.customOutput.k"}},
            dependsOn=[{"activity": "A", "dependencyConditions": ["Succeeded"]}],
            policy={"secureInput": True},
        ),
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 0, done.stderr
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []
    log = tmp_path / "run/activities/A.1.log"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_secure_parameter_is_masked_wherever_it_is_echoed(
    run_headrace: Run, tmp_path: Path
) -> None:
    command = "echo key $HR_PARAM_k end; echo err $HR_PARAM_k >&2; exit 3"
    loop = {
        "name": "each",
        "type": "ForEach",
        "typeProperties": {
            "items": "@createArray(pipeline().parameters.token)",
            "activities": [
                custom("do", command, properties={"extendedProperties": {"k": "@item()"}})
            ],
        },
    }
    write(
        tmp_path,
        custom(
            "A",
            command,
            properties={"extendedProperties": {"k": "@pipeline().parameters.token"}},
        ),
        loop,
        {
            "name": "F",
            "type": "Fail",
            "typeProperties": {"message": "@pipeline().parameters.token", "errorCode": "7"},
        },
        parameters={"token": {"type": "SecureString"}},
    )

    done = run(run_headrace, tmp_path, "-p", f"token={SECRET}", "--json-events")

    assert done.returncode == 1
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []
    assert log_of(tmp_path, "A").splitlines() == ["key *** end", "err ***"]
    error = json.loads((tmp_path / "run/activities/A.1.meta.json").read_text())["error"]
    assert error["message"] == "the command ended with exit code 3; its last line: err ***"


def test_a_secret_that_is_printed_in_pieces_is_masked(run_headrace: Run, tmp_path: Path) -> None:
    command = 'printf \'%s\' "${HR_PARAM_k%secret}"; sleep 0.3; echo "${HR_PARAM_k#zz1}"'
    write(
        tmp_path,
        custom("A", command, properties={"extendedProperties": {"k": "@pipeline().parameters.k"}}),
        parameters={"k": {"type": "SecureString", "defaultValue": SECRET}},
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 0, done.stderr
    assert log_of(tmp_path, "A") == "***\n"
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []


def test_secure_inputs_are_masked_in_what_a_command_prints(
    run_headrace: Run, tmp_path: Path
) -> None:
    write(
        tmp_path,
        custom(
            "A",
            "echo got $HR_PARAM_k; exit 1",
            properties={"extendedProperties": {"k": "@concat('zz1', 'secret')"}},
            policy={"secureInput": True},
        ),
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 1
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []
    assert log_of(tmp_path, "A") == "got ***\n"


def test_an_output_with_a_secret_in_it_is_usable_and_not_kept(
    run_headrace: Run, tmp_path: Path
) -> None:
    parameter = {"extendedProperties": {"k": "@pipeline().parameters.k"}}
    write(
        tmp_path,
        custom("A", 'echo "##headrace-output {\\"k\\": \\"$HR_PARAM_k\\"}"', properties=parameter),
        custom(
            "B",
            'test "$HR_PARAM_k" = "$HR_PARAM_same"',
            properties={
                "extendedProperties": {
                    "k": "@pipeline().parameters.k",
                    "same": "@activity('A').output.customOutput.k",
                }
            },
            dependsOn=[{"activity": "A", "dependencyConditions": ["Succeeded"]}],
        ),
        {
            "name": "V",
            "type": "SetVariable",
            "typeProperties": {"variableName": "v", "value": "@pipeline().parameters.k"},
        },
        parameters={"k": {"type": "SecureString"}},
        variables={"v": {"type": "String"}},
    )

    done = run(run_headrace, tmp_path, "-p", f"k={SECRET}")

    assert done.returncode == 0, done.stderr
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []


def test_a_secure_literal_is_its_value_and_hidden(run_headrace: Run, tmp_path: Path) -> None:
    literal = {"type": "SecureString", "value": SECRET}
    write(
        tmp_path,
        custom(
            "A",
            'echo "$HR_PARAM_s"; test ${#HR_PARAM_s} = 9 && test -e "$HEADRACE_PIPELINE_FOLDER/ok"',
            properties={"extendedProperties": {"s": literal}},
        ),
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 1
    assert log_of(tmp_path, "A") == "***\n"
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []

    (tmp_path / "ok").touch()
    again = run_headrace("flow", "resume", "run", "--retry-failed", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert leaks(run_headrace, tmp_path, again.stdout, again.stderr) == []


def test_a_vault_secret_comes_from_the_environment(run_headrace: Run, tmp_path: Path) -> None:
    secret = {
        "type": "AzureKeyVaultSecret",
        "store": {"referenceName": "my-vault", "type": "LinkedServiceReference"},
        "secretName": "db",
    }
    write(
        tmp_path,
        custom(
            "A",
            'echo "got $HR_PARAM_s"; test "$HR_PARAM_s" = zz1""secret',
            properties={"extendedProperties": {"s": secret}},
        ),
    )

    for words in (["validate", "pipeline.json"], ["run", "pipeline.json", "--dir", "run"]):
        done = run_headrace("flow", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert "HEADRACE_SECRET_MY_VAULT_DB" in done.stdout + done.stderr
        assert "E-SECRET" in done.stdout + done.stderr
    assert not (tmp_path / "run").exists()

    known = {"HEADRACE_SECRET_MY_VAULT_DB": SECRET}
    done = run_headrace("flow", "run", "pipeline.json", "--dir", "run", cwd=tmp_path, env=known)
    assert done.returncode == 0, done.stderr
    assert log_of(tmp_path, "A") == "got ***\n"
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []


def test_secrets_of_items_and_of_the_document_outlive_a_killed_engine(
    run_headrace: Run, headrace_binary: Path, tmp_path: Path
) -> None:
    command = (
        'echo $HR_PARAM_k; touch "$HEADRACE_PIPELINE_FOLDER/begun"; sleep 1; '
        "test \"$HR_PARAM_k\" = zz1''secret && test \"$HR_PARAM_s\" = 'lit7''eral'"
    )
    inner = custom(
        "do",
        command,
        properties={
            "extendedProperties": {
                "k": "@item().k",
                "s": {"type": "SecureString", "value": "lit7eral"},
            }
        },
    )
    items = "@createArray(createObject('k', pipeline().parameters.t, 'id', 'a'))"
    write(
        tmp_path,
        {
            "name": "each",
            "type": "ForEach",
            "typeProperties": {"items": items, "activities": [inner]},
        },
        parameters={"t": {"type": "SecureString"}},
    )
    words = ["flow", "run", "pipeline.json", "--dir", "run", "-p", f"t={SECRET}"]
    engine = subprocess.Popen(
        [str(headrace_binary), *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    printed = tmp_path / "run/workers"  # a killed worker may leave behind what it has not read yet
    while not (tmp_path / "begun").exists() or not any(
        log.read_text() for log in printed.glob("*.log")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    engine.kill()
    engine.wait()

    done = run_headrace("flow", "resume", "run", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []
    assert leaks(run_headrace, tmp_path, secret="lit7eral") == []
    assert (tmp_path / "run/items/a/do.1.log").read_text() == "***\n"
    secrets = tmp_path / "run/secrets.json"
    assert secrets.stat().st_mode & 0o777 == 0o600


def test_a_vault_secret_of_a_control_activity_is_refused(run_headrace: Run, tmp_path: Path) -> None:
    secret = {
        "type": "AzureKeyVaultSecret",
        "store": {"referenceName": "kv"},
        "secretName": "x",
    }
    write(
        tmp_path,
        {
            "name": "V",
            "type": "SetVariable",
            "typeProperties": {"variableName": "v", "value": secret},
        },
        variables={"v": {"type": "String"}},
    )

    done = run_headrace(
        "flow", "validate", "pipeline.json", cwd=tmp_path, env={"HEADRACE_SECRET_KV_X": SECRET}
    )

    assert done.returncode == 2
    assert "E-SECRET: activity 'V' is a control activity" in done.stdout


def control_over_a_secret(tmp_path: Path, use: str) -> Path:
    """A control activity made a variable of a secure output; `use` is what comes then."""
    after = {"dependsOn": [{"activity": "Set", "dependencyConditions": ["Succeeded"]}]}
    line = f'{{"k": "{SECRET[:5]}\'\'{SECRET[5:]}"}}'
    return write(
        tmp_path,
        custom(
            "Get",
            f"echo x >> {tmp_path}/got; echo '##headrace-output {line}'",
            policy={"secureOutput": True},
        ),
        {
            "name": "Set",
            "type": "SetVariable",
            "dependsOn": [{"activity": "Get", "dependencyConditions": ["Succeeded"]}],
            "typeProperties": {
                "variableName": "v",
                "value": "@activity('Get').output.customOutput.k",
            },
        },
        custom(
            "Use",
            use,
            properties={"extendedProperties": {"k": "@variables('v')"}},
            policy={"secureInput": True},
            **after,
        ),
        variables={"v": {"type": "String"}},
    )


def test_a_run_goes_on_over_what_control_activities_made_of_a_secure_output(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    wait = (
        f"cd {tmp_path}; touch begun; while ! test -e go; do sleep 0.02; done; "
        f"test ${{#HR_PARAM_k}} = {len(SECRET)}"
    )
    control_over_a_secret(tmp_path, wait)
    engine = subprocess.Popen(
        [str(headrace_binary), "flow", "run", "pipeline.json", "--dir", "run"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        engine.kill()
        engine.wait(30)
    (tmp_path / "go").touch()

    done = run_headrace("flow", "resume", "run", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "got").read_text() == "x\n"  # what had ended did not run again
    state = json.loads(run_headrace("flow", "status", "run", "--json", cwd=tmp_path).stdout)
    assert state["status"] == "Succeeded"
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []
    assert (tmp_path / "run/secrets.outputs").stat().st_mode & 0o777 == 0o600


def test_what_failed_behind_a_secure_output_can_be_run_again(
    run_headrace: Run, tmp_path: Path
) -> None:
    control_over_a_secret(
        tmp_path, f"test -e {tmp_path}/go && test ${{#HR_PARAM_k}} = {len(SECRET)}"
    )
    assert run(run_headrace, tmp_path).returncode == 1
    (tmp_path / "go").touch()

    done = run_headrace("flow", "resume", "run", "--retry-failed", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    state = json.loads(run_headrace("flow", "status", "run", "--json", cwd=tmp_path).stdout)
    assert state["status"] == "Succeeded"
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []


@pytest.mark.parametrize("secure", ["said", "held"])
@pytest.mark.parametrize("loop", [True, False])
def test_what_succeeded_with_a_secure_output_is_not_run_again(
    run_headrace: Run, tmp_path: Path, secure: str, loop: bool
) -> None:
    """Whether the output is said to be secure or holds a secret of the run."""
    got, go = tmp_path / "got", tmp_path / "go"
    value = "@{pipeline().parameters.token}" if secure == "held" else "1"
    command = f'echo $HEADRACE_ITEM >> {got}; echo \'##headrace-output {{"k": "{value}"}}\''
    policy = {"secureOutput": True} if secure == "said" else {}
    work = custom("Work", command, policy=policy)
    late = custom("Late", f"test -e {go}", dependsOn=[
        {"activity": "Work", "dependencyConditions": ["Succeeded"]}
    ])  # fmt: skip
    activities = [work, late]
    if loop:
        typed = {"items": ["a", "b"], "activities": activities}
        activities = [{"name": "each", "type": "ForEach", "typeProperties": typed}]
    write(
        tmp_path,
        *activities,
        parameters={"token": {"type": "SecureString", "defaultValue": SECRET}},
    )
    assert run(run_headrace, tmp_path).returncode == 1
    assert len(got.read_text().splitlines()) == (2 if loop else 1)
    go.touch()

    done = run_headrace("flow", "resume", "run", "--retry-failed", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(got.read_text().splitlines()) == (2 if loop else 1)
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []


def test_lost_secure_outputs_are_named(run_headrace: Run, tmp_path: Path) -> None:
    control_over_a_secret(tmp_path, "true")
    assert run(run_headrace, tmp_path).returncode == 0
    (tmp_path / "run/secrets.outputs").unlink()

    for words in (["status", "run"], ["resume", "run", "--retry-failed"]):
        done = run_headrace("flow", *words, cwd=tmp_path)
        assert "run/secrets.outputs lacks secure outputs (1)" in done.stderr, words


def test_what_a_loop_makes_of_its_items_secure_outputs_is_not_told(
    run_headrace: Run, tmp_path: Path
) -> None:
    line = f'{{"k": "{SECRET[:5]}\'\'{SECRET[5:]}"}}'
    loop = {
        "name": "each",
        "type": "ForEach",
        "typeProperties": {
            "items": "@range(0, 3)",
            "activities": [
                custom("Get", f"echo '##headrace-output {line}'", policy={"secureOutput": True}),
                {
                    "name": "Keep",
                    "type": "AppendVariable",
                    "dependsOn": [{"activity": "Get", "dependencyConditions": ["Succeeded"]}],
                    "typeProperties": {
                        "variableName": "v",
                        "value": "@activity('Get').output.customOutput.k",
                    },
                },
            ],
        },
    }
    write(tmp_path, loop, variables={"v": {"type": "Array"}})

    done = run(run_headrace, tmp_path)

    assert done.returncode == 0, done.stderr
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []


NESTED = {"type": "SecureString", "value": SECRET}


# An option of a String is its text, so that one cannot hold a secret.
SECRET_PARAMETERS = [
    (kind, value, use, given)
    for kind, value, use, ways in [
        ("Object", {"a": {"b": [{"pw": NESTED}]}}, "p.a.b[0].pw.value", "default option file"),
        ("Array", [1, {"x": [NESTED]}], "p[1].x[0].value", "default option file"),
        ("Object", NESTED, "p.value", "default option file"),
        ("String", {"pw": NESTED}, "p.pw.value", "default file"),
        ("String", NESTED, "p", "default file"),
    ]
    for given in ways.split()
]


@pytest.mark.parametrize(("kind", "value", "use", "given"), SECRET_PARAMETERS)
def test_a_secret_inside_of_a_parameter_is_one(
    run_headrace: Run, tmp_path: Path, kind: str, value: Any, use: str, given: str
) -> None:
    if kind == "String" and given == "file" and use == "p":
        use = "p.value"
    path = f"pipeline().parameters.{use}"
    parameter = {"type": kind} | ({"defaultValue": value} if given == "default" else {})
    write(
        tmp_path,
        custom(
            "A",
            f'echo "got $HR_PARAM_s $HR_PARAM_all"; test ${{#HR_PARAM_s}} = {len(SECRET)} && '
            'test -e "$HEADRACE_PIPELINE_FOLDER/ok"',
            properties={"extendedProperties": {"s": "@" + path, "all": "@pipeline().parameters.p"}},
        ),
        parameters={"p": parameter},
    )
    words: tuple[str, ...] = ()
    if given == "option":
        words = ("-p", f"p={json.dumps(value)}")
    elif given == "file":
        (tmp_path / "values.json").write_text(json.dumps({"p": value}))
        words = ("-P", "values.json")

    done = run(run_headrace, tmp_path, *words)

    assert done.returncode == 1, done.stderr
    assert log_of(tmp_path, "A").startswith("got *** ")
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []
    assert SECRET in (tmp_path / "run/secrets.json").read_text()
    assert (tmp_path / "run/secrets.json").stat().st_mode & 0o777 == 0o600
    state = json.loads(run_headrace("flow", "status", "run", "--json", cwd=tmp_path).stdout)
    assert "***" in json.dumps(state["parameters"])

    (tmp_path / "ok").touch()
    again = run_headrace("flow", "resume", "run", "--retry-failed", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert leaks(run_headrace, tmp_path, again.stdout, again.stderr) == []


@pytest.mark.parametrize(
    ("literal", "text"),
    [("987612345", "987612345"), ("98.7612345", "98.7612345"), ("9876e5", "987600000")],
)
@pytest.mark.parametrize("place", ["parameter", "wrapped", "activity", "nested"])
def test_a_secure_number_is_as_secret_as_a_text(
    run_headrace: Run, tmp_path: Path, literal: str, text: str, place: str
) -> None:
    secure: dict[str, Any] = {"type": "SecureString", "value": "LITERAL"}
    parameters = {
        "parameter": {"k": {"type": "SecureString", "defaultValue": "LITERAL"}},
        "wrapped": {"k": {"type": "SecureString", "defaultValue": secure}},
        "activity": {},
        "nested": {"k": {"type": "Object", "defaultValue": {"pin": secure}}},
    }[place]
    use = "@string(pipeline().parameters.k)" if place != "activity" else secure
    use = "@string(pipeline().parameters.k.pin.value)" if place == "nested" else use
    each = {
        "name": "each",
        "type": "ForEach",
        "typeProperties": {
            "items": "@createArray(createObject('v', pipeline().parameters.k.pin.value))",
            "activities": [
                custom(
                    "do", "echo $HR_PARAM_i", properties={"extendedProperties": {"i": "@item().v"}}
                )
            ],
        },
    }
    write(
        tmp_path,
        custom("A", "echo got $HR_PARAM_s", properties={"extendedProperties": {"s": use}}),
        *([each] if place == "nested" else []),
        parameters=parameters,
    )
    path = tmp_path / "pipeline.json"
    path.write_text(path.read_text().replace('"LITERAL"', literal))

    done = run(run_headrace, tmp_path)

    assert done.returncode == 0, done.stderr
    assert log_of(tmp_path, "A") == "got ***\n"
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr, secret=text) == []
    assert leaks(run_headrace, tmp_path, secret=literal) == []
    if place == "nested":
        log = next((tmp_path / "run/items").rglob("do.1.log"))
        assert log.read_text() == "***\n"


def test_a_secure_bool_is_not_in_the_journal(run_headrace: Run, tmp_path: Path) -> None:
    """By its place: as a text it would mask every other True."""
    write(
        tmp_path,
        custom(
            "A",
            "echo got $HR_PARAM_s",
            properties={"extendedProperties": {"s": "@pipeline().parameters.k"}},
        ),
        parameters={"k": {"type": "SecureString", "defaultValue": True}},
    )
    done = run(run_headrace, tmp_path)

    assert done.returncode == 0, done.stderr
    assert log_of(tmp_path, "A") == "got True\n"
    assert b'"parameters":{"k":null}' in (tmp_path / "run/journal").read_bytes()
    assert b'\\"defaultValue\\": \\"***\\"' in (tmp_path / "run/journal").read_bytes()


def test_the_literals_of_a_secure_input_are_not_in_the_journal(
    run_headrace: Run, tmp_path: Path
) -> None:
    secure = {"policy": {"secureInput": True}}
    number = 77123456
    write(
        tmp_path,
        custom(
            "A",
            f"echo tell {SECRET}; test -e $HEADRACE_PIPELINE_FOLDER/ok",
            properties={
                "extendedProperties": {
                    "a": "@concat('lit7', 'er4l7x')",
                    "b": {"deep": ["deep9text", number]},
                }
            },
            **secure,
        ),
        {
            "name": "S",
            "type": "SetVariable",
            "typeProperties": {"variableName": "v", "value": "@concat('set8', 'value')"},
            **secure,
        },
        {
            "name": "If",
            "type": "IfCondition",
            "typeProperties": {
                "expression": "@equals('if6secret', variables('v'))",
                "ifTrueActivities": [custom("inner", "exit 9")],
            },
            **secure,
        },
        {
            "name": "each",
            "type": "ForEach",
            "typeProperties": {
                "items": ["item5one", "item5two"],
                "batchCount": 2,
                "isSequential": False,
                "activities": [custom("do", "true")],
            },
            **secure,
        },
        variables={"v": {"type": "String"}},
    )
    literals = [SECRET, "lit7", "er4l7x", "deep9text", str(number), "set8", "if6secret"]

    done = run(run_headrace, tmp_path)

    assert done.returncode == 1, done.stderr
    document = (tmp_path / "run/journal").read_bytes().split(b'"parameters"')[0]
    for literal in literals:
        assert literal.encode() not in document, literal
    assert b"item5one" not in document
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []
    assert SECRET in (tmp_path / "run/secrets.json").read_text()
    assert (tmp_path / "run/secrets.json").stat().st_mode & 0o777 == 0o600

    (tmp_path / "ok").touch()
    again = run_headrace("flow", "resume", "run", "--retry-failed", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    kept = tmp_path / "run/secrets.json"
    whole = kept.read_text()
    kept.unlink()
    shown = run_headrace("flow", "status", "run", "--json", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["status"] == "Succeeded"
    kept.write_text(whole)


@pytest.mark.parametrize(
    ("command", "printed", "log"),
    [
        ("true -u db:pa55word x", "denied for pa55word", "denied for ***"),
        ("true --token=t0ken77", "bad t0ken77, see --token", "bad ***, see --token"),
        ("true 'Authorization: Bearer b3arer9'", "got b3arer9", "got ***"),
        ("true https://me:s3cret@host.example/x", "login s3cret", "login ***"),
        ('true "quoted sentence here"', "a quoted sentence here b", "a *** b"),
        ("PASS=p4ssw0rd true", "not p4ssw0rd", "not ***"),
        ("true $HR_PARAM_k", "part0fit", "***"),
        ("true; cat /dev/null", "ls: /dev/null", "ls: /dev/null"),
    ],
)
def test_parts_of_a_secure_command_are_masked(
    run_headrace: Run, tmp_path: Path, command: str, printed: str, log: str
) -> None:
    write_out = f"{command} > /dev/null; echo $({tmp_path}/say); exit 3"
    say = tmp_path / "say"
    say.write_text(f"#!/bin/sh\necho '{printed}'\n")
    say.chmod(0o755)
    write(
        tmp_path,
        custom(
            "A",
            write_out,
            properties={"extendedProperties": {"k": "@concat('zz', 'part0fit')"}},
            policy={"secureInput": True},
        ),
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 1
    assert log_of(tmp_path, "A") == log + "\n"
    assert f"the command ended with exit code 3; its last line: {log}" in done.stderr
    meta = json.loads((tmp_path / "run/activities/A.1.meta.json").read_text())
    assert meta["error"]["message"].endswith(log)


def test_an_expression_of_a_secure_input_that_fails_is_not_told(
    run_headrace: Run, tmp_path: Path
) -> None:
    write(
        tmp_path,
        custom(
            "A",
            "true",
            properties={
                "extendedProperties": {"k": f"@concat('{SECRET}', int(concat('{SECRET}', 'x')))"}
            },
            policy={"secureInput": True},
        ),
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 1
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []


@pytest.mark.parametrize("kind", ["SecureStrng", "secure_string", "SecuredString", "SecretString"])
def test_a_misspelt_secret_is_refused_and_its_value_not_told(
    run_headrace: Run, tmp_path: Path, kind: str
) -> None:
    literal = {"type": kind, "value": SECRET}
    places: list[dict[str, Any]] = [
        {"activities": [custom("A", "true", properties={"extendedProperties": {"k": literal}})]},
        {
            "activities": [
                {
                    "name": "S",
                    "type": "SetVariable",
                    "typeProperties": {"variableName": "v", "value": literal},
                }
            ],
            "variables": {"v": {"type": "String"}},
        },
        {
            "activities": [custom("A", "true")],
            "parameters": {"p": {"type": "Object", "defaultValue": {"x": [literal]}}},
        },
        {
            "activities": [custom("A", "true")],
            "parameters": {"p": {"type": "Int", "defaultValue": literal}},
        },
        {
            "activities": [custom("A", literal)],  # type: ignore[arg-type]
        },
    ]
    for place in places:
        path = tmp_path / "pipeline.json"
        path.write_text(json.dumps({"name": "p", "properties": place}))
        for words in (["validate", "pipeline.json"], ["run", "pipeline.json", "--dir", "run"]):
            done = run_headrace("flow", *words, cwd=tmp_path)
            assert done.returncode == 2, place
            assert SECRET not in done.stdout + done.stderr
            assert "did you mean 'SecureString'" in done.stdout + done.stderr
    for kind_of in ("Object", "Int", "String"):
        write(tmp_path, custom("A", "true"), parameters={"p": {"type": kind_of}})
        (tmp_path / "values.json").write_text(json.dumps({"p": literal}))
        for words in (("-P", "values.json"), ("-p", "p=" + json.dumps(literal))):
            done = run(run_headrace, tmp_path, *words)
            assert done.returncode == 2, done.stderr
            assert SECRET not in done.stdout + done.stderr
            assert "SecureString" in done.stderr
    for kind_of, value in (("Object", {"key": literal}), ("Array", [literal])):
        write(tmp_path, custom("A", "true"), parameters={"p": {"type": kind_of}})
        done = run(run_headrace, tmp_path, "-p", "p=" + json.dumps(value))
        assert done.returncode == 2, done.stderr
        assert SECRET not in done.stdout + done.stderr
    assert not (tmp_path / "run").exists()


def test_a_text_that_holds_a_secure_value_is_refused_for_a_string(
    run_headrace: Run, tmp_path: Path
) -> None:
    """It would be kept and told: it is text, and no object that is one of them."""
    for kind in ("String", "Int"):
        write(tmp_path, custom("A", "true"), parameters={"p": {"type": kind}})
        for value in (NESTED, [{"key": NESTED}]):
            done = run(run_headrace, tmp_path, "-p", "p=" + json.dumps(value))
            assert done.returncode == 2, done.stderr
            assert SECRET not in done.stdout + done.stderr
            assert "SecureString" in done.stderr
    assert not (tmp_path / "run").exists()

    write(tmp_path, custom("A", "true"), parameters={"p": {"type": "SecureString"}})
    done = run(run_headrace, tmp_path, "-p", "p=" + json.dumps(NESTED))
    assert done.returncode == 0, done.stderr
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []


@pytest.mark.parametrize(
    "value",
    [
        {"store": "berlin", "secretName": "k"},
        {"type": "SourceString", "value": "kept"},
        {"type": "SecondaryString", "value": "kept"},
    ],
)
def test_what_only_looks_a_bit_like_a_secret_is_none(
    run_headrace: Run, tmp_path: Path, value: dict[str, str]
) -> None:
    write(tmp_path, custom("A", "true", properties={"extendedProperties": {"k": value}}))

    done = run_headrace("flow", "validate", "pipeline.json", cwd=tmp_path)

    assert done.returncode == 0, done.stdout
    assert "E-SECRET" not in done.stdout


@pytest.mark.parametrize(
    "value",
    [
        {"type": "AzureKeyVaultSecrt", "store": {"referenceName": "kv"}, "secretName": "k"},
        {"type": "AzureKeyVault", "store": {"referenceName": "kv"}, "secretName": "k"},
        {"store": {"referenceName": "kv"}, "secretName": "k"},
        {"type": "azure-key-vault-secret", "store": "kv", "secretName": "k"},
    ],
)
def test_a_misspelt_secret_of_a_key_vault_is_refused(
    run_headrace: Run, tmp_path: Path, value: dict[str, Any]
) -> None:
    write(tmp_path, custom("A", "true", properties={"extendedProperties": {"k": value}}))

    done = run_headrace("flow", "validate", "pipeline.json", cwd=tmp_path)

    assert done.returncode == 2, done.stdout
    assert "did you mean 'AzureKeyVaultSecret'" in done.stdout


@pytest.mark.parametrize(
    ("command", "secret"),
    [
        ("printf '%s\\n' '$ecretpass1'", "$ecretpass1"),
        ("printf '%s\\n' \\$ecretpass1", "$ecretpass1"),
        ("printf '%s\\n' it\"'\"s '$HOME'", "$HOME"),
        ("printf '%s\\n' --plainPASS9", "--plainPASS9"),
        ("printf '%s\\n' HEADRACE_mypass9", "HEADRACE_mypass9"),
        ("printf '%s\\n' HR_PARAM_mypass9", "HR_PARAM_mypass9"),
        ('printf "%s\\n" "${none:-fallb4ck}"', "fallb4ck"),
        ('printf "%s\\n" "$undeclared" \'$undeclared\'', "$undeclared"),
    ],
)
def test_a_password_that_looks_like_a_name_is_no_name(
    run_headrace: Run, tmp_path: Path, command: str, secret: str
) -> None:
    write(tmp_path, custom("A", command, policy={"secureInput": True}))

    done = run(run_headrace, tmp_path)

    assert done.returncode == 0, done.stderr
    assert "***" in log_of(tmp_path, "A")
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr, secret=secret) == []


def test_names_of_what_a_command_is_given_and_its_options_are_told(
    run_headrace: Run, tmp_path: Path
) -> None:
    names = "HR_PARAM_k HEADRACE_RUN_ID --dry-run"
    write(
        tmp_path,
        custom(
            "A",
            f'printf "%s\\n" "$HR_PARAM_k" >/dev/null; echo {names}; echo "\\$HR_PARAM_k"',
            properties={"extendedProperties": {"k": "v4lue9"}},
            policy={"secureInput": True},
        ),
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 0, done.stderr
    assert names in log_of(tmp_path, "A")


def test_a_long_secure_input_does_not_hold_up_the_engine(run_headrace: Run, tmp_path: Path) -> None:
    """1.8 MB of words that differ, for each of four attempts: 8 s each without a bound."""
    each = {
        "name": "each",
        "type": "ForEach",
        "typeProperties": {
            "items": "@range(0, 4)",
            "activities": [
                custom(
                    "A",
                    "echo '$ecretpass1'",
                    properties={"note": "@pipeline().parameters.long"},
                    policy={"secureInput": True},
                )
            ],
        },
    }
    write(tmp_path, each, parameters={"long": {"type": "String"}})
    words = " ".join(f"w{i:07d}" for i in range(200_000))
    (tmp_path / "values.json").write_text(json.dumps({"long": words}))

    begin = time.monotonic()
    done = run(run_headrace, tmp_path, "-P", "values.json", "--slots", "1")

    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 8
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr, secret="ecretpass1") == []


def test_a_secure_bool_masks_no_other_true(run_headrace: Run, tmp_path: Path) -> None:
    secure = {"type": "SecureString", "value": True}
    write(
        tmp_path,
        custom(
            "A",
            "echo '##headrace-output {\"ok\": true}'; echo is true and True",
            properties={"extendedProperties": {"s": secure}},
        ),
        parameters={"p": {"type": "Object", "defaultValue": {"x": secure}}},
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 0, done.stderr
    assert "is true and True" in log_of(tmp_path, "A")
    state = json.loads(run_headrace("flow", "status", "run", "--json", cwd=tmp_path).stdout)
    assert state["activities"][0]["output"]["customOutput"] == {"ok": True}
    assert state["parameters"] == {"p": {"x": {"type": "SecureString", "value": "***"}}}
    journal = (tmp_path / "run/journal").read_bytes()
    assert b'"parameters":{"p":{"x":{"type":"SecureString","value":"***"}}}' in journal
    assert b'\\"value\\": true' not in journal


def test_the_cases_of_a_secure_switch_are_not_in_the_journal(
    run_headrace: Run, tmp_path: Path
) -> None:
    write(
        tmp_path,
        {
            "name": "S",
            "type": "Switch",
            "typeProperties": {
                "on": f"@concat('{SECRET[:3]}', '{SECRET[3:]}')",
                "cases": [
                    {"value": "zz9other", "activities": [custom("one", "exit 1")]},
                    {"value": SECRET, "activities": [custom("two", "true")]},
                ],
            },
            "policy": {"secureInput": True},
        },
    )

    done = run(run_headrace, tmp_path)

    assert done.returncode == 0, done.stderr
    assert leaks(run_headrace, tmp_path, done.stdout, done.stderr) == []
    assert leaks(run_headrace, tmp_path, secret="zz9other") == []
    state = json.loads(run_headrace("flow", "status", "run", "--json", cwd=tmp_path).stdout)
    assert [one["path"] for one in state["activities"] if one["status"] == "Succeeded"] == [
        "S",
        "S/two",
    ]
    (tmp_path / "run/secrets.json").unlink()  # what is left is a pipeline all the same
    shown = run_headrace("flow", "status", "run", cwd=tmp_path)
    assert "secrets.json" in shown.stderr
    assert "not valid" not in shown.stderr
