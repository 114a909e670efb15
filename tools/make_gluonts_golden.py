# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/gluonts_*.json: expected values of the forecaster out of GluonTS.

Needs gluonts and torch; the tests need neither. Each file names the programs and versions that
wrote it. Networks run in double precision on weights and data that are exact in single precision,
so that the expected values carry no rounding of their own.
"""

import argparse
import json
import pathlib
import warnings
from collections.abc import Iterator

import gluonts
import numpy as np
import pandas as pd
import torch
from gluonts.dataset.common import ListDataset
from gluonts.ev.metrics import MASE, ND, NRMSE, RMSE, SMAPE, Coverage, MeanWeightedSumQuantileLoss
from gluonts.model.evaluation import evaluate_forecasts
from gluonts.model.forecast import SampleForecast
from gluonts.time_feature import (
    get_lags_for_frequency,
    get_seasonality,
    time_features_from_frequency_str,
)
from gluonts.torch.distributions import NegativeBinomialOutput, NormalOutput, StudentTOutput
from gluonts.torch.model.deepar import DeepAREstimator
from gluonts.torch.model.deepar.module import DeepARModel

VERSIONS = {
    "generator": "tools/make_gluonts_golden.py",
    "gluonts": gluonts.__version__,
    "torch": torch.__version__,
    "numpy": np.__version__,
    "pandas": pd.__version__,
}
OUTPUTS = {
    "student_t": StudentTOutput,
    "normal": NormalOutput,
    "negative_binomial": NegativeBinomialOutput,
}
CONTEXT, HORIZON, LAGS = 3, 3, [1, 2, 4]
CARDINALITY, DIMENSION, HIDDEN, LAYERS = [4], [2], 8, 2
FREQUENCIES = [
    *("s", "10s", "30s", "min", "2min", "5min", "10min", "15min", "30min"),
    *("h", "2h", "3h", "4h", "6h", "8h", "12h", "D", "2D", "7D", "B"),
    *("W", "2W", "ME", "MS", "2ME", "3ME", "QE", "YE"),
]


def single(values: object) -> object:
    """Nested lists of the shortest decimals that read back as the same float32."""
    array = np.asarray(values, dtype=np.float32)
    if array.ndim:
        return [single(part) for part in array]
    return float(np.format_float_positional(array, unique=True))


def double(values: object, digits: int = 12) -> object:
    """Nested lists of doubles with `digits` significant digits; NaN is the string "NaN"."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim:
        return [double(part, digits) for part in array]
    return "NaN" if np.isnan(array) else float(f"{float(array):.{digits}g}")


def make_model(distribution: str) -> DeepARModel:
    """A tiny DeepAR network with double precision parameters that are exact in single precision."""
    torch.manual_seed(7)
    model = DeepARModel(
        freq="h",
        context_length=CONTEXT,
        prediction_length=HORIZON,
        num_feat_dynamic_real=3,
        num_feat_static_real=1,
        num_feat_static_cat=1,
        cardinality=CARDINALITY,
        embedding_dimension=DIMENSION,
        num_layers=LAYERS,
        hidden_size=HIDDEN,
        dropout_rate=0.0,
        distr_output=OUTPUTS[distribution](),
        lags_seq=LAGS,
    )
    return model.double()


