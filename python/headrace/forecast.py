# SPDX-License-Identifier: Apache-2.0
"""DeepAR forecasts: tables in, models and tables out.

A table is a path (Parquet, CSV or GluonTS JSON lines; a file, a folder, a glob) or anything with
``__arrow_c_stream__``: a pandas or polars frame, a pyarrow table. It is long: a row per item and
time stamp. Results leave as Arrow streams.

>>> from headrace import forecast
>>> models = forecast.train("examples/m4_hourly/lake", horizon=48, items=["H1"],
...                         epochs=1, batches_per_epoch=2)
>>> len(forecast.predict(models, "examples/m4_hourly/lake", items=["H1"]))
48
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, overload

import numpy as np
import numpy.typing as npt

from headrace._core import native, need_pandas

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = [
    "Failure",
    "Forecasts",
    "Model",
    "Models",
    "Option",
    "Scores",
    "Stored",
    "Table",
    "backtest",
    "evaluate",
    "options",
    "predict",
    "train",
]

Progress = Callable[[int, int], object]
"""Called every 0.1 s with what is done and the total (items, or epochs of a global model)."""


@dataclass(frozen=True)
class Failure:
    """An item that failed while the others went on."""

    item: str
    code: str
    """Kind of failure, as in ``headrace.Error.code``."""
    message: str


@dataclass(frozen=True)
class Option:
    """One option of training, prediction or backtests."""

    name: str
    group: str
    type: str
    default: str
    help: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table whose columns or format are not the usual ones."""

    source: object
    """A path, or an object with ``__arrow_c_stream__``."""
    id: str = ""
    """Column of the item; empty for item_id or unique_id."""
    time: str = ""
    """Column of the time stamp; empty for timestamp or ds."""
    target: str = ""
    """Column of the values; empty for target or y."""
    frequency: str = ""
    """h, D, W, MS, 15min, ...; empty for the most common step."""
    format: str = ""
    """parquet, csv, wide_csv or jsonl; empty: by the name's ending."""
    start: str = ""
    """First stamp of a wide table, which has none of its own."""
    aggregate: str = "error"
    """Rows of one item and stamp: error, sum, mean or last."""
    zone: str = ""
    """UTC: stamps with a zone are instants, those without are taken for UTC."""
    allow_missing_columns: bool = False
    """A file that lacks a column of the others gives nulls."""
    metadata: str | os.PathLike[str] = ""
    """metadata.json of a GluonTS data set, for its frequency and horizon; empty: beside train/."""
    static_table: object = ""
    """A second table with a row per item, as a path or an object with ``__arrow_c_stream__``:
    categories and static covariates are looked for there too."""


@dataclass(frozen=True)
class _Covariates:
    """Columns that a model reads beside the target."""

    categories: Sequence[str] = ()
    static_reals: Sequence[str] = ()
    dynamic_reals: Sequence[str] = ()


class _Rows:
    """Rows in memory; ``pyarrow.table(rows)`` or ``polars.from_arrow(rows)`` takes them."""

    def __init__(self, rows: object) -> None:
        self._rows: Any = rows

    def __len__(self) -> int:
        """Count the rows."""
        return int(self._rows.__len__())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give an Arrow stream of the rows, as often as asked."""
        return self._rows.stream()

    def to_arrow(self) -> pyarrow.Table:
        """Give the rows as a table of pyarrow."""
        import pyarrow as pa

        return pa.table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Give the rows as a data frame; goes through Arrow."""
        need_pandas()
        return self.to_arrow().to_pandas()


