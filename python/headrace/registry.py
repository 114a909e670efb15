# SPDX-License-Identifier: Apache-2.0
"""Models, versions, aliases and their files: the registry of `headrace models`, from Python.

Never open a registry's `registry.db` with Python's `sqlite3`: two copies of SQLite in one process
break each other's locks, and a change that was reported as done can be lost. Once a registry is
open here, `sqlite3.connect` on its file raises. To look at the tables, use
`headrace models sql` or a copy made by `Registry.backup`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Union, runtime_checkable
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from headrace._core import native, need_pandas
from headrace._errors import InvalidArgument, Mismatch, NotFound
from headrace._registry_rows import item_of, metric
from headrace._registry_rows import lineage as lineage_of

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import torch

__all__ = ["Bundle", "Model", "Registry", "Version", "open", "open_file", "stage"]

Array = npt.NDArray[Any]
ModelSource = Union["Model", "_Parts", Mapping[str, Any], str, "os.PathLike[str]", None]
"""What can be registered: a model, named arrays, or a file or folder."""

# safetensors type -> numpy type. Types that numpy lacks come as raw bytes, but BF16 as float32.
_NUMPY = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}
_WITHOUT_FILE = ("seasonal_naive", "naive2", "last_value")
_SAFETENSORS = {np.dtype(numpy): name for name, numpy in _NUMPY.items()}


@runtime_checkable
class _Parts(Protocol):
    """A model in two parts, such as `headrace.forecast.Model`."""

    @property
    def header(self) -> dict[str, Any]: ...
    @property
    def tensors(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Version:
    """One registered version; what `headrace models show --json` prints."""

    name: str
    version: int
    uid: str
    state: str
    kind: str
    created: datetime
    once: str | None
    aliases: tuple[str, ...]
    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]
    lineage: dict[str, Any]
    artifacts: tuple[dict[str, Any], ...]
    header: dict[str, Any] | None
    metric_steps: dict[str, int] = field(default_factory=dict)
    """The step at which a metric was taken, where it has one."""

    @property
    def reference(self) -> str:
        """Name and number, e.g. "m4_hourly/H1:7"."""
        return f"{self.name}:{self.version}"

    def __repr__(self) -> str:
        """Say what it is; the rest is in the fields."""
        parts = [f"{self.reference}, kind {self.kind}"]
        parts += [f"aliases {' '.join(self.aliases)}"] if self.aliases else []
        plain = [name for name in self.metrics if "." not in name]  # not those of candidates
        parts += [f"metrics {' '.join(plain)}"] if plain else []
        return f"<headrace.registry.Version {', '.join(parts)}>"


class Model:
    """A model file, checked and mapped: `header` is JSON, `weights` are read-only arrays."""

    def __init__(self, file: Any, name: str = "") -> None:  # noqa: ANN401, D107 - see `Registry.load`
        self._file = file
        self._name = name
        self._weights: dict[str, Array] | None = None

    def __repr__(self) -> str:
        """Say which version it is, or that it is a file."""
        what = f"{len(self.items())} items" if self.items() else f"{len(self.weights)} tensors"
        kind = self.header.get("kind", "files")
        return f"<headrace.registry.Model {self._name or 'of a file'}, kind {kind}, {what}>"

    @property
    def header(self) -> dict[str, Any]:
        """Everything but the weights: kind, options, frequency, training, lineage."""
        return json.loads(self._file.header()) or {}

    @property
    def metadata(self) -> dict[str, str]:
        """The file's own metadata, as text."""
        return dict(self._file.metadata())

    @property
    def weights(self) -> dict[str, Array]:
        """Arrays on the mapping, without a copy (BF16 comes as float32, 8-bit floats as bytes)."""
        if self._weights is None:
            self._weights = {
                name: _as_array(dtype, shape, data)
                for name, dtype, shape, data in self._file.tensors()
            }
        return self._weights

    def items(self) -> list[str]:
        """Keys of a bundle's items; empty for a single model."""
        return [self._file.item_key(slot) for slot in range(self._file.item_count())]

    def item(self, key: str) -> Model:
        """One item of a bundle."""
        return Model(self._file.item(key))

    def to_torch(self) -> dict[str, torch.Tensor]:
        """Weights as torch tensors of their own (a copy: torch has no read-only tensors)."""
        import torch

        out: dict[str, torch.Tensor] = {}
        for name, dtype, shape, data in self._file.tensors():
            if dtype == "BF16":
                raw = torch.from_numpy(np.array(data).view("<i2"))
                out[name] = raw.view(torch.bfloat16).reshape(shape)
            else:
                out[name] = torch.from_numpy(np.array(_as_array(dtype, shape, data)))
        return out