def make_batch(distribution: str) -> dict[str, torch.Tensor]:
    """Three windows of very different scale, one unobserved value in a context and in a future."""
    rng = np.random.default_rng(11)
    past = CONTEXT + max(LAGS) - 1
    level = np.array(
        [3.0, 250.0, 7.0e4] if distribution != "negative_binomial" else [0.7, 12.0, 300.0]
    )
    if distribution == "negative_binomial":
        values = rng.poisson(level[:, None] * rng.gamma(2.0, 0.5, (3, past + HORIZON))).astype(
            float
        )
        values[0, past - 2] = 3.0
    else:
        values = (level[:, None] * (1.0 + 0.4 * rng.standard_normal((3, past + HORIZON)))).astype(
            "f4"
        )
    observed = np.ones_like(values)
    observed[1, past - 2] = observed[2, past + 1] = 0.0
    values = np.where(observed > 0, values, 0.0)
    features = (rng.random((3, past + HORIZON, 3)) - 0.5).astype("f4")
    static = rng.standard_normal((3, 1)).astype("f4")
    batch = {
        "feat_static_real": static,
        "past_time_feat": features[:, :past],
        "past_target": values[:, :past],
        "past_observed_values": observed[:, :past],
        "future_time_feat": features[:, past:],
        "future_target": values[:, past:],
        "future_observed_values": observed[:, past:],
    }
    tensors = {name: torch.tensor(np.asarray(part, dtype="f8")) for name, part in batch.items()}
    tensors["feat_static_cat"] = torch.tensor([[2], [0], [3]])
    return tensors


def network_golden(distribution: str) -> dict:
    """Weights, one batch, and GluonTS's distribution parameters, loss and gradient for them."""
    model, batch = make_model(distribution), make_batch(distribution)
    future = ("future_target", "future_observed_values")
    inputs = {name: part for name, part in batch.items() if name not in future}
    with torch.no_grad():
        rows, scale, _ = model.prepare_rnn_input(**inputs, future_target=batch["future_target"])
        params, scale, *_ = model.unroll_lagged_rnn(**inputs, future_target=batch["future_target"])
        model.output_distribution(params, scale=scale)  # adds log(scale) to the logit in place
    loss = model.loss(**batch).mean()
    loss.backward()
    target = torch.cat((batch["past_target"][:, -(CONTEXT - 1) :], batch["future_target"]), dim=1)
    observed = torch.cat(
        (batch["past_observed_values"][:, -(CONTEXT - 1) :], batch["future_observed_values"]), dim=1
    )
    embedding_columns = slice(len(LAGS), len(LAGS) + sum(DIMENSION))
    given = rows.clone()
    given[:, :, embedding_columns] = 0.0
    return {
        "versions": VERSIONS,
        "distribution": distribution,
        "shape": {
            "lags": len(LAGS),
            "embeddings": [
                {"cardinality": k, "dimension": d}
                for k, d in zip(CARDINALITY, DIMENSION, strict=True)
            ],
            "other_inputs": int(rows.shape[2]) - len(LAGS) - sum(DIMENSION),
            "hidden": HIDDEN,
            "layers": LAYERS,
        },
        "batch": 3,
        "steps": int(rows.shape[1]),
        "parameters": {
            name: single(part.detach().flatten()) for name, part in model.named_parameters()
        },
        "parameter_shapes": {name: list(part.shape) for name, part in model.named_parameters()},
        "input": double(given.transpose(0, 1)),
        "categories": batch["feat_static_cat"].tolist(),
        "target": double(target.T),
        "observed": double(observed.T),
        "scales": double(scale.flatten()),
        "expected": {
            "loss": loss.item(),
            "masked_loss": loss.item() * observed.numel() / float(observed.sum()),
            "distribution": double(torch.stack(params, dim=-1).transpose(0, 1)),
            "gradient": {
                name: double(part.grad.flatten()) for name, part in model.named_parameters()
            },
        },
        "adam": adam_golden(distribution),
    }


def adam_golden(distribution: str) -> dict:
    """Five steps of clipping and torch's Adam on the same batch, at settings where both matter."""
    model, batch = make_model(distribution), make_batch(distribution)
    options = {"learning_rate": 0.01, "weight_decay": 0.001, "clip_norm": 0.5, "steps": 5}
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.001)
    norms, losses = [], []
    for _ in range(5):
        optimiser.zero_grad()
        loss = model.loss(**batch).mean()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        losses.append(loss.item())
        optimiser.step()
    after = {name: double(part.detach().flatten()) for name, part in model.named_parameters()}
    return {"options": options, "losses": losses, "norms": norms, "parameters": after}