class Model:
    """A trained model, or a naive method in its place."""

    def __init__(
        self, model: object, errors: Sequence[Failure] = (), notes: Sequence[str] = ()
    ) -> None:
        """Not to be called: ``train`` makes them, ``Model.from_parts`` builds one."""
        self._native: Any = model
        self.errors = list(errors)
        """Items that a global training left out."""
        self.notes = list(notes)
        """Sentences about a global training: series passed over, lags left out, ..."""

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], tensors: Mapping[str, npt.NDArray[np.float32]]
    ) -> Model:
        """Build a model out of a header and named tensors, such as a file's.

        Raises:
            Corrupt: a field or a tensor is absent or does not fit; it is named.
        """
        parts = [(name, np.ascontiguousarray(t, np.float32)) for name, t in tensors.items()]
        return cls(native.ForecastModel.from_parts(json.dumps(header), parts))

    def __repr__(self) -> str:
        """Say what it is."""
        names = self.header.get("columns", {})
        columns = " ".join(names.get(role, "") for role in ("id", "time", "target")).strip()
        columns = f", columns {columns}" if columns else ""
        return (
            f"<headrace.forecast.Model {self.method}, {_settled(self)}, "
            f"members {self.members}{columns}>"
        )

    @property
    def method(self) -> str:
        """``deepar``, ``seasonal_naive``, ``naive2`` or ``last_value``."""
        return str(self._native.method())

    @property
    def members(self) -> int:
        """Number of parameter sets; forecasts are split evenly over them."""
        return int(self._native.members())

    @property
    def header(self) -> dict[str, Any]:
        """Everything but the weights: options, lags, features, training summary."""
        header = json.loads(self._native.header())
        assert isinstance(header, dict)
        return header

    @property
    def tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        """The weights by torch's names, e.g. ``rnn.weight_ih_l0``."""
        return dict(self._native.tensors())

    def to_onnx(self, member: int = 0) -> tuple[bytes, bytes]:
        """Export one member: the encoder's file, and one step of the decoder.

        Raises:
            InvalidArgument: the model has no network, or no such member.
        """
        encoder, decoder = self._native.onnx(member)
        return bytes(encoder), bytes(decoder)


class Models(Mapping[str, Model]):
    """One model per item, in the order of the table."""

    def __init__(
        self,
        models: Mapping[str, Model],
        errors: Sequence[Failure],
        notes: Sequence[tuple[str, str]],
    ) -> None:
        """Not to be called: ``train`` makes them."""
        self._models = dict(models)
        self.errors = list(errors)
        """Items that failed."""
        self.notes = list(notes)
        """(item, sentence): lags left out, values that leave no room for validation, ..."""

    def __repr__(self) -> str:
        """Say of which items."""
        shown = ", ".join([*list(self)[:5], *(["..."] if len(self) > 5 else [])])
        settled = f", {_settled(next(iter(self.values())))}" if self else ""
        return (
            f"<headrace.forecast.Models of {len(self)} items ({shown}){settled}, "
            f"{len(self.errors)} failed>"
        )

    def __getitem__(self, item: str) -> Model:
        """Give the model of an item."""
        return self._models[item]

    def __iter__(self) -> Iterator[str]:
        """Go over the items."""
        return iter(self._models)

    def __len__(self) -> int:
        """Count the models."""
        return len(self._models)


class Forecasts(_Rows):
    """Rows item_id, timestamp, step, mean, q0.1 ... q0.9, model: one per item and step.

    Item and stamp have the names that the table has for them.
    """

    def __init__(
        self,
        rows: object,
        samples: dict[str, npt.NDArray[np.float32]],
        errors: Sequence[Failure],
        frequency: str = "",
        horizon: int = 1,
        season: int = 0,
    ) -> None:
        """Not to be called: ``predict`` makes them."""
        super().__init__(rows)
        self.frequency = frequency
        """Of the steps: h, D, W, MS, ..."""
        self.horizon = horizon
        """Steps per item."""
        self.season = season
        """Of the model, by which ``evaluate`` scores; 0 = by frequency."""
        self.samples = samples
        """Paths by item, [samples, horizon]; empty unless ``keep_samples``."""
        self.errors = list(errors)
        """Items that failed."""

    def __repr__(self) -> str:
        """Say how many there are."""
        return (
            f"<headrace.forecast.Forecasts of {len(self) // self.horizon} items, frequency "
            f"{self.frequency}, horizon {self.horizon}, {len(self)} rows, {len(self.errors)} "
            "failed; to_pandas() gives a frame>"
        )


