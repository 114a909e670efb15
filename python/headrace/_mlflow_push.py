# SPDX-License-Identifier: Apache-2.0
"""Drain the registry's list of versions that MLflow should have.

Each step looks first whether it was done before: a run, a registered model and a version carry tags
that name what they mirror, so that a push which was cut off anywhere is simply done again.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from headrace import _mlflow_aliases, _mlflow_model, registry
from headrace._errors import Error, InvalidArgument

TARGET = "mlflow"
# What servers enforce per call (mlflow.utils.validation); in-process stores do not, so always keep.
METRICS_MAX = 1000
PARAMS_MAX = 100
TAGS_MAX = 100
PARAM_BYTES = 6000
TAG_BYTES = 8000
KEY_BYTES = 250
CUT = " ... (cut; the whole text is an artifact)"
BACKOFF_S = 10.0
BACKOFF_MAX_S = 600.0
# A run to which something is always added is pushed all the same after so many settling times.
SETTLE_TIMES_MAX = 60
PENDING_MAX = 1_000_000
# A run of MLflow per item: above this its pages and its server no longer serve.
ITEM_RUNS_MAX = 1000
INTERRUPTED = 130
# What is cut off by Ctrl-C is undone (folders) within this, or left.
INTERRUPT_GRACE_S = 0.5

T = TypeVar("T")


def main(arguments: list[str]) -> int:
    """Parse, connect, drain; 0 when nothing is left, 1 when something is, 2 for wrong use.

    130 when interrupted: what was not recorded as done is found in MLflow by the next push.
    """
    signal.signal(signal.SIGINT, _on_interrupt)
    signal.signal(signal.SIGTERM, _on_interrupt)
    try:
        return _run(_options(arguments))
    except Error as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # the client's threads may hang in a request


def _on_interrupt(number: int, frame: object) -> None:
    signal.signal(signal.SIGALRM, lambda *_: os._exit(INTERRUPTED))
    signal.setitimer(signal.ITIMER_REAL, INTERRUPT_GRACE_S)
    raise KeyboardInterrupt


def _run(options: argparse.Namespace) -> int:
    if os.environ.get("HEADRACE_MLFLOW") == "off":
        print("headrace: MLflow is off (HEADRACE_MLFLOW=off)", file=sys.stderr)
        return 0
    uri = options.mlflow or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        return _fail("no MLflow is named: give --mlflow URI or set MLFLOW_TRACKING_URI")
    try:
        import mlflow
    except ImportError:
        return _fail("the MLflow client is not installed; pip install mlflow-skinny")
    r = registry.open(options.registry, create=False)
    if options.all:
        r.request_push(options.pattern, TARGET)
    if options.force:
        _ask_again_for_foreign(r)
    registry_uri = os.environ.get("MLFLOW_REGISTRY_URI")
    mirror = Mirror(mlflow, uri, registry_uri, force=options.force)
    while True:
        report = drain(r, mirror, options)
        _print(report, options.json)
        if not options.follow:
            return 0 if report.left == 0 else 1
        time.sleep(5.0)


def _ask_again_for_foreign(r: registry.Registry) -> None:
    """Aliases that were left as somebody set them in MLflow: once more, for --force."""
    for push in r.pushes(TARGET, unfinished_only=False, limit=PENDING_MAX):
        if push["state"] == "done" and (push["remote"] or {}).get("foreign_aliases"):
            r.record_push({**push, "state": "waiting", "next_us": 0})


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headrace models push")
    commands = parser.add_subparsers(required=True)
    push = commands.add_parser("push")
    push.add_argument("--registry", default="")
    push.add_argument("--mlflow", default="")
    push.add_argument("--pattern", default="")
    push.add_argument("--run", default="")
    push.add_argument("--items", choices=("bundle", "runs"), default="bundle")
    push.add_argument("--give-up", type=float, default=7 * 86400.0)
    push.add_argument("--settle", type=float, default=60.0)
    for flag in ("--all", "--follow", "--force", "--json"):
        push.add_argument(flag, action="store_true")
    return parser.parse_args(arguments)


def _fail(message: str) -> int:
    print(f"headrace: {message}", file=sys.stderr)
    return 2


@dataclass
class Report:
    """What one pass over the list did."""

    pushed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: int = 0
    settling: int = 0
    """Of those left: items of runs that seem to go on."""


def _print(report: Report, as_json: bool) -> None:
    if as_json:
        print(json.dumps(vars(report), indent=2), flush=True)
        return
    for reference in report.pushed:
        print(reference, flush=True)  # with --follow somebody may be reading a pipe
    for note in [*report.notes, *report.errors]:
        print(f"headrace: {note}", file=sys.stderr)
    if report.left > report.settling:
        print(
            f"headrace: {report.left} versions wait; `headrace models list --unpushed` shows why",
            file=sys.stderr,
        )


# --- what is to be pushed together -------------------------------------------------------------


@dataclass
class Unit:
    """One MLflow model version: a single version of ours, or all items of a run."""

    name: str
    uid: str
    versions: list[registry.Version]
    due: list[dict[str, Any]]
    """Pushes whose time has come; never empty."""
    run: str | None
    of_items: bool
    others: list[dict[str, Any]] = field(default_factory=list)
    """Pushes of the same items whose time has not come: done too once the unit is."""
    gone: dict[str, Any] | None = None
    """Of a deleted version: what it is in MLflow, where its aliases must go."""


def _units(
    r: registry.Registry, pending: Sequence[dict[str, Any]], items: str, now_s: float
) -> Iterator[Unit]:
    # Looked up are due pushes alone: with --follow the others are many, and stay for long.
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    waiting: dict[str, dict[str, Any]] = {}
    counts: dict[str, int] = {}
    for push in pending:
        if not _is_due(push, now_s):
            waiting[push["uid"]] = push
            continue
        if push["deleted"]:
            gone = push["remote"]
            name = gone.get("of") or push["reference"].rpartition(":")[0]
            yield Unit(name, push["uid"], [], [push], None, bool(gone.get("items")), gone=gone)
            continue
        version = r.get(f"uid:{push['uid']}")
        run, item = version.lineage["run"], version.lineage["item"]
        if items == "bundle" and run and item and "/" in version.name:
            groups[run, version.name.rpartition("/")[0]].append(push)
            continue
        if run and item and items == "runs":
            _check_item_runs(r, run, counts)
        yield Unit(version.name, version.uid, [version], [push], run, False)
    for (run, prefix), due in groups.items():
        newest: dict[str, registry.Version] = {}
        others: list[dict[str, Any]] = []
        for version in r.list(f"{prefix}/*", run=run):
            if not version.lineage["item"]:
                continue
            newest[version.name] = version  # versions come in ascending order
            if version.uid in waiting and version.name.rpartition("/")[0] == prefix:
                others.append(waiting[version.uid])
        versions = list(newest.values())
        # The same set has the same uid, before and after a crash: MLflow is asked for it first.
        digest = blake2b(",".join(sorted(v.uid for v in versions)).encode(), digest_size=16)
        yield Unit(prefix, digest.hexdigest(), versions, due, run, True, others)


def _check_item_runs(r: registry.Registry, run: str, counts: dict[str, int]) -> None:
    if run not in counts:
        counts[run] = sum(1 for version in r.list(run=run) if version.lineage["item"])
    if counts[run] > ITEM_RUNS_MAX:
        raise InvalidArgument(
            f"run {run} has {counts[run]} items; --items runs makes a run of MLflow for each, for "
            f"{ITEM_RUNS_MAX} at most; push it with --items bundle"
        )


def _is_due(push: Mapping[str, Any], now_s: float) -> bool:
    return bool(push["state"] == "waiting" and push["next_us"] <= now_s * 1e6)


def is_settled(created_s: Sequence[float], now_s: float, settle_s: float) -> bool:
    """Whether a run has ended, as far as its versions tell: `created_s` are their times.

    A run under way gets another item every few seconds, and each set of items is a model version
    in MLflow. So the last one must be older than `settle_s`; the first older than 60 times that
    is enough too.
    """
    age_s = now_s - max(created_s)
    return age_s >= settle_s or now_s - min(created_s) >= SETTLE_TIMES_MAX * settle_s


def _waits_for_more(unit: Unit, settle_s: float, now_s: float) -> bool:
    if not unit.of_items:
        return False
    uids = {push["uid"] for push in unit.due}
    # What was pushed before does not make the rest older.
    created_s = [v.created.timestamp() for v in unit.versions if v.uid in uids]
    return bool(created_s) and not is_settled(created_s, now_s, settle_s)


def drain(r: registry.Registry, mirror: Mirror, options: argparse.Namespace) -> Report:
    """Push what is due; an unreachable server ends the pass, another error only its unit."""
    now_s = time.time()
    pending = _pending(r, options)
    report = Report()
    for unit in _units(r, pending, options.items, now_s):
        if options.follow and _waits_for_more(unit, options.settle, now_s):
            report.settling += len(unit.due)
            continue
        try:
            # The client prints links to runs on stdout, where our report goes.
            with redirect_stdout(sys.stderr):
                remote = mirror.push(r, unit)
        except Exception as error:  # what a client raises has no common base
            _note_failure(r, unit, error, options.give_up)
            report.errors.append(f"{unit.name}: {_text_of(error)}")
            if mirror.is_unreachable(error):
                break
            continue
        for push in [*unit.due, *unit.others]:
            done = {**push, "state": "done", "tries": push["tries"] + 1, "remote": remote}
            # Should an alias have changed meanwhile, it stays due.
            r.record_push({**done, "error": "", "seen_us": push["next_us"]})
        report.pushed.append(f"{unit.name} -> {remote['name']} version {remote['version']}")
    report.notes = mirror.take_notes()
    report.left = len(_pending(r, options))
    return report


def _pending(r: registry.Registry, options: argparse.Namespace) -> list[dict[str, Any]]:
    pending = r.pushes(TARGET, unfinished_only=True, limit=PENDING_MAX)
    if not options.run:
        return pending
    uids = {version.uid for version in r.list(run=options.run)}
    return [push for push in pending if push["uid"] in uids]


def _note_failure(r: registry.Registry, unit: Unit, error: Exception, give_up_s: float) -> None:
    for push in unit.due:
        tries = push["tries"] + 1
        pause = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(tries - 1, 10))
        r.record_push(
            {
                **push,
                # Counted in tries of the longest pause: a version is not to blame for its age.
                "state": "failed" if tries * BACKOFF_MAX_S > give_up_s else "waiting",
                "tries": tries,
                "next_us": int((time.time() + pause) * 1e6),
                "error": _text_of(error),
            }
        )


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


# --- one MLflow server -------------------------------------------------------------------------


class Mirror:
    """Writes to one MLflow, through its own client."""

    def __init__(
        self,
        mlflow: Any,  # noqa: ANN401 - the client's module
        uri: str,
        registry_uri: str | None,
        *,
        force: bool,
    ) -> None:
        self._mlflow = mlflow
        self._entities = mlflow.entities
        self._client = mlflow.MlflowClient(uri, registry_uri or uri)
        self._unity = (registry_uri or uri).startswith("databricks-uc")
        self._force = force
        self._experiments: dict[str, str] = {}
        self._notes: list[str] = []

    def take_notes(self) -> list[str]:
        """What a person should know of the pass."""
        notes, self._notes = self._notes, []
        return notes

    def is_unreachable(self, error: Exception) -> bool:
        """The server did not answer at all: trying the next version makes no sense."""
        text = str(error)
        return isinstance(error, ConnectionError) or any(
            sign in text for sign in ("Max retries exceeded", "Connection refused", "timed out")
        )

    def push(self, r: registry.Registry, unit: Unit) -> dict[str, Any]:
        """Mirror one unit; what is there already is found by its tag."""
        if unit.gone is not None:
            return self._take_aliases(r, unit, unit.gone)
        name = self._registered_model(unit.name)
        found = self._find_version(name, unit.uid)
        if found is None:
            run_id = self._run(unit)
            self._log_run(run_id, unit)
            with tempfile.TemporaryDirectory() as folder:
                _mlflow_model.write_folder(
                    Path(folder), r, unit.name, unit.versions, run_id, self._mlflow.__version__
                )
                self._client.log_artifacts(run_id, folder, "model")
            self._client.create_model_version(
                name, f"runs:/{run_id}/model", run_id, tags=_version_tags(unit)
            )
            self._client.set_terminated(run_id)
            found = self._find_version(name, unit.uid)
            if found is None:
                raise RuntimeError(f"MLflow reported version of {name} as made, but has none")
        ours = set.intersection(*(set(v.aliases) for v in unit.versions))
        foreign = self._aliases(r, unit, name, str(found.version), ours)
        return {
            "name": name,
            "version": found.version,
            "run_id": found.run_id,
            "of": unit.name,
            "items": unit.of_items,
            "foreign_aliases": foreign,
        }

    def _take_aliases(
        self, r: registry.Registry, unit: Unit, gone: dict[str, Any]
    ) -> dict[str, Any]:
        self._aliases(r, unit, gone["name"], str(gone["version"]), set())
        return gone

    def _aliases(
        self, r: registry.Registry, unit: Unit, name: str, version: str, wanted: set[str]
    ) -> list[str]:
        run = (unit.run or "") if unit.of_items else None
        elsewhere = _mlflow_aliases.stands_on_another(r, unit.name, run)
        aliases = _mlflow_aliases.Aliases(name, version, wanted, elsewhere, r.uuid)
        aliases.hand_over(self._client, self._force)
        self._notes += aliases.notes
        return aliases.foreign

    # Registered models and versions.

    def _registered_model(self, ours: str) -> str:
        """The name in MLflow, which refuses '/' and ':'; made if needed."""
        base = re.sub(r"[/:]", ".", ours)
        template = os.environ.get("HEADRACE_MLFLOW_NAME_TEMPLATE", "{name}")
        other = f"{base}-{blake2b(ours.encode(), digest_size=4).hexdigest()}"
        for candidate in (template.format(name=base), template.format(name=other)):
            try:
                model = self._client.get_registered_model(candidate)
            except self._mlflow.exceptions.MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                self._create_model(candidate, ours)
                model = self._client.get_registered_model(candidate)
            if model.tags.get("headrace.name", ours) == ours:
                return candidate
        raise RuntimeError(f"{base} and {other} both belong to other models of headrace in MLflow")

    def _create_model(self, name: str, ours: str) -> None:
        try:
            self._client.create_registered_model(name, tags={"headrace.name": ours})
        except self._mlflow.exceptions.MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another pusher was first
                raise

    def _find_version(self, name: str, uid: str) -> Any | None:  # noqa: ANN401
        quoted = name.replace("'", "''")
        condition = f"name='{quoted}'"
        if not self._unity:  # Unity Catalog takes one simple condition
            condition += f" and tags.`headrace.uid` = '{uid}'"
        found = [
            version
            for version in self._client.search_model_versions(condition)
            if version.tags.get("headrace.uid") == uid
        ]
        found.sort(key=lambda version: int(version.version))
        # A call that was cut off after the server had acted may have left a second one.
        for extra in found[1:]:
            self._client.delete_model_version(name, extra.version)
        return found[0] if found else None

    # Runs.

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            found = self._client.get_experiment_by_name(name)
            if found is None:
                try:
                    self._experiments[name] = str(self._client.create_experiment(name))
                    return self._experiments[name]
                except self._mlflow.exceptions.MlflowException as error:
                    if error.error_code != "RESOURCE_ALREADY_EXISTS":
                        raise
                    found = self._client.get_experiment_by_name(name)
            self._experiments[name] = str(found.experiment_id)
        return self._experiments[name]

    def _find_run(self, experiment: str, tag: str, value: str) -> str | None:
        found = self._client.search_runs(
            [experiment], f"tags.`{tag}` = '{value}'", max_results=1, order_by=["start_time ASC"]
        )
        return str(found[0].info.run_id) if found else None

    def _make_run(
        self, experiment: str, identity: tuple[str, str], name: str, tags: Mapping[str, str]
    ) -> str:
        run_id = self._find_run(experiment, *identity)
        if run_id is None:
            all_tags = {
                identity[0]: identity[1],
                "mlflow.source.name": "headrace",
                "mlflow.source.type": "LOCAL",
                "mlflow.user": _user(),
                **tags,
            }
            run = self._client.create_run(experiment, tags=all_tags, run_name=name)
            run_id = str(run.info.run_id)
        return run_id

    def _run(self, unit: Unit) -> str:
        experiment = self._experiment(unit.name.partition("/")[0])
        if unit.of_items:
            identity = ("headrace.group", unit.uid)
            return self._make_run(
                experiment, identity, str(unit.run), {"headrace.run": str(unit.run)}
            )
        tags = {}
        if unit.run:
            parent = self._make_run(experiment, ("headrace.run", unit.run), unit.run, {})
            tags["mlflow.parentRunId"] = parent
        return self._make_run(
            experiment, ("headrace.uid", unit.uid), unit.versions[0].reference, tags
        )

    def _log_run(self, run_id: str, unit: Unit) -> None:
        metrics, tags = _metrics_of(unit)
        params, long_params = _cut(_params_of(unit), PARAM_BYTES)
        tags, long_tags = _cut(tags, TAG_BYTES)
        now_ms = int(time.time() * 1000)
        for values in _chunks(sorted(metrics.items()), METRICS_MAX):
            entries = [self._entities.Metric(k, v, now_ms, step) for k, (v, step) in values]
            self._client.log_batch(run_id, metrics=entries)
        for chunk in _chunks(sorted(params.items()), PARAMS_MAX):
            self._client.log_batch(run_id, params=[self._entities.Param(k, v) for k, v in chunk])
        for chunk in _chunks(sorted(tags.items()), TAGS_MAX):
            self._client.log_batch(run_id, tags=[self._entities.RunTag(k, v) for k, v in chunk])
        for path, text in {
            **{f"params/{k}.txt": v for k, v in long_params.items()},
            **{f"tags/{k}.txt": v for k, v in long_tags.items()},
        }.items():
            self._client.log_text(run_id, text, path)
        self._log_table(run_id, unit)

    def _log_table(self, run_id: str, unit: Unit) -> None:
        table = unit.versions[0].lineage["table"]
        if table is None:
            return
        digest = (table["digest"] or table["version"] or "unknown")[:36]
        source = json.dumps({"url": _stripped(table["url"]), "version": table["version"]})
        dataset = self._entities.Dataset(
            name=_stripped(table["url"])[-500:],
            digest=digest,
            source_type=table["format"] or "table",
            source=source,
            profile=json.dumps({"num_rows": table["rows"]}),
        )
        self._client.log_inputs(run_id, [self._entities.DatasetInput(dataset, [])])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid {os.getuid()}"


def _version_tags(unit: Unit) -> dict[str, str]:
    tags = {"headrace.uid": unit.uid, "headrace.name": unit.name}
    if unit.of_items:
        tags["headrace.run"] = str(unit.run)
        tags["headrace.items"] = str(len(unit.versions))
        return tags
    version = unit.versions[0]
    tags["headrace.version"] = str(version.version)
    for artifact in version.artifacts:
        if artifact["path"] == "model.safetensors":
            tags["headrace.blake2b"] = artifact["hash"]
    return tags


def _key(name: str) -> str:
    """A key that MLflow takes: letters, digits and `_ - . : / blank`."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII).strip("/ ")[:KEY_BYTES] or "_"


