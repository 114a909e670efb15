# SPDX-License-Identifier: Apache-2.0
"""Run GluonTS's DeepAR on random weights and a random batch; write all it saw and said as .npz.

Started by test_gluonts_parity.py with the Python of the reference environment:
gluonts_parity_worker.py OUT.npz, with names such as student_t/single/loss
"""

import sys
import warnings

import numpy as np
import torch
from gluonts.torch.distributions import NegativeBinomialOutput, NormalOutput, StudentTOutput
from gluonts.torch.model.deepar.module import DeepARModel

OUTPUTS = {
    "student_t": StudentTOutput,
    "normal": NormalOutput,
    "negative_binomial": NegativeBinomialOutput,
}
BATCH, CONTEXT, HORIZON, CARDINALITY, TIME_FEATURES = 16, 48, 48, [3, 7], 5
LAGS = [*range(1, 8), 23, 24, 25, 47, 48, 49, 167, 168, 169]


def make_model(distribution: str, horizon: int = HORIZON) -> DeepARModel:
    """The default network (two layers of 40) with two categorical features, no dropout."""
    torch.manual_seed(3)
    return DeepARModel(
        freq="h",
        context_length=CONTEXT,
        prediction_length=horizon,
        num_feat_dynamic_real=TIME_FEATURES,
        num_feat_static_real=2,
        num_feat_static_cat=len(CARDINALITY),
        cardinality=CARDINALITY,
        dropout_rate=0.0,
        distr_output=OUTPUTS[distribution](),
        lags_seq=LAGS,
    )


def make_batch(distribution: str, horizon: int = HORIZON) -> dict[str, torch.Tensor]:
    """Scales from 0.01 to 1e6 (counts: 0.5 to 500), a tenth of the values missing."""
    rng = np.random.default_rng(17)
    past, total = CONTEXT + max(LAGS) - 1, CONTEXT + max(LAGS) - 1 + horizon
    if distribution == "negative_binomial":
        level = np.geomspace(0.5, 500, BATCH)[:, None]
        values = rng.poisson(level * rng.gamma(2.0, 0.5, (BATCH, total))).astype("f4")
    else:
        level = np.geomspace(0.01, 1e6, BATCH)[:, None]
        season = 1 + 0.5 * np.sin(2 * np.pi * np.arange(total) / 24)
        values = (level * season * (1 + 0.2 * rng.standard_normal((BATCH, total)))).astype("f4")
    observed = (rng.random((BATCH, total)) > 0.1).astype("f4")
    values *= observed
    features = (rng.random((BATCH, total, TIME_FEATURES)) - 0.5).astype("f4")
    categories = np.stack([rng.integers(0, k, BATCH) for k in CARDINALITY], axis=1)
    return {
        "feat_static_cat": torch.tensor(categories),
        "feat_static_real": torch.tensor(rng.standard_normal((BATCH, 2)).astype("f4")),
        "past_time_feat": torch.tensor(features[:, :past]),
        "past_target": torch.tensor(values[:, :past]),
        "past_observed_values": torch.tensor(observed[:, :past]),
        "future_time_feat": torch.tensor(features[:, past:]),
        "future_target": torch.tensor(values[:, past:]),
        "future_observed_values": torch.tensor(observed[:, past:]),
    }


def as_double(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same values in double precision; indices stay what they are."""
    return {
        name: part.double() if part.is_floating_point() else part for name, part in batch.items()
    }


def run_network(model: DeepARModel, batch: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Inputs of the recurrent core, distribution parameters, loss and gradient; time-major."""
    future = ("future_target", "future_observed_values")
    given = {name: part for name, part in batch.items() if name not in future}
    with torch.no_grad():
        rows, _, _ = model.prepare_rnn_input(**given, future_target=batch["future_target"])
        params, scale, *_ = model.unroll_lagged_rnn(**given, future_target=batch["future_target"])
        model.output_distribution(params, scale=scale)  # adds log(scale) to the logit in place
    model.zero_grad()
    loss = model.loss(**batch).mean()
    loss.backward()
    span = slice(-(CONTEXT - 1), None)
    target = torch.cat((batch["past_target"][:, span], batch["future_target"]), dim=1)
    observed = torch.cat(
        (batch["past_observed_values"][:, span], batch["future_observed_values"]), dim=1
    )
    out = {
        "input": rows.transpose(0, 1),
        "target": target.T,
        "observed": observed.T,
        "scale": scale.flatten(),
        "distribution": torch.stack(params, dim=-1).transpose(0, 1),
        "loss": loss.detach(),
    }
    out.update({f"gradient/{name}": part.grad for name, part in model.named_parameters()})
    return {name: part.numpy() for name, part in out.items()}


def network(distribution: str) -> dict[str, np.ndarray]:
    """Weights and categories, and the run in single and in double precision."""
    model, batch = make_model(distribution), make_batch(distribution)
    out = {
        f"weight/{name}": part.detach().numpy().copy() for name, part in model.named_parameters()
    }
    out["categories"] = batch["feat_static_cat"].numpy()
    out["embedding_dimension"] = np.array(model.embedding_dimension)
    out.update({f"single/{name}": part for name, part in run_network(model, batch).items()})
    double = run_network(model.double(), as_double(batch))
    out.update({f"double/{name}": part for name, part in double.items()})
    return out


def main() -> None:
    """One process for all distributions: importing torch takes longer than the work."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = {
        f"{distribution}/{name}": part
        for distribution in OUTPUTS
        for name, part in network(distribution).items()
    }
    np.savez(sys.argv[1], **results)


if __name__ == "__main__":
    main()