def frequency_golden() -> dict:
    """Lags, season and calendar features per frequency, on stamps that cross a year's end."""
    cases = []
    for frequency in FREQUENCIES:
        # Periods know no month starts; GluonTS has the same features and lags for MS and ME.
        period = {"MS": "M"}.get(
            frequency, frequency.replace("ME", "M").replace("QE", "Q").replace("YE", "Y")
        )
        lag_name = "ME" if frequency == "MS" else frequency
        periods = 200 if frequency == "YE" else 400
        chosen = pd.period_range("2019-12-28 22:50:30", periods=periods, freq=period)[::7]
        features = time_features_from_frequency_str(lag_name)
        cases.append(
            {
                "frequency": frequency,
                "lags": get_lags_for_frequency(lag_name),
                "season": get_seasonality(lag_name),
                "first_moments": [str(stamp.start_time) for stamp in chosen],
                "last_days": [str(stamp.end_time.date()) for stamp in chosen],
                "feature_names": [feature.__name__ for feature in features],
                "features": [double(feature(chosen), 10) for feature in features],
            }
        )
    note = "pandas takes the calendar fields of a period over a day long from its last day"
    return {"versions": VERSIONS, "note": note, "cases": cases}


def windows_golden() -> dict:
    """Inputs that GluonTS makes of chosen split indices of one hourly series."""
    rng = np.random.default_rng(5)
    n, context, horizon, lags = 60, 5, 3, [1, 2, 24]
    values = np.round(50 + 20 * rng.standard_normal(n), 2)
    values[[3, 30, 31, 55, 58]] = np.nan
    data = ListDataset([{"start": "2021-03-27 21:00", "target": values}], freq="h")
    estimator = DeepAREstimator(
        freq="h", prediction_length=horizon, context_length=context, lags_seq=lags, dropout_rate=0.0
    )
    module = estimator.create_lightning_module()
    cases = []
    for split in (0, 2, 26, 57):
        cut = next(iter(estimator.create_transformation().apply(data, is_train=True)))
        cut = {**cut}
        for name in ("target", "observed_values"):
            cut[name] = cut[name][: split + horizon]
        cut["time_feat"] = cut["time_feat"][:, : split + horizon]
        splitter = estimator._create_instance_splitter(module, "validation")
        window = next(iter(splitter.apply([cut], is_train=True)))
        batch = {
            name: torch.tensor(np.asarray(window[name], dtype="f8" if "cat" not in name else "i8"))[
                None
            ]
            for name in module.inputs
        }
        future = torch.tensor(np.asarray(window["future_target"], dtype="f8"))[None]
        with torch.no_grad():
            rows, scale, _ = module.model.double().prepare_rnn_input(**batch, future_target=future)
        embedded = len(lags)
        kept = [c for c in range(rows.shape[2]) if c not in (embedded, embedded + 1)]
        target = torch.cat((batch["past_target"][:, -(context - 1) :], future), dim=1)[0]
        seen = np.concatenate(
            (window["past_observed_values"][-(context - 1) :], window["future_observed_values"])
        )
        cases.append(
            {
                "split": split,
                "scale": float(scale),
                "input": double(rows[0][:, kept]),
                "target": double(target),
                "observed": double(seen),
            }
        )
    return {
        "versions": VERSIONS,
        "note": "columns: lags, log(scale), calendar features, age; constant ones are left out",
        "frequency": "h",
        "start": "2021-03-27 21:00:00",
        "values": double(values),
        "context": context,
        "horizon": horizon,
        "lags": lags,
        "cases": cases,
    }