def _settled(model: Model) -> str:
    header = model.header
    return f"frequency {header['frequency']}, horizon {header['horizon']}"


class Stored(Protocol):
    """A model of a registry: what ``registry.Registry.load`` gives."""

    @property
    def header(self) -> dict[str, Any]:
        """Everything but the weights."""

    @property
    def weights(self) -> dict[str, Any]:
        """Arrays by name."""


def _model(model: object) -> Model:
    """Give a model, whether it was trained here or comes from a registry."""
    if isinstance(model, Model):
        return model
    if not (hasattr(model, "header") and hasattr(model, "weights")):
        raise TypeError(
            "a model is a forecast.Model or a registry.Model (registry.open().load(NAME)), or a "
            f"mapping from items to such, not {type(model).__name__}"
        )
    stored = cast("Stored", model)
    return Model.from_parts(stored.header, stored.weights)


@dataclass
class Scores:
    """Accuracy of a model beside the naive methods."""

    totals: dict[str, dict[str, float]]
    """By method (model, seasonal_naive, naive2) and metric."""
    items: _Rows
    """A row per item and method."""
    steps: _Rows
    """A row per step ahead, of the model."""
    errors: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    constant_items: list[str] = field(default_factory=list)
    """Items that are constant before the forecast: they have no MASE."""
    unscaled_items: list[str] = field(default_factory=list)
    """Items without two values a season apart before the forecast: they have no MASE."""
    judged_steps: int = 0
    """Steps with an actual value, over all items that were judged."""
    forecast_steps: int = 0
    """Of ``evaluate``: the steps of their forecasts, with an actual value or not."""


def options(of: Literal["train", "predict", "backtest"] = "train") -> list[Option]:
    """List the options that ``train``, ``predict`` or ``backtest`` take as keywords."""
    return [
        Option(name, group, kind, default, text, tuple(choices))
        for name, group, kind, default, text, choices in native.forecast_options(of)
    ]


def _failures(rows: Sequence[tuple[str, str, str]]) -> list[Failure]:
    return [Failure(*row) for row in rows]


def _spec(table: object, like: Model | None = None) -> tuple[object, dict[str, object]]:
    """Give the source of a table and how to read it; what it is told none of is as of a model."""
    given = table if isinstance(table, Table) else Table(table)
    spec = {f.name: getattr(given, f.name) for f in fields(given) if f.name != "source"}
    second = given.static_table
    spec["static_table"] = os.fspath(second) if isinstance(second, (str, os.PathLike)) else ""
    spec["metadata"] = os.fspath(given.metadata)
    if like is not None:
        header = like.header
        spec["frequency"] = given.frequency or header["frequency"]
        spec["learned"] = header.get("columns", {})
    is_path = isinstance(given.source, (str, os.PathLike))
    spec["url"] = os.fspath(cast("str", given.source)) if is_path else "table"
    return given.source, spec


def _series(
    table: object,
    covariates: _Covariates,
    items: Sequence[str] = (),
    like: Model | None = None,
    *,
    frequency: str = "",
    trains: bool = False,
) -> object:
    """Read a table's series natively; ``trains``: each table given must be of use."""
    source, spec = _spec(table, like)
    spec["frequency"] = spec["frequency"] or frequency
    second = table.static_table if isinstance(table, Table) else None
    second = None if isinstance(second, (str, os.PathLike)) else second
    spec |= {name: list(getattr(covariates, name)) for name in _COVARIATES}
    if trains:
        shown = spec["static_table"] if second is None else "in memory"
        native.forecast_check_static(json.dumps(spec | {"static_table": shown}))
    if isinstance(source, (str, os.PathLike)):
        return native.forecast_load(json.dumps(spec), list(_texts(items)), second)
    if items:
        raise ValueError("items= chooses rows of a path; choose the rows of a table before")
    return native.forecast_series(source, json.dumps(spec), second)


def _horizon(table: object, horizon: int) -> dict[str, object]:
    """Give the horizon as an option; when it is 0, what the metadata of a data set tells."""
    source, spec = _spec(table)
    if not horizon and (isinstance(source, (str, os.PathLike)) or spec["metadata"]):
        horizon = native.forecast_horizon(json.dumps(spec))
    return {"horizon": horizon} if horizon else {}