def _metrics_of(unit: Unit) -> tuple[dict[str, tuple[float, int]], dict[str, str]]:
    """Metrics as (value, step), and tags: infinities too, because SQL stores clip them."""
    tags = {_key(k): v for k, v in unit.versions[0].tags.items()} if not unit.of_items else {}
    metrics: dict[str, tuple[float, int]] = {}
    if not unit.of_items:
        for name, value in unit.versions[0].metrics.items():
            metrics[_key(name)] = (value, unit.versions[0].metric_steps.get(name, 0))
            if value in (float("inf"), float("-inf")):
                tags[f"headrace.metric.{_key(name)}"] = "Infinity" if value > 0 else "-Infinity"
        return metrics, tags
    columns: dict[str, list[float]] = defaultdict(list)
    for version in unit.versions:
        for name, value in version.metrics.items():
            columns[_key(name)].append(value)
    bad = 0
    for name, values in columns.items():
        finite = [v for v in values if abs(v) < float("inf")]
        bad = max(bad, len(values) - len(finite))
        if not finite:
            continue
        metrics[f"{name}.mean"] = (mean(finite), 0)
        metrics[f"{name}.median"] = (median(finite), 0)
        p90 = quantiles(finite, n=10, method="inclusive")[8] if len(finite) > 1 else finite[0]
        metrics[f"{name}.p90"] = (p90, 0)
    metrics["items"] = (float(len(unit.versions)), 0)
    metrics["failed"] = (float(bad), 0)
    return metrics, tags


def _params_of(unit: Unit) -> dict[str, str]:
    """Params of the version, or those that all items share."""
    params = dict(unit.versions[0].params)
    for version in unit.versions[1:]:
        params = {k: v for k, v in params.items() if version.params.get(k) == v}
    return {_key(name): value for name, value in params.items()}


def _cut(texts: Mapping[str, str], limit: int) -> tuple[dict[str, str], dict[str, str]]:
    """Texts that fit, and the whole of those that had to be cut."""
    cut: dict[str, str] = {}
    whole: dict[str, str] = {}
    for name, text in texts.items():
        raw = text.encode()
        if len(raw) > limit:
            whole[name] = text
            text = raw[: limit - len(CUT)].decode(errors="ignore") + CUT
        cut[name] = text
    return cut, whole


def _chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    chunk: list[T] = []
    for value in values:
        chunk.append(value)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _stripped(url: str) -> str:
    """Without user, password and query."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
