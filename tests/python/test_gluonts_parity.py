# SPDX-License-Identifier: Apache-2.0
"""The network against GluonTS itself, on equal weights and one batch, at its default size.

"Relative" is per tensor: the largest absolute difference over the largest absolute value. The
reference runs in an environment of its own (requirements-reference.txt) and in both precisions:
single is what its users run; double has no rounding of its own. Windows, lags, calendar features,
metrics and sampled paths are compared in C++ with values that GluonTS wrote (tests/data/gluonts_*).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from headrace import _native

forecast = _native.forecast

TOLERANCE = 1e-5
WORKER = Path(__file__).with_name("gluonts_parity_worker.py")
PARAMETERS = {
    "student_t": ("df", "mu", "sigma"),
    "normal": ("mu", "sigma"),
    "negative_binomial": ("total_count", "logit"),
}


def relative(got: np.ndarray, expected: np.ndarray) -> float:
    expected = expected.astype("f8").reshape(got.shape)
    return float(np.abs(got - expected).max() / np.abs(expected).max())


@pytest.fixture(scope="module")
def references(
    reference_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    """What GluonTS saw and said, by "distribution/name"."""
    if subprocess.run(
        [reference_python, "-c", "import gluonts, torch"], capture_output=True, check=False
    ).returncode:
        pytest.skip(f"gluonts or torch is missing in {reference_python}")
    path = tmp_path_factory.mktemp("gluonts") / "reference.npz"
    done = subprocess.run(
        [reference_python, WORKER, path], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(params=PARAMETERS)
def reference(request: pytest.FixtureRequest, references: dict) -> tuple[str, dict]:
    """One distribution and its part."""
    part = {
        name.removeprefix(f"{request.param}/"): values
        for name, values in references.items()
        if name.startswith(f"{request.param}/")
    }
    return request.param, part


class Ours:
    """The same weights and batch in a TrainingStep."""

    def __init__(self, distribution: str, seen: dict[str, np.ndarray]) -> None:
        rows = seen["single/input"]
        self.steps, self.batch, columns = rows.shape
        tables = sorted(name for name in seen if name.startswith("weight/embedder."))
        embeddings = [seen[name].shape for name in tables]
        assert [dimension for _, dimension in embeddings] == seen["embedding_dimension"].tolist()
        width = sum(dimension for _, dimension in embeddings)
        self.lags = columns - width - 2 - 1 - 5  # two static reals, log(scale), five features
        self.shape = forecast.NetworkShape(
            self.lags, columns - width - self.lags, embeddings, distribution=distribution
        )
        rows = rows.copy()
        rows[:, :, self.lags : self.lags + width] = np.nan  # these are ours to fill
        self.step = forecast.TrainingStep(self.shape, self.batch, self.steps)
        self.step.fill(
            rows,
            np.ascontiguousarray(seen["single/target"]),
            np.ascontiguousarray(seen["single/observed"]),
            seen["single/scale"],
            seen["categories"].astype("i8"),
        )
        self.tensors = forecast.parameter_tensors(self.shape)
        self.parameters = np.zeros(forecast.parameter_total(self.shape), "f4")
        for name, shape, offset in self.tensors:
            weight = seen[f"weight/{name}"]
            assert list(weight.shape) == shape, name
            self.parameters[offset : offset + weight.size] = weight.ravel()
        assert {f"weight/{name}" for name, _, _ in self.tensors} == {
            name for name in seen if name.startswith("weight/")
        }


@pytest.fixture(params=forecast.instruction_sets())
def instruction_set(request: pytest.FixtureRequest):
    before = forecast.instruction_set()
    forecast.set_instruction_set(request.param)
    yield request.param
    forecast.set_instruction_set(before)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_loss_distribution_and_gradient_are_gluonts(
    reference: tuple[str, dict[str, np.ndarray]], instruction_set: str, precision: str
):
    distribution, seen = reference
    ours = Ours(distribution, seen)

    loss, masked, gradient = ours.step.loss_and_gradient(ours.parameters)
    found = ours.step.distributions()

    expected = float(seen[f"{precision}/loss"])
    assert abs(loss - expected) <= TOLERANCE * abs(expected)
    share = seen["single/observed"].mean()
    assert abs(masked - expected / share) <= TOLERANCE * abs(expected / share)
    errors = {
        name: relative(found[:, :, k], seen[f"{precision}/distribution"][:, :, k])
        for k, name in enumerate(PARAMETERS[distribution])
    }
    for name, shape, offset in ours.tensors:
        part = gradient[offset : offset + int(np.prod(shape))]
        errors[name] = relative(part, seen[f"{precision}/gradient/{name}"])
    worst = max(errors, key=errors.get)
    print(f"{distribution}, {instruction_set}, {precision}: worst {worst} {errors[worst]:.1e}")
    assert errors[worst] < TOLERANCE, errors


def test_a_weight_off_by_a_hundredth_is_seen(reference: tuple[str, dict[str, np.ndarray]]):
    distribution, seen = reference
    ours = Ours(distribution, seen)
    _, _, offset = next(one for one in ours.tensors if one[0] == "rnn.weight_hh_l1")
    ours.parameters[offset + 17] += 0.01

    _, _, gradient = ours.step.loss_and_gradient(ours.parameters)

    errors = [
        relative(gradient[at : at + int(np.prod(shape))], seen[f"double/gradient/{name}"])
        for name, shape, at in ours.tensors
    ]
    assert max(errors) > TOLERANCE