def _actuals(table: object) -> object:
    """Give the table of what came: of a whole data set its test/."""
    source, spec = _spec(table)
    if not isinstance(source, (str, os.PathLike)):
        return table
    url = native.forecast_actuals(json.dumps(spec))
    return replace(table, source=url) if isinstance(table, Table) else url


def _texts(value: object) -> tuple[str, ...]:
    """Give the names of a list; a single text is one name, not its letters."""
    return (value,) if isinstance(value, str) else tuple(cast("Sequence[str]", value))


_COVARIATES = ("categories", "static_reals", "dynamic_reals")


def _covariates(given: Mapping[str, object]) -> _Covariates:
    return _Covariates(*(_texts(given.get(name, ())) for name in _COVARIATES))


def _covariates_of(model: Model) -> _Covariates:
    features = model.header["features"]
    return _covariates(features)


def _named(given: Mapping[str, object]) -> dict[str, object]:
    """Give the options with every list of columns as a list."""
    return {k: list(_texts(v)) if k in _COVARIATES else v for k, v in given.items()}


_Options = dict[str, object]


def _split(given: Mapping[str, object]) -> tuple[_Options, _Options, _Options]:
    """Divide keywords into those of training, of backtests and of prediction."""
    known = {of: {option.name for option in options(of)} for of in ("backtest", "predict")}
    back = {k: v for k, v in given.items() if k in known["backtest"]}
    shared = {"horizon", "seed"}
    predict_only = {
        k: v
        for k, v in given.items()
        if k in known["predict"] and k not in shared and k not in back
    }
    train_only = {k: v for k, v in given.items() if k not in back and k not in predict_only}
    return train_only, back, predict_only


@overload
def train(
    table: object,
    *,
    horizon: int = 0,
    scope: Literal["local"] = "local",
    items: Sequence[str] = (),
    warm_start: Model | Stored | None = None,
    threads: int = 0,
    progress: Progress | None = None,
    **train_options: object,
) -> Models: ...
@overload
def train(
    table: object,
    *,
    horizon: int = 0,
    scope: Literal["global"],
    items: Sequence[str] = (),
    warm_start: Model | Stored | None = None,
    threads: int = 0,
    progress: Progress | None = None,
    **train_options: object,
) -> Model: ...
def train(
    table: object,
    *,
    horizon: int = 0,
    scope: Literal["local", "global"] = "local",
    items: Sequence[str] = (),
    warm_start: Model | Stored | None = None,
    threads: int = 0,
    progress: Progress | None = None,
    **train_options: object,
) -> Models | Model:
    """Train one model per item, or one for all items.

    Args:
        table: a path, a ``Table``, or an object with ``__arrow_c_stream__``.
        horizon: steps to forecast; 0 for what the metadata of a data set tells.
        scope: ``local`` for one model per item, ``global`` for one of all items.
        items: of a path, only these.
        warm_start: begin with the weights of this model; its covariates, and its frequency, are
            taken where none are given. Items too short to train keep it as it is.
        threads: 0 for as many as this process may use. Results do not depend on it.
        progress: called with what is done and the total; may raise to stop.
        **train_options: those of ``options("train")``.

    Raises:
        InvalidArgument: an unknown option (with the nearest name), a value out of range.
        NotFound: the table or a column is not there (lists the columns).
    """
    given = _named({**_horizon(table, horizon), **train_options})
    warm = None
    like = None if warm_start is None else _model(warm_start)
    if like is not None:
        warm = like._native
        for name in _COVARIATES:
            given.setdefault(name, list(getattr(_covariates_of(like), name)))
    series = _series(table, _covariates(given), items, like, trains=True)
    if scope == "global":
        model, errors, remarks = native.forecast_train_global(
            series, json.dumps(given), warm, threads, progress
        )
        return Model(model, _failures(errors), remarks)
    if scope != "local":
        raise ValueError(f'scope is "{scope}"; it is "local" or "global"')
    models, errors, notes = native.forecast_train_local(
        series, json.dumps(given), warm, threads, progress
    )
    return Models({item: Model(model) for item, model in models}, _failures(errors), notes)