class _HeaderOnly:
    """In the place of a model file, for a method without parameters."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._header = json.dumps(header)

    def header(self) -> str:
        return self._header

    def metadata(self) -> dict[str, str]:
        return {}

    def tensors(self) -> list[Any]:
        return []

    def item_count(self) -> int:
        return 0


class Registry:
    """An open registry. Thread-safe; after `os.fork` open it again in the child."""

    def __init__(self, handle: Any) -> None:  # noqa: ANN401, D107 - made by `open`
        self._handle = handle

    def __repr__(self) -> str:
        """Say where it lies."""
        return f"<headrace.registry.Registry {self.folder}>"

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return Path(self._handle.folder())

    @property
    def uuid(self) -> str:
        """The same in every copy of the folder."""
        return str(self._handle.uuid())

    def add(
        self,
        name: str,
        model: ModelSource = None,
        *,
        state_dict: Mapping[str, Any] | None = None,
        kind: str | None = None,
        header: Mapping[str, Any] | None = None,
        files: Mapping[str, str | os.PathLike[str] | bytes] | None = None,
        metrics: Mapping[str, float | tuple[float, int]] | None = None,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        table: Mapping[str, Any] | str | None = None,
        run: str | None = None,
        item: str | None = None,
        attempt: int = 0,
        code_version: str | None = None,
        parent: str | None = None,
        once: str | None = None,
    ) -> Version:
        """Register a model; it is on disk when this returns.

        `model` is a `Model`, one of `headrace.forecast`, a mapping of names to arrays, a
        safetensors file, or a file or folder of any kind (stored as it is, never executed or
        unpickled). `state_dict` takes torch tensors. `files` are further files by their name in
        the version. A metric is a number, or a pair of it and the step where it was taken. With
        `once`, a second call with the same key returns the version that exists; other weights
        under it are a `Mismatch`.

        >>> import numpy, headrace.registry
        >>> r = headrace.registry.open("models")
        >>> r.add("demo", {"w": numpy.zeros(3, "f4")}, metrics={"mase": 0.9}).version
        1
        """
        given = {k: v for k, v in locals().items() if k not in ("self", "name", "model")}
        return _version(self._handle.add(*_document(name, model, **given)))

    def add_all(self, versions: Sequence[Mapping[str, Any]]) -> list_[Version]:
        """Register many in one transaction, all or none; each entry has the arguments of `add`."""
        rows = self._handle.add_all([_document(**entry) for entry in versions])
        return [_version(row) for row in rows]

    def bundle(
        self,
        key: str,
        kind: str,
        parameters: Mapping[str, Sequence[int]],
        *,
        header: Mapping[str, Any] | None = None,
        dtype: str = "F32",
        scalars: Sequence[str] = (),
        metrics: Sequence[str] = (),
        run: str | None = None,
        table: Mapping[str, Any] | str | None = None,
        code_version: str | None = None,
    ) -> Bundle:
        """Write many models of one shape into few files; see `Bundle`.

        `key` names the work: what a killed process left under it is taken up again. `parameters`
        gives each parameter's shape, `scalars` and `metrics` what each item has beside weights.
        """
        common, _, _ = _document(
            "all", None, kind=kind, header=header, run=run, table=table, code_version=code_version
        )
        shapes = [(name, list(shape)) for name, shape in parameters.items()]
        writer = native.BundleWriter.make(
            self._handle, common, key, shapes, dtype, list(scalars), list(metrics)
        )
        return Bundle(writer, kind, parameters, scalars)

    def fetch(self, reference: str) -> list_[Version]:
        """Take what was pushed to MLflow into this registry: models:/NAME@ALIAS, models:/NAME/7.

        Returns its version, or those of all items of a run. The server is MLFLOW_TRACKING_URI's; a
        single version that is here already is not downloaded again. Needs the MLflow client.
        """
        from headrace import _mlflow_read

        return _mlflow_read.fetch(self, reference)

    def get(self, reference: str) -> Version:
        """Look a version up: NAME, NAME:7, NAME@alias, uid:HEX, run:RUN/ITEM or models:/."""
        if reference.startswith("models:/"):
            versions = self.fetch(reference)
            if len(versions) != 1:
                raise InvalidArgument(
                    f"registry: {reference} has {len(versions)} items; take them by `fetch`"
                )
            return versions[0]
        return _version(self._handle.find(reference))

    def load(self, reference: str) -> Model:
        """Open the model file of a version, checked and mapped.

        A method without parameters, such as seasonal naive, has no file: its model has a header
        and no weights. `headrace.forecast.predict` takes what this returns.
        """
        version = self.get(reference)
        kept = f"uid:{version.uid}"  # the same one, should an alias be moved meanwhile
        if version.kind in _WITHOUT_FILE and not version.artifacts and version.header:
            return Model(_HeaderOnly(version.header), version.reference)
        return Model(self._handle.load(kept), version.reference)

    def load_set(self, name: str) -> dict[str, Model]:
        """Load the models of a set by item: NAME or NAME/* of the newest, NAME@alias of an alias.

        `headrace.forecast.predict` takes what this returns.

        Raises:
            NotFound: there is no model below the name, or none under the alias.
        """
        prefix, at, alias = name.partition("@")
        prefix = prefix.removesuffix("/*")
        found = self.list(f"{prefix}/*", latest=not at, alias=alias)
        models = {item_of(one.name, one.lineage): self.load(f"uid:{one.uid}") for one in found}
        if not models:
            what = f"has the alias {alias}" if at else "is there"
            raise NotFound(f"registry: no model {prefix}/ITEM {what}; `list` shows them")
        return models

    def list(
        self,
        pattern: str = "",
        *,
        where: str = "",
        order_by: str = "name",
        descending: bool = False,
        latest: bool = False,
        deleted: bool = False,
        run: str = "",
        item: str = "",
        kind: str = "",
        alias: str = "",
        tags: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Version]:
        """Versions in order, read page by page.

        `pattern` is NAME (it and all below it), ``PREFIX/*`` or ``PREFIX/**``. `where` is a
        condition such as "mase < seasonal_naive.mase". `order_by` is "name", "created", "version"
        or a metric (NaN behind the numbers, models without it last).
        """
        query: dict[str, Any] = {
            "pattern": pattern,
            "where": where,
            "order_by": order_by,
            "descending": descending,
            "latest": latest,
            "deleted": deleted,
            "run": run,
            "item": item,
            "kind": kind,
            "alias": alias,
            "tags": dict(tags or {}),
        }
        left = limit
        while left is None or left > 0:
            query["limit"] = 1000 if left is None else min(left, 1000)
            rows, cursor = self._handle.list(json.dumps(query))
            yield from map(_version, rows)
            if not cursor:
                return
            query["cursor"] = cursor
            left = None if left is None else left - len(rows)

    def count(self, pattern: str = "", *, where: str = "") -> int:
        """How many versions match."""
        return int(self._handle.count(json.dumps({"pattern": pattern, "where": where})))

    def alias(
        self,
        reference: str,
        name: str,
        *,
        expect: int | None = None,
        remove: bool = False,
        reason: str = "",
    ) -> None:
        """Point alias `name` to a version; with `expect` only if it stands there now (0: unset)."""
        self._handle.set_alias(reference, name, expect, remove, reason)

    def tag(
        self, reference: str, tags: Mapping[str, str] | None = None, *, remove: Sequence[str] = ()
    ) -> None:
        """Set and remove tags of a version (a bare name means the model)."""
        self._handle.set_tags(reference, list((tags or {}).items()), list(remove))

    def delete(self, reference: str, *, force: bool = False) -> None:
        """Hide one version; `headrace models gc` takes its files later."""
        self._handle.remove(reference, force)

    def restore(self, reference: str) -> None:
        """Bring a deleted version back."""
        self._handle.restore(reference)

    def get_files(self, reference: str, folder: str | os.PathLike[str]) -> list_[Path]:
        """Copy a version's files into `folder` under their names."""
        return [Path(path) for path in self._handle.get(reference, os.fspath(folder))]

    def artifact_path(self, reference: str, path: str) -> Path:
        """Where the bytes of a version's file lie; never write there."""
        return Path(self._handle.artifact_path(reference, path))

    def export_file(
        self,
        file: str | os.PathLike[str],
        pattern: str = "",
        *,
        run: str = "",
        where: str = "",
        force: bool = False,
    ) -> int:
        """Write matching versions with their files into one tar; returns how many there are.

        Raises:
            AlreadyExists: a file is there; ``force`` replaces it.
        """
        return self._export(file, {"pattern": pattern, "run": run, "where": where}, force)

    def export_uid(self, file: str | os.PathLike[str], version: Version) -> int:
        """Write one version with its files into a tar."""
        return self._export(file, {"pattern": version.name, "uid": version.uid})

    def _export(
        self, file: str | os.PathLike[str], query: dict[str, Any], force: bool = False
    ) -> int:
        query["limit"] = 10_000
        return int(self._handle.export_file(json.dumps(query), os.fspath(file), force))

    def import_file(self, file: str | os.PathLike[str], *, keep_versions: bool = False) -> int:
        """Take in a tar of `export_file`; returns how many versions were new here."""
        return int(self._handle.import_file(os.fspath(file), keep_versions)[0])

    def import_incoming(self, folder: str | os.PathLike[str]) -> int:
        """Take in what `stage` put into `folder` on other hosts; returns how many were new."""
        added, conflicts = self._handle.import_incoming(os.fspath(folder))
        if conflicts:
            raise Mismatch("; ".join(conflicts))
        return int(added)

    def pushes(
        self, target: str = "", *, unfinished_only: bool = True, limit: int = 1000
    ) -> list_[dict[str, Any]]:
        """State of the hand-over of versions to another registry ("mlflow")."""
        return [json.loads(row) for row in self._handle.pushes(target, unfinished_only, limit)]

    def record_push(self, push: Mapping[str, Any]) -> None:
        """Store one row of `pushes` after a try."""
        self._handle.record_push(json.dumps(dict(push)))

    def request_push(self, pattern: str, target: str) -> int:
        """Ask for the hand-over of versions that were registered without it; returns how many."""
        query = {"pattern": pattern, "limit": 10_000}
        return int(self._handle.request_pushes(json.dumps(query), target))

    def backup(self, folder: str | os.PathLike[str]) -> None:
        """Copy the whole registry into a new folder while it is in use."""
        self._handle.backup(os.fspath(folder))

    def verify(self, *, deep: bool = False) -> list_[tuple[str, str]]:
        """What the database says against what lies in the folder; empty when clean."""
        return [(what, text) for what, text in self._handle.verify(deep)]

    def to_arrow(
        self, pattern: str = "", *, where: str = "", latest: bool = False
    ) -> pyarrow.Table:
        """All matching versions as a table: attributes, `metric.NAME` and `param.NAME` columns."""
        import pyarrow as pa

        columns = self._columns(pattern, where, latest)
        arrays: dict[str, Any] = {}
        for name, offsets, data, valid in columns["texts"]:
            arrays[name] = _arrow_text(pa, offsets, data, valid)
        for name, values in columns["wholes"]:
            arrays[name] = pa.array(values)
        arrays["created"] = arrays.pop("created_us").cast(pa.timestamp("us", tz="UTC"))
        for name, values, valid in columns["metrics"]:
            arrays[f"metric.{name}"] = pa.array(values, mask=valid == 0)
        for name, offsets, data, valid in columns["params"]:
            arrays[f"param.{name}"] = _arrow_text(pa, offsets, data, valid)
        return pa.table(arrays)

    def to_pandas(
        self, pattern: str = "", *, where: str = "", latest: bool = False
    ) -> pandas.DataFrame:
        """All matching versions as a data frame; goes through Arrow."""
        need_pandas()
        return self.to_arrow(pattern, where=where, latest=latest).to_pandas()

    def _columns(self, pattern: str, where: str, latest: bool) -> dict[str, Any]:
        query = {"pattern": pattern, "where": where, "latest": latest}
        columns: dict[str, Any] = self._handle.columns(json.dumps(query))
        return columns


class Bundle:
    """Writer of `Registry.bundle`: add items, then leave the `with` block or call `seal`."""

    def __init__(  # noqa: D107 - made by `Registry.bundle`
        self,
        writer: Any,  # noqa: ANN401 - the native handle
        kind: str,
        parameters: Mapping[str, Sequence[int]],
        scalars: Sequence[str],
    ) -> None:
        self._writer = writer
        self._kind = kind
        self._parameters = {p: tuple(shape) for p, shape in parameters.items()}
        self._scalars = list(scalars)

    def __enter__(self) -> Bundle:
        """Nothing happens before the first item."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Seal, or after an exception make what was added durable for the next writer."""
        try:
            if kind is None:
                self.seal()
            else:
                self._open().flush()
        finally:
            self._writer = None  # lets go of the part, so that the next writer may take it up

    def _open(self) -> Any:  # noqa: ANN401 - the native handle
        if self._writer is None:
            raise InvalidArgument(
                "this bundle is closed: its `with` block ended; make another with Registry.bundle"
            )
        return self._writer

    def add(
        self,
        name: str,
        key: str,
        weights: Mapping[str, Any],
        *,
        scalars: Mapping[str, float] | None = None,
        **details: Any,  # noqa: ANN401 - those of Registry.add
    ) -> None:
        """Add one item: `name` is the model's, `key` the item's in the bundle."""
        document, _, _ = _document(name, None, kind=self._kind, **details)
        if set(weights) != set(self._parameters):
            raise InvalidArgument(
                f"registry: {name}: the weights are {', '.join(weights)}, not those of the bundle: "
                f"{', '.join(self._parameters)}"
            )
        for parameter, shape in self._parameters.items():
            if np.shape(weights[parameter]) != shape:
                raise InvalidArgument(
                    f"registry: {name}: {parameter} has shape {np.shape(weights[parameter])}; the "
                    f"bundle declares {shape}"
                )
        parts = [np.asarray(weights[p], "<f4").reshape(-1) for p in self._parameters]
        values = np.array([(scalars or {})[s] for s in self._scalars], "<f8")
        self._open().append(document, key, np.concatenate(parts), values)

    def flush(self) -> None:
        """Wait until everything added so far is on disk."""
        self._open().flush()

    def seal(self) -> int:
        """Finish the file and list its items; returns how many were sealed so far."""
        items, conflicts = self._open().seal()
        if conflicts:
            raise Mismatch("; ".join(conflicts))
        return int(items)


list_ = list  # the name inside the class is the method


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    create: bool = True,
    read_only: bool = False,
    lock_timeout: float = 30.0,
    push_to: Sequence[str] | None = None,
    shared_group: bool = False,
) -> Registry:
    """Open a registry folder (default: HEADRACE_REGISTRY, else the user's), making it if needed.

    `lock_timeout` is in seconds: how long a change waits for other writers. `push_to` names the
    registries that each new version is to be handed to (`headrace models push` does it); by default
    "mlflow" when MLFLOW_TRACKING_URI is set and HEADRACE_MLFLOW is not "off". With `shared_group`
    a new registry may be read and written by its group; else by nobody but the user.
    """
    if push_to is None:
        push_to = native.registry_push_targets()
    folder = "" if url is None else os.fspath(url)
    handle = native.Registry.open(
        folder, create, read_only, lock_timeout, list(push_to), shared_group
    )
    registry = Registry(handle)
    _guard(registry.folder / "registry.db")
    return registry


def open_file(
    path: str | os.PathLike[str], *, copy: bool = False, allow_nonfinite: bool = False
) -> Model:
    """Open a model file or bundle that lies anywhere; `copy` reads it instead of mapping it."""
    return Model(native.ModelFile.open(os.fspath(path), copy, allow_nonfinite))


def stage(
    folder: str | os.PathLike[str],
    name: str,
    model: ModelSource = None,
    **details: Any,  # noqa: ANN401 - those of Registry.add
) -> str:
    """Put a version into a shared folder, for a registry on another host; returns its uid.

    Takes what `Registry.add` takes. `Registry.import_incoming` or `headrace models import FOLDER`
    on the host with the registry takes it in.
    """
    return str(native.registry_stage(os.fspath(folder), *_document(name, model, **details)))


# --- what surrounds a version ------------------------------------------------------------------


def _document(
    name: str,
    model: ModelSource = None,
    *,
    state_dict: Mapping[str, Any] | None = None,
    kind: str | None = None,
    header: Mapping[str, Any] | None = None,
    files: Mapping[str, str | os.PathLike[str] | bytes] | None = None,
    metrics: Mapping[str, float | tuple[float, int]] | None = None,
    params: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    table: Mapping[str, Any] | str | None = None,
    parent: str | None = None,
    once: str | None = None,
    **lineage: Any,  # noqa: ANN401
) -> tuple[str, list[Any], list[Any]]:
    """A version as JSON, and what it is made of, as the native calls take them."""
    tensors, artifacts, found_kind = _contents(model, state_dict)
    if header is None and isinstance(model, (Model, _Parts)):
        header = model.header
    for path, content in (files or {}).items():
        artifacts.append(_artifact(path, content))
    document: dict[str, Any] = {
        "name": name,
        "kind": kind or found_kind,
        "header": dict(header or {}),
        "metrics": [metric(key, value) for key, value in (metrics or {}).items()],
        "params": [[key, str(value)] for key, value in (params or {}).items()],
        "tags": [[key, value] for key, value in (tags or {}).items()],
        "lineage": lineage_of(table, **lineage),
    }
    if once is not None:
        document["once"] = once
    if parent is not None:
        document["parent"] = parent
    return json.dumps(document), tensors, artifacts


def _version(text: str) -> Version:
    row = json.loads(text)
    return Version(
        name=row["name"],
        version=row["version"],
        uid=row["uid"],
        state=row["state"],
        kind=row["kind"],
        created=datetime.fromisoformat(row["created"].replace("Z", "+00:00")).astimezone(
            timezone.utc
        ),
        once=row["once"],
        aliases=tuple(row["aliases"]),
        metrics={key: float(value) for key, value in row["metrics"].items()},
        params=row["params"],
        tags=row["tags"],
        lineage=row["lineage"],
        artifacts=tuple(row["artifacts"]),
        header=row.get("header"),
        metric_steps=row.get("metric_steps", {}),
    )


# --- weights and files -------------------------------------------------------------------------


def _as_array(dtype: str, shape: Sequence[int], data: Array) -> Array:
    if dtype == "BF16":
        wide = data.view("<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(shape)
    numpy = _NUMPY.get(dtype)
    return data if numpy is None else data.view(numpy).reshape(shape)


def _tensor(name: str, value: Any) -> tuple[str, str, list[int], Array]:  # noqa: ANN401
    if hasattr(value, "detach"):  # a torch tensor; torch itself need not be imported here
        value = value.detach().cpu().contiguous()
        shape = list(value.shape)
        if str(value.dtype) == "torch.bfloat16":
            import torch

            raw = value.view(torch.int16).numpy()
            return name, "BF16", shape, raw.reshape(-1).view("u1")
        value = value.numpy()
    array = np.asarray(value)
    dtype = _SAFETENSORS.get(
        array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype
    )
    if dtype is None:
        raise InvalidArgument(
            f'registry: tensor "{name}" has type {array.dtype}, which a model file cannot hold; '
            f"convert it to one of {', '.join(str(t) for t in _SAFETENSORS)}"
        )
    flat = np.ascontiguousarray(array.astype(_NUMPY[dtype], copy=False)).reshape(-1)
    return name, dtype, list(array.shape), flat.view("u1")


def _artifact(
    path: str, content: str | os.PathLike[str] | bytes, kind: str = "file"
) -> tuple[str, str, str | None, bytes | None]:
    if isinstance(content, bytes):
        return path, kind, None, content
    return path, kind, os.fspath(content), None


def _contents(
    model: ModelSource, state_dict: Mapping[str, Any] | None
) -> tuple[list[Any], list[Any], str]:
    if state_dict is not None:
        if model is not None:
            raise InvalidArgument("registry: give a model or a state_dict, not both")
        return [_tensor(name, value) for name, value in state_dict.items()], [], "torch"
    if model is None:
        return [], [], "files"
    if isinstance(model, Model):
        tensors = [tuple(row) for row in model._file.tensors()]
        return tensors, [], str(model.header.get("kind", "files"))
    if isinstance(model, _Parts):
        rows = [_tensor(name, value) for name, value in model.tensors.items()]
        return rows, [], str(model.header.get("kind", "files"))
    if isinstance(model, Mapping):
        return [_tensor(name, value) for name, value in model.items()], [], "weights"
    path = Path(model)
    if path.is_dir():
        files = sorted(found for found in path.rglob("*") if found.is_file())
        return (
            [],
            [_artifact(found.relative_to(path).as_posix(), found) for found in files],
            "files",
        )
    if path.suffix == ".safetensors":
        kind = open_file(path).header.get("kind", "weights")  # refuses a damaged file here
        return [], [_artifact("model.safetensors", path, "model")], str(kind)
    return [], [_artifact(path.name, path)], "files"


def _arrow_text(pa: Any, offsets: Array, data: Array, valid: Array) -> Any:  # noqa: ANN401
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_utf8(), len(valid), buffers)


# --- two copies of SQLite in one process -------------------------------------------------------

_guarded: set[str] = set()


def _guard(path: Path) -> None:
    """Make `sqlite3.connect` refuse this file from now on."""
    if not _guarded:
        sys.addaudithook(_on_audit)
    _guarded.add(os.path.realpath(path))


def _is_same_file(path: str, ours: str) -> bool:
    """By what lies there now: a number of a file that is gone may be another file's."""
    try:
        return os.path.samefile(path, ours)
    except (OSError, ValueError):
        return False


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "sqlite3.connect":
        return
    database = arguments[0]
    if not isinstance(database, str | bytes | os.PathLike):
        return
    path = os.fsdecode(database)
    if path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    if any(_is_same_file(path, ours) for ours in _guarded):
        raise InvalidArgument(
            f"registry: {path} is open in headrace; a second SQLite in one process would break its "
            "locks and lose changes. Use `headrace models sql`, or a copy made by "
            "`headrace models backup`"
        )