def without_constants(model: DeepARModel) -> dict:
    """Parameters without the embedding of nothing (zero here) and the column of its static 0."""
    lags, out = len(model.lags_seq), {}
    for name, part in model.named_parameters():
        values = part.detach()
        if name == "rnn.weight_ih_l0":
            values = torch.cat((values[:, :lags], values[:, lags + 2 :]), dim=1)
        if not name.startswith("embedder"):
            out[name] = single(values.flatten())
    return out


def sampling_golden() -> dict:
    """Quantiles of many paths of an untrained network per distribution, on one hourly series."""
    rng = np.random.default_rng(23)
    n, horizon, paths = 70, 6, 200_000
    values = np.round(30 + 12 * np.sin(np.arange(n) * np.pi / 12) + 4 * rng.standard_normal(n))
    values[[4, 40, 66]] = np.nan
    levels = [round(0.1 * k, 1) for k in range(1, 10)]
    data = ListDataset([{"start": "2021-03-27 21:00", "target": values}], freq="h")
    cases = []
    for name, output in OUTPUTS.items():
        torch.manual_seed(29)
        estimator = DeepAREstimator(
            freq="h",
            prediction_length=horizon,
            context_length=5,
            lags_seq=[1, 2, 24],
            hidden_size=HIDDEN,
            distr_output=output(),
        )
        module = estimator.create_lightning_module()
        model = module.model.eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2.0)  # so that paths depend on what was drawn before
            model.embedder._embedders[0].weight.zero_()
        window = next(
            iter(
                estimator._create_instance_splitter(module, "test").apply(
                    estimator.create_transformation().apply(data, is_train=False), is_train=False
                )
            )
        )
        batch = {key: torch.tensor(np.asarray(window[key]))[None] for key in module.inputs}
        batch = {
            key: part.float() if part.is_floating_point() else part for key, part in batch.items()
        }
        with torch.no_grad():
            samples = model(**batch, num_parallel_samples=paths)[0].numpy()
        cases.append(
            {
                "distribution": name,
                "parameters": without_constants(model),
                "quantiles": double(np.quantile(samples, levels, axis=0), 8),
            }
        )
    return {
        "versions": VERSIONS,
        "frequency": "h",
        "start": "2021-03-27 21:00:00",
        "values": double(values),
        "context": 5,
        "horizon": horizon,
        "lags": [1, 2, 24],
        "hidden": HIDDEN,
        "paths": paths,
        "levels": levels,
        "cases": cases,
    }


def quantile_loss(level: float, actual: np.ndarray, forecast: np.ndarray) -> np.ndarray:
    """2 * max(q * (y - f), (q - 1) * (y - f))."""
    return 2 * np.maximum(level * (actual - forecast), (level - 1) * (actual - forecast))


def own_metrics(train: np.ndarray, actual: np.ndarray, samples: np.ndarray, season: int) -> dict:
    """The formulas of the metrics in the most direct form, for one item; NaN cells are left out."""
    seen = ~np.isnan(actual)
    y, paths = actual[seen], samples[:, seen]
    levels = [round(0.1 * k, 1) for k in range(1, 10)]
    quantile = {q: np.quantile(paths, q, axis=0) for q in [0.05, *levels, 0.95]}
    median, mean = quantile[0.5], paths.mean(axis=0)
    steps = np.abs(train[season:] - train[:-season])
    naive = float(np.nanmean(steps))
    losses = [float(quantile_loss(q, y, quantile[q]).sum()) for q in levels]
    spread = np.abs(paths[:, None, :] - paths[None, :, :]).mean(axis=(0, 1))
    crps = np.abs(paths - y).mean(axis=0) - 0.5 * spread
    return {
        "mase": float(np.abs(y - median).mean() / naive) if naive > 0 else None,
        "smape": float(200 * np.mean(np.abs(y - median) / (np.abs(y) + np.abs(median)))),
        "mean_wql": float(np.sum(losses) / len(levels) / np.abs(y).sum()),
        "nd": float(np.abs(y - median).sum() / np.abs(y).sum()),
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "nrmse": float(np.sqrt(np.mean((y - mean) ** 2)) / np.abs(y).mean()),
        "coverage_80": float(np.mean((quantile[0.1] <= y) & (y <= quantile[0.9]))),
        "coverage_90": float(np.mean((quantile[0.05] <= y) & (y <= quantile[0.95]))),
        "width_80": float(np.mean(quantile[0.9] - quantile[0.1])),
        "crps": float(crps.mean()),
        "quantile_loss": losses,
        "abs_sum": float(np.abs(y).sum()),
    }