def predict(
    models: Model | Stored | Mapping[str, Model | Stored],
    table: object,
    *,
    items: Sequence[str] = (),
    threads: int = 0,
    progress: Progress | None = None,
    **predict_options: object,
) -> Forecasts:
    """Forecast the steps after each series.

    Args:
        models: one for all items, or one per item; an item without a model is in ``errors``. Those
            of a registry (``registry.Registry.load``) are taken as they are.
        table: the past, with known covariates of the future where the model needs them.
        items: of a path, only these.
        threads: 0 for as many as this process may use. Results do not depend on it.
        progress: called with what is done and the total; may raise to stop.
        **predict_options: those of ``options("predict")``: samples, quantiles, keep_samples, ...
    """
    is_local = isinstance(models, Mapping)
    given = models if isinstance(models, Mapping) else {"": models}
    named = {item: _model(model) for item, model in given.items()}
    if not named:
        raise ValueError("there are no models to forecast with")
    first = next(iter(named.values()))
    series = _series(table, _covariates_of(first), items, first)
    pairs = [(item, model._native) for item, model in named.items()]
    rows, samples, errors = native.forecast_predict(
        pairs, is_local, series, json.dumps(predict_options), threads, progress
    )
    horizon = cast("int", predict_options.get("horizon")) or first.header["horizon"]
    frequency = cast("Any", series).frequency()
    season = first.header["season"]
    return Forecasts(rows, samples, _failures(errors), frequency, horizon, season)


def backtest(
    table: object,
    *,
    horizon: int = 0,
    scope: Literal["local", "global"] = "local",
    items: Sequence[str] = (),
    threads: int = 0,
    progress: Progress | None = None,
    **given: object,
) -> Scores:
    """Forecast past stretches as if they were the future, and score them.

    Args:
        table: as for ``train``.
        horizon: steps to forecast; 0 for what the metadata of a data set tells.
        scope: ``local`` or ``global``.
        items: of a path, only these.
        threads: 0 for as many as this process may use.
        progress: called with what is done and the total; may raise to stop.
        **given: options of backtests (windows, stride, retrain), of training and of prediction.
    """
    named = _named({**_horizon(table, horizon), **given})
    train_options, backtest_options, predict_options = _split(named)
    series = _series(table, _covariates(train_options), items, trains=True)
    result = native.forecast_backtest(
        series,
        scope == "local",
        json.dumps(train_options),
        json.dumps(backtest_options),
        json.dumps(predict_options),
        threads,
        progress,
    )
    return _scores(result)


def evaluate(forecasts: object, training: object, actual: object, *, season: int = 0) -> Scores:
    """Score forecasts against what came, beside the naive methods.

    Args:
        forecasts: what ``predict`` gave, or such a table (item_id, timestamp, mean, q0.5, ...).
        training: the past they were made from: scales MASE and feeds the naive methods.
        actual: the values that came; of a GluonTS data set, named by its folder, those of test/.
        season: steps of a season; 0 = that of the model that ``predict`` used, else by frequency.

    Raises:
        Mismatch: no value that came meets a forecast; says which stamps either has.
    """
    past = _series(training, _Covariates())
    came = _series(_actuals(actual), _Covariates(), frequency=cast("Any", past).frequency())
    if isinstance(forecasts, Forecasts):
        season = season or forecasts.season
    return _scores(native.forecast_evaluate(forecasts, past, came, season))


def _scores(
    result: tuple[dict[str, dict[str, float]], object, object, Any, Any, Any, Any, int, int],
) -> Scores:
    totals, items, steps, errors, notes, constant_items, unscaled_items, judged, told = result
    return Scores(
        {method: dict(values) for method, values in totals.items()},
        _Rows(items),
        _Rows(steps),
        _failures(errors),
        list(notes),
        list(constant_items),
        list(unscaled_items),
        judged,
        told,
    )
