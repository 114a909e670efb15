# SPDX-License-Identifier: Apache-2.0
"""The mirror against a real `mlflow server` on the loopback interface, in its own environment."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace import registry

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """One `mlflow server` on a database and an artifact folder that outlive it."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._python = python
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        log = (self._folder / "server.log").open("ab")
        self._process = subprocess.Popen(
            [
                str(self._python),
                *("-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)),
                *("--backend-store-uri", f"sqlite:///{self._folder / 'mlflow.db'}"),
                *("--artifacts-destination", str(self._folder / "artifacts")),
                *("--workers", "1"),
            ],
            stdout=log,
            stderr=log,
            start_new_session=True,
            # Its job queue starts a dozen idle Python processes that nothing here asks of it.
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                    return
            except OSError:
                assert self._process.poll() is None, (self._folder / "server.log").read_text()
                assert time.monotonic() < deadline, "the server did not start in 120 s"
                time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            self._process.wait(30)
            self._process = None


@pytest.fixture(scope="module")
def server(mlflow_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(mlflow_python, tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def r(tmp_path: Path) -> registry.Registry:
    return registry.open(tmp_path / "registry")


@pytest.fixture
def environment(mlflow_python: Path) -> dict[str, str]:
    return {
        "HEADRACE_PYTHON": str(mlflow_python),
        "PYTHONPATH": str(ROOT / "python"),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    }


@pytest.fixture
def ask(mlflow_python: Path, server: Server) -> Callable[..., object]:
    """Run a script with MLflow's own client; it prints one JSON value."""

    def run(code: str, **values: object) -> object:
        start = (
            "import json, sys\nfrom mlflow import MlflowClient\n"
            f"client = MlflowClient({server.uri!r}, {server.uri!r})\n"
            f"given = json.loads({json.dumps(values)!r})\n"
        )
        done = subprocess.run(
            [str(mlflow_python), "-c", start + code],
            capture_output=True,
            text=True,
            timeout=300,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "python"),
                "MLFLOW_TRACKING_URI": server.uri,
            },
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def add(r: registry.Registry, name: str, i: int, **details: object) -> registry.Version:
    return r.add(name, {"w": np.full(4, i, "f4")}, kind="deepar", **details)


VERSIONS = """
found = client.search_model_versions("name LIKE '%s'" % given["name"].replace("'", ""))
print(json.dumps([[v.name, v.version, v.tags, v.aliases, v.run_id] for v in found]))
"""


def test_a_version_arrives_with_everything_it_has(
    r, run_headrace, environment, server, ask
) -> None:
    long = "x" * 7000
    params = {f"p{i}": i for i in range(250)}
    version = add(
        r,
        "load/house 1",
        1,
        metrics={"mase": (0.9, 120), "nan": float("nan"), "up": float("inf"), "a/b(c)": 1.0},
        params={**params, "long": long},
        tags={"team": "energy"},
        table={"url": "s3://key:secret@bucket/lake?token=t", "format": "parquet", "rows": 7},
        run="run-1",
    )
    r.alias("load/house 1:1", "champion")
    done = run_headrace("models", "push", "--all", "--mlflow", server.uri, env=environment)
    assert done.returncode == 0, done.stderr
    [[name, number, tags, _, run_id]] = ask(VERSIONS, name="load.house 1")
    assert (name, number) == ("load.house 1", 1) or (name, number) == ("load.house 1", "1")
    assert tags["headrace.uid"] == version.uid
    assert tags["headrace.version"] == "1"
    assert tags["headrace.blake2b"] == version.artifacts[0]["hash"]
    run = ask(
        """
run = client.get_run(given["run"])
data = run.data
metrics = {k: str(v) for k, v in data.metrics.items()}
alias = client.get_model_version_by_alias("load.house 1", "champion").version
parent = client.get_run(data.tags["mlflow.parentRunId"]).data.tags["headrace.run"]
inputs = [[i.dataset.name, i.dataset.source] for i in run.inputs.dataset_inputs]
files = [f.path for f in client.list_artifacts(given["run"])]
long = client.list_artifacts(given["run"], "params")[0].path
steps = [[m.value, m.step] for m in client.get_metric_history(given["run"], "mase")]
print(json.dumps([data.params, metrics, data.tags, alias, parent, inputs, files, long, steps]))
""",
        run=run_id,
    )
    got_params, metrics, run_tags, alias, parent, inputs, files, long_path, steps = run
    assert {k: got_params[k] for k in params} == {k: str(v) for k, v in params.items()}
    assert len(got_params["long"]) <= 6000
    assert "cut" in got_params["long"]
    assert long_path == "params/long.txt"
    assert metrics["mase"] == "0.9"
    assert metrics["nan"] == "nan"
    assert metrics["a/b_c_"] == "1.0"
    assert run_tags["headrace.metric.up"] == "Infinity"
    assert run_tags["team"] == "energy"
    assert run_tags["mlflow.user"] == getpass.getuser()
    assert steps == [[0.9, 120]]
    assert str(alias) == "1"
    assert parent == "run-1"
    assert "secret" not in json.dumps(inputs)
    assert "token" not in json.dumps(inputs)
    assert "model" in files
    again = run_headrace("models", "push", "--mlflow", server.uri, "--json", env=environment)
    assert json.loads(again.stdout)["pushed"] == []


def test_a_server_that_dies_in_the_middle_gets_each_version_exactly_once(
    r, run_headrace, environment, mlflow_python, tmp_path, headrace_binary
) -> None:
    count = 30
    server = Server(mlflow_python, tmp_path)
    server.start()
    try:
        for i in range(count):
            add(r, f"single/m{i}", i, params={f"p{k}": k for k in range(250)})
        r.request_push("", "mlflow")
        words = [str(headrace_binary), "models", "push", "--mlflow", server.uri]
        variables = {**os.environ, **environment, "HEADRACE_REGISTRY": str(r.folder)}
        push = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while len(r.pushes("mlflow")) > count - 5:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        server.kill()
        assert push.wait(120) == 1
        waiting = r.pushes("mlflow")
        assert 0 < len(waiting) <= count - 5
        assert any(p["error"] for p in waiting)
        listed = run_headrace("models", "list", "--unpushed")
        assert listed.returncode == 1
        assert "single/m" in listed.stdout
        server.start()
        deadline = time.monotonic() + 180
        while r.pushes("mlflow"):
            assert time.monotonic() < deadline
            for row in r.pushes("mlflow"):  # do not wait for the pause after the failure
                r.record_push({**row, "next_us": 0})
            run_headrace("models", "push", "--mlflow", server.uri, env=environment)
        code = (
            "import json\nfrom mlflow import MlflowClient\n"
            f"client = MlflowClient({server.uri!r}, {server.uri!r})\n"
            "print(json.dumps([v.tags['headrace.uid'] for v in client.search_model_versions()]))"
        )
        out = subprocess.run([str(mlflow_python), "-c", code], capture_output=True, text=True)
        uids = json.loads(out.stdout)
        assert sorted(uids) == sorted(v.uid for v in r.list())
    finally:
        server.kill()


def test_the_items_of_a_run_become_one_version_of_their_prefix(
    r, run_headrace, environment, server, ask
) -> None:
    for i in range(12):
        add(
            r,
            f"m4/H{i}",
            i,
            metrics={"mase": float(i)},
            params={"horizon": 48, "seed": i},
            run="run-9",
            item=f"H{i}",
        )
        r.alias(f"m4/H{i}", "champion")
    done = run_headrace("models", "push", "--all", "--mlflow", server.uri, env=environment)
    assert done.returncode == 0, done.stderr
    [[name, _, tags, _, run_id]] = ask(VERSIONS, name="m4")
    assert name == "m4"
    assert tags["headrace.items"] == "12"
    params, metrics, alias, items = ask(
        """
import os, tempfile
data = client.get_run(given["run"]).data
alias = client.get_model_version_by_alias("m4", "champion").tags["headrace.run"]
folder = client.download_artifacts(given["run"], "model", tempfile.mkdtemp())
items = json.load(open(os.path.join(folder, "items.json")))
print(json.dumps([data.params, data.metrics, alias, items]))
""",
        run=run_id,
    )
    assert params == {"horizon": "48"}
    assert metrics["mase.mean"] == 5.5
    assert metrics["mase.median"] == 5.5
    assert metrics["items"] == 12
    assert alias == "run-9"
    assert items["columns"] == ["item", "version", "mase"]
    assert len(items["data"]) == 12


class Follower:
    """`headrace models push --follow`, read pass by pass."""

    def __init__(self, binary: Path, uri: str, folder: Path, *words: str, **env: str) -> None:
        self._process = subprocess.Popen(
            [str(binary), "models", "push", "--follow", "--json", "--mlflow", uri, *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env, "HEADRACE_REGISTRY": str(folder)},
        )
        self._deadline = threading.Timer(180, self._process.kill)
        self._deadline.start()

    def next_pass(self) -> dict[str, object]:
        """The report of the next pass."""
        text = ""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text += line
            if line == "}\n":
                return json.loads(text)
        raise AssertionError(f"the pusher ended with {self._process.wait(60)}: {text}")

    def pass_that_pushed(self) -> list[str]:
        while True:
            report = self.next_pass()
            assert report["errors"] == []
            if report["pushed"]:
                return report["pushed"]

    def kill(self) -> None:
        self._deadline.cancel()
        self._process.kill()
        self._process.wait(30)
        self._process.stdout.close()


def test_following_a_run_makes_one_version_of_each_settled_set(
    r, headrace_binary, run_headrace, environment, server, ask
) -> None:
    def item(i: int) -> None:
        add(r, f"trickle/H{i}", i, metrics={"mase": float(i)}, run="run-t", item=f"H{i}")
        r.request_push(f"trickle/H{i}", "mlflow")

    item(0)
    follow = [headrace_binary, server.uri, r.folder]
    held = Follower(*follow, "--settle", "3600", **environment)
    try:
        for i in range(1, 3):  # a run under way: each pass finds more items than the last
            report = held.next_pass()
            assert report["pushed"] == []
            assert report["left"] == report["settling"] == i
            item(i)
    finally:
        held.kill()
    assert ask(VERSIONS, name="trickle") == []

    settled = Follower(*follow, "--settle", "0", **environment)
    try:
        assert settled.pass_that_pushed() == ["trickle -> trickle version 1"]
        assert settled.next_pass()["pushed"] == []  # nothing is new
        item(3)
        assert settled.pass_that_pushed() == ["trickle -> trickle version 2"]
    finally:
        settled.kill()
    assert r.pushes("mlflow") == []

    # As after a crash between MLflow's answer and our record of it: the set is found by its tag.
    for row in r.pushes("mlflow", unfinished_only=False):
        r.record_push({**row, "state": "waiting", "next_us": 0})
    done = run_headrace("models", "push", "--mlflow", server.uri, env=environment)
    assert done.returncode == 0, done.stderr
    versions = ask(VERSIONS, name="trickle")
    assert sorted(tags["headrace.items"] for _, _, tags, _, _ in versions) == ["3", "4"]
    rows = r.pushes("mlflow", unfinished_only=False)
    assert {(row["state"], str(row["remote"]["version"])) for row in rows} == {("done", "2")}


@pytest.mark.parametrize("moment", ["start", "pause", "push"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_at_once_when_interrupted(
    moment: str, number: int, r, headrace_binary, environment, server
) -> None:
    name = f"stop-{moment}-{number}"
    if moment == "push":
        for i in range(40):
            add(r, f"{name}/m{i}", i, params={f"p{k}": k for k in range(100)})
    else:
        add(r, name, 1)
    r.request_push("", "mlflow")
    process = subprocess.Popen(
        [str(headrace_binary), "models", "push", "--follow", "--mlflow", server.uri],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment, "HEADRACE_REGISTRY": str(r.folder)},
    )
    try:
        deadline = time.monotonic() + 120
        enough = {"start": 10**9, "pause": 0, "push": 37}[moment]
        while len(r.pushes("mlflow")) > enough:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(number)
        code = process.wait(30)
        took_s = time.monotonic() - began
        errors = process.stderr.read()
    finally:
        process.kill()
        process.wait(30)
    assert code == 130, errors
    assert "Traceback" not in errors
    assert took_s < 1.0
    assert all(row["state"] == "waiting" for row in r.pushes("mlflow"))


def test_names_that_meet_in_mlflow_are_kept_apart(
    r, run_headrace, environment, server, ask
) -> None:
    add(r, "meet/a", 1)
    add(r, "meet.a", 2)
    done = run_headrace("models", "push", "--all", "--mlflow", server.uri, env=environment)
    assert done.returncode == 0, done.stderr
    names = sorted(row[0] for row in ask(VERSIONS, name="meet%"))
    assert len(names) == 2
    assert names[0] == "meet.a"
    assert names[1].startswith("meet.a-")


ALIASES = """
model = client.get_registered_model(given["name"])
print(json.dumps({alias: int(version) for alias, version in model.aliases.items()}))
"""


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What we said on stderr; the client says more."""
    return [line for line in done.stderr.splitlines() if line.startswith("headrace: ")]


SET_ALIAS = """
client.set_registered_model_alias(given["name"], given["alias"], given["version"])
print(json.dumps(1))
"""


def test_alias_changes_after_a_push_arrive_with_the_next(
    r, run_headrace, environment, server, ask
) -> None:
    def push(*words: str) -> None:
        done = run_headrace("models", "push", "--mlflow", server.uri, *words, env=environment)
        assert done.returncode == 0, done.stderr
        assert told(done) == []

    for i in range(3):
        add(r, "moved", i)
    r.alias("moved:1", "champion")
    push("--all")
    assert ask(ALIASES, name="moved") == {"champion": 1}

    r.alias("moved:1", "prod")
    r.alias("moved", "champion", remove=True)
    push()
    assert ask(ALIASES, name="moved") == {"prod": 1}

    r.alias("moved:3", "prod")
    r.alias("moved:2", "champion")
    push()
    assert ask(ALIASES, name="moved") == {"prod": 3, "champion": 2}

    r.delete("moved:2", force=True)
    push()
    assert ask(ALIASES, name="moved") == {"prod": 3}


def test_the_alias_of_a_run_moves_with_its_items(r, run_headrace, environment, server, ask) -> None:
    def push() -> None:
        done = run_headrace("models", "push", "--all", "--mlflow", server.uri, env=environment)
        assert done.returncode == 0, done.stderr

    def add_run(run: str) -> None:
        for i in range(2):
            add(r, f"fleet/H{i}", i, run=run, item=f"H{i}")

    add_run("run-a")
    for i in range(2):
        r.alias(f"fleet/H{i}:1", "champion")
    push()
    assert ask(ALIASES, name="fleet") == {"champion": 1}
    add_run("run-b")
    for i in range(2):
        r.alias(f"fleet/H{i}:2", "champion")
    push()
    assert ask(ALIASES, name="fleet") == {"champion": 2}
    r.alias("fleet/H0", "champion", remove=True)
    push()
    assert ask(ALIASES, name="fleet") == {}


def test_a_foreign_alias_stays_unless_forced(r, run_headrace, environment, server, ask) -> None:
    ask(
        """
import os, tempfile
folder = tempfile.mkdtemp()
run = client.create_run("0")
open(os.path.join(folder, "x"), "w").write("x")
client.log_artifacts(run.info.run_id, folder, "model")
client.create_registered_model("foreign")
v = client.create_model_version("foreign", f"runs:/{run.info.run_id}/model", run.info.run_id)
client.set_registered_model_alias("foreign", "champion", v.version)
print(json.dumps(1))
"""
    )
    add(r, "foreign", 1)
    r.alias("foreign:1", "champion")
    push = ("models", "push", "--mlflow", server.uri)
    done = run_headrace(*push, "--all", env=environment)
    assert done.returncode == 0, done.stderr
    assert "champion of foreign was set in MLflow, to version 1" in done.stderr
    assert "--force" in done.stderr
    assert ask(ALIASES, name="foreign") == {"champion": 1}
    done = run_headrace(*push, env=environment)
    assert (done.returncode, told(done)) == (0, [])  # told once
    done = run_headrace(*push, "--force", env=environment)
    assert done.returncode == 0, done.stderr
    assert ask(ALIASES, name="foreign") == {"champion": 2}


@pytest.mark.parametrize("change", ["moved", "removed"])
def test_an_alias_that_was_changed_in_mlflow_is_told_and_stays(
    change: str, r, run_headrace, environment, server, ask
) -> None:
    name = f"theirs-{change}"
    for i in range(3):
        add(r, name, i)
    r.alias(f"{name}:1", "champion")
    push = ("models", "push", "--mlflow", server.uri)
    assert run_headrace(*push, "--all", env=environment).returncode == 0
    assert ask(ALIASES, name=name) == {"champion": 1}
    if change == "moved":  # to a version that is ours too
        ask(SET_ALIAS, name=name, alias="champion", version="2")
        there = {"champion": 2}
    else:
        ask("client.delete_registered_model_alias(given['name'], 'champion')\nprint(1)", name=name)
        there = {}

    r.alias(f"{name}:3", "champion")
    done = run_headrace(*push, env=environment)
    assert done.returncode == 0, done.stderr
    assert f"champion of {name} was {change} in MLflow" in done.stderr
    assert ask(ALIASES, name=name) == there
    r.alias(name, "champion", remove=True)
    done = run_headrace(*push, env=environment)
    assert done.returncode == 0, done.stderr
    assert ask(ALIASES, name=name) == there

    r.alias(f"{name}:3", "champion")
    done = run_headrace(*push, "--force", env=environment)
    assert done.returncode == 0, done.stderr
    assert ask(ALIASES, name=name) == {"champion": 3}
    r.alias(f"{name}:1", "champion")  # from now on ours wins again
    done = run_headrace(*push, env=environment)
    assert (done.returncode, told(done)) == (0, [])
    assert ask(ALIASES, name=name) == {"champion": 1}


SERIES = "item_id,timestamp,target\n" + "".join(
    f"{item},2026-{1 + day // 28:02}-{1 + day % 28:02},{level * (50 + day % 7)}\n"
    for item, level in (("north", 1.0), ("south", 3.0))
    for day in range(84)
)
TRAIN = (
    *("forecast", "train", "sales.csv", "--horizon", "7"),
    *("--global-members", "1", "--hidden", "8", "--context", "7", "--epochs", "1"),
    *("--batches-per-epoch", "2"),
)


def test_what_was_pushed_is_read_back_into_another_registry(
    r, run_headrace, environment, server, ask, tmp_path
) -> None:
    one = add(r, "back/one", 7, metrics={"mase": 0.5})
    r.alias("back/one:1", "champion")
    for i in range(2):
        add(r, f"backs/H{i}", i, run="run-back", item=f"H{i}")
    done = run_headrace("models", "push", "--all", "--mlflow", server.uri, env=environment)
    assert done.returncode == 0, done.stderr
    folder = str(tmp_path / "other")
    got = ask(
        """
from headrace import registry
r = registry.open(given["folder"])
weights = r.load("models:/back.one@champion").weights["w"].tolist()
again = r.get("models:/back.one/1").uid
items = sorted(v.name for v in r.fetch("models:/backs/1"))
errors = []
for reference in ("models:/backs/1", "models:/nothing@champion", "models:/back.one"):
    try:
        r.get(reference)
    except Exception as error:
        errors.append([type(error).__name__, str(error)])
print(json.dumps([weights, again, items, errors, len(list(r.list()))]))
""",
        folder=folder,
    )
    weights, again, items, errors, count = got
    assert weights == [7.0] * 4
    assert again == one.uid
    assert items == ["backs/H0", "backs/H1"]
    assert [kind for kind, _ in errors] == ["InvalidArgument", "NotFound", "InvalidArgument"]
    assert "2 items" in errors[0][1]
    assert "models:/NAME@ALIAS" in errors[2][1]
    assert count == 3


@pytest.mark.parametrize("scope", ["local", "global"])
def test_a_training_hands_its_models_over_at_its_end(
    scope: str, tmp_path, run_headrace, environment, server, ask
) -> None:
    (tmp_path / "sales.csv").write_text(SERIES)
    model = f"end-{scope}"
    words = [*TRAIN, "--model", model] + (["--global"] if scope == "global" else [])
    env = {**environment, "MLFLOW_TRACKING_URI": server.uri}
    done = run_headrace(*words, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"pushed to MLflow: {model}"), done.stdout
    assert ask(VERSIONS, name=model)
    assert registry.open(tmp_path / "registry").pushes("mlflow") == []

    off = {**env, "HEADRACE_MLFLOW": "off"}
    done = run_headrace(*words, "--json", env=off)
    assert done.returncode == 0, done.stderr
    assert "MLflow" not in done.stderr
    done = run_headrace(*words, "--json", env=env)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert f"pushed to MLflow: {model}" in done.stderr


def test_a_training_does_not_fail_with_mlflow(tmp_path, run_headrace, environment) -> None:
    (tmp_path / "sales.csv").write_text(SERIES)

    def train(python: str, uri: str) -> list[str]:
        env = {**environment, "HEADRACE_PYTHON": python, "MLFLOW_TRACKING_URI": uri}
        done = run_headrace(*TRAIN, env=env, timeout=60)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stderr.splitlines() if "MLflow" in line]

    r = registry.open(tmp_path / "registry")
    [line] = train(environment["HEADRACE_PYTHON"], "http://127.0.0.1:9")
    assert "wait in the registry" in line
    assert "headrace models push" in line
    count = len(r.pushes("mlflow"))
    assert count >= 2
    [line] = train(sys.executable, "http://127.0.0.1:9")
    assert "pip install mlflow-skinny" in line
    assert "wait in the registry" in line
    [line] = train("/nowhere/python", "http://127.0.0.1:9")
    assert "/nowhere/python" in line
    assert len(r.pushes("mlflow")) == 3 * count


def test_ctrl_c_ends_the_hand_over_at_once(tmp_path, headrace_binary, environment) -> None:
    (tmp_path / "sales.csv").write_text(SERIES)
    with socket.socket() as silent:  # takes connections, answers nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [str(headrace_binary), *TRAIN],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **environment,
                "MLFLOW_TRACKING_URI": uri,
                "HEADRACE_REGISTRY": str(tmp_path / "registry"),
            },
        )
        try:
            silent.settimeout(60)
            connection, _ = silent.accept()
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            code = process.wait(30)
            took_s = time.monotonic() - began
            errors = process.stderr.read()
            connection.close()
        finally:
            process.kill()
            process.wait(30)
    assert code == 130, errors
    assert took_s < 1.0
    assert "wait in the registry" in errors
    assert len(registry.open(tmp_path / "registry").pushes("mlflow")) >= 2


def test_without_a_client_or_a_server_the_message_says_what_to_do(r, run_headrace) -> None:
    add(r, "m", 1)
    nowhere = {"HEADRACE_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "python")}
    done = run_headrace("models", "push", env={**nowhere, "MLFLOW_TRACKING_URI": ""})
    assert done.returncode == 2
    assert "MLFLOW_TRACKING_URI" in done.stderr
    done = run_headrace("models", "push", "--mlflow", "http://127.0.0.1:9", env=nowhere)
    assert done.returncode == 2
    assert "pip install mlflow-skinny" in done.stderr
    done = run_headrace("models", "push", env={**nowhere, "HEADRACE_MLFLOW": "off"})
    assert done.returncode == 0
    assert "off" in done.stderr