def metric_items() -> list[dict]:
    """Four small items: plain, a missing value in each part, of large scale, and a constant one."""
    rng = np.random.default_rng(3)
    items = []
    for index, (n, level) in enumerate(((40, 10.0), (31, 5.0), (44, 9.0e5), (24, 3.0))):
        season = level * (1 + 0.3 * np.sin(np.arange(n + 6) * np.pi / 2))
        values = np.round(
            season + (0 if index == 3 else 0.1 * level) * rng.standard_normal(n + 6), 3
        )
        if index == 3:
            values[:n] = level
        if index == 1:
            values[7] = values[n + 2] = np.nan
        noise = 0.15 * level * rng.standard_normal((25, 6))
        items.append(
            {"train": values[:n], "actual": values[n:], "samples": np.round(season[n:] + noise, 3)}
        )
    return items


def gluonts_metrics(items: list[dict], season: int) -> dict:
    """The same items through gluonts.ev, over all of them, for the metrics that both have."""
    inputs, labels, forecasts = [], [], []
    for index, item in enumerate(items):
        start = pd.Period("2021-01-01 00:00", "h")
        first = start + len(item["train"])
        inputs.append({"start": start, "target": item["train"], "item_id": str(index)})
        labels.append({"start": first, "target": item["actual"], "item_id": str(index)})
        forecasts.append(
            SampleForecast(samples=item["samples"], start_date=first, item_id=str(index))
        )

    class Pairs:
        """The part of gluonts' TestData that the evaluation reads."""

        input = inputs
        label = labels

        def __iter__(self) -> Iterator:
            return iter(zip(inputs, labels, strict=True))

    levels = [round(0.1 * k, 1) for k in range(1, 10)]
    table = evaluate_forecasts(
        forecasts,
        test_data=Pairs(),
        metrics=[
            MASE(),
            SMAPE(),
            ND(),
            RMSE(),
            NRMSE(),
            MeanWeightedSumQuantileLoss(quantile_levels=levels),
            Coverage(0.1),
            Coverage(0.9),
        ],
        axis=None,
        seasonality=season,
        mask_invalid_label=True,
    )
    return {name: float(table[name].iloc[0]) for name in table.columns}


def metrics_golden() -> dict:
    """Items, own formulas per item, and gluonts.ev over all items."""
    items, season = metric_items(), 4
    # gluonts divides by a seasonal error of zero for the constant item; it is compared without it.
    return {
        "versions": VERSIONS,
        "season": season,
        "quantile_levels": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95],
        "items": [
            {
                "train": double(item["train"]),
                "actual": double(item["actual"]),
                "samples": double(item["samples"]),
                "expected": own_metrics(item["train"], item["actual"], item["samples"], season),
            }
            for item in items
        ],
        "gluonts_first_three_items": gluonts_metrics(items[:3], season),
    }


def main() -> None:
    """Write every file into the folder given, tests/data by default."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
    parser.add_argument("--folder", type=pathlib.Path, default=default)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    goldens = {f"gluonts_{name}": network_golden(name) for name in OUTPUTS}
    goldens["gluonts_frequency"] = frequency_golden()
    goldens["gluonts_windows"] = windows_golden()
    goldens["gluonts_sampling"] = sampling_golden()
    goldens["gluonts_metrics"] = metrics_golden()
    for name, content in goldens.items():
        lines = ",\n".join(
            f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()
        )
        (folder / f"{name}.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
