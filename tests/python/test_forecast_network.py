# SPDX-License-Identifier: Apache-2.0
"""The network's bindings against a twin in numpy, in double, that knows nothing of our code."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace import _native

forecast = _native.forecast

DISTRIBUTIONS = ["student_t", "normal", "negative_binomial"]
lgamma = np.vectorize(math.lgamma, otypes=[float])


@dataclass
class Batch:
    """One batch, in the types the bindings take."""

    shape: object
    embeddings: list[tuple[int, int]]
    lags: int
    layers: int
    distribution: str
    inputs: np.ndarray
    target: np.ndarray
    observed: np.ndarray
    scales: np.ndarray
    categories: np.ndarray
    parameters: np.ndarray

    def step(self):
        steps, batch, _ = self.inputs.shape
        step = forecast.TrainingStep(self.shape, batch, steps)
        step.fill(self.inputs, self.target, self.observed, self.scales, self.categories)
        return step


def make_batch(
    seed: int,
    *,
    lags: int = 5,
    others: int = 3,
    embeddings: list[tuple[int, int]] | None = None,
    hidden: int = 7,
    layers: int = 2,
    distribution: str = "student_t",
    batch: int = 6,
    steps: int = 5,
) -> Batch:
    rng = np.random.default_rng(seed)
    embeddings = [] if embeddings is None else embeddings
    shape = forecast.NetworkShape(lags, others, embeddings, hidden, layers, distribution)
    scales = np.exp(rng.standard_normal(batch)).astype("f4")
    if distribution == "negative_binomial":
        target = rng.poisson(4.0, (steps, batch)).astype("f4")
    else:
        target = (rng.standard_t(3.0, (steps, batch)) * scales).astype("f4")
    return Batch(
        shape=shape,
        embeddings=embeddings,
        lags=lags,
        layers=layers,
        distribution=distribution,
        inputs=rng.standard_normal((steps, batch, shape.inputs)).astype("f4"),
        target=target,
        observed=(rng.random((steps, batch)) < 0.8).astype("f4"),
        scales=scales,
        categories=np.array(
            [[rng.integers(k) for k, _ in embeddings] for _ in range(batch)], dtype=np.int64
        ).reshape(batch, len(embeddings)),
        parameters=forecast.initial_parameters(shape, seed),
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def twin(batch: Batch, parameters: np.ndarray) -> tuple[float, np.ndarray]:
    """Loss and distributions of the batch, in double."""
    tensors = {
        name: parameters[at : at + math.prod(extents)].reshape(extents)
        for name, extents, at in forecast.parameter_tensors(batch.shape)
    }
    x = batch.inputs.astype(float)
    if batch.embeddings:
        rows = [
            tensors[f"embedder._embedders.{e}.weight"][batch.categories[:, e]]
            for e in range(len(batch.embeddings))
        ]
        columns = np.concatenate(rows, axis=1)
        x[:, :, batch.lags : batch.lags + columns.shape[1]] = columns
    for layer in range(batch.layers):
        w_ih, w_hh, b_ih, b_hh = (
            tensors[f"rnn.{name}_l{layer}"]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h = c = np.zeros((x.shape[1], w_hh.shape[1]))
        outputs = []
        for row in x:
            i, f, g, o = np.split(row @ w_ih.T + h @ w_hh.T + b_ih + b_hh, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            outputs.append(h)
        x = np.stack(outputs)
    heads = 3 if batch.distribution == "student_t" else 2
    raw = [
        x @ tensors[f"param_proj.proj.{p}.weight"][0] + tensors[f"param_proj.proj.{p}.bias"]
        for p in range(heads)
    ]
    nll, mapped = likelihood(batch, raw)
    return float((batch.observed * nll).mean()), np.stack(mapped, axis=-1)


def likelihood(batch: Batch, raw: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    scale = batch.scales.astype(float)
    y = batch.target.astype(float)
    if batch.distribution == "negative_binomial":
        total, logit = softplus(raw[0]), raw[1] + np.log(scale)
        log_density = lgamma(y + total) - lgamma(total) - lgamma(y + 1)
        nll = -(log_density - total * softplus(logit) - y * softplus(-logit))
        return nll, [total, logit]
    z = y / scale
    if batch.distribution == "normal":
        mu, sigma = raw[0], softplus(raw[1])
        nll = np.log(sigma) + 0.5 * math.log(2 * math.pi) + 0.5 * ((z - mu) / sigma) ** 2
        return nll + np.log(scale), [mu, sigma]
    df, mu, sigma = 2 + softplus(raw[0]), raw[1], softplus(raw[2])
    nll = np.log(sigma) + 0.5 * np.log(df * math.pi) + lgamma(df / 2) - lgamma((df + 1) / 2)
    nll += (df + 1) / 2 * np.log1p(((z - mu) / sigma) ** 2 / df)
    return nll + np.log(scale), [df, mu, sigma]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    distribution=st.sampled_from(DISTRIBUTIONS),
    lags=st.integers(0, 20),
    others=st.integers(1, 9),
    embeddings=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 20)), max_size=2),
    hidden=st.integers(1, 24),
    layers=st.integers(1, 3),
    batch=st.integers(1, 40),
    steps=st.integers(1, 6),
)
def test_loss_gradient_and_distributions_are_the_twins(seed, distribution, **extents):
    batch = make_batch(seed, distribution=distribution, **extents)
    step = batch.step()

    loss, masked, gradient = step.loss_and_gradient(batch.parameters)

    parameters = batch.parameters.astype(float)
    expected, distributions = twin(batch, parameters)
    np.testing.assert_allclose(loss, expected, rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(step.distributions(), distributions, rtol=5e-6, atol=1e-6)
    seen = batch.observed.sum()
    if seen:
        np.testing.assert_allclose(masked, expected * batch.observed.size / seen, rtol=2e-6)
    direction = np.random.default_rng(seed).standard_normal(len(parameters))
    direction /= np.linalg.norm(direction)
    width = 1e-5
    slope = (
        twin(batch, parameters + width * direction)[0]
        - twin(batch, parameters - width * direction)[0]
    ) / (2 * width)
    allowed = 1e-5 * float(np.linalg.norm(gradient)) + 1e-8
    assert abs(float(gradient.astype(float) @ direction) - slope) < allowed


def test_the_decoder_walks_the_steps_of_training():
    batch = make_batch(5, embeddings=[(4, 3)], batch=9, steps=7)
    step = batch.step()
    step.loss(batch.parameters)
    decoder = forecast.Decoder(batch.shape, 27, batch.parameters)
    decoder.reset(9)
    decoder.set_categories(batch.categories)

    for t in range(4):
        np.testing.assert_allclose(
            decoder.step(batch.inputs[t]), step.distributions()[t], rtol=2e-6, atol=1e-6
        )
    decoder.repeat(3)
    for t in range(4, 7):
        rows = np.repeat(batch.inputs[t], 3, axis=0)
        expected = np.repeat(step.distributions()[t], 3, axis=0)
        np.testing.assert_allclose(decoder.step(rows), expected, rtol=2e-6, atol=1e-6)
    assert decoder.rows == 27


def test_adam_is_the_published_rule_behind_a_clipped_norm():
    rng = np.random.default_rng(3)
    parameters = rng.standard_normal(37).astype("f4")
    expected = parameters.astype(float)
    adam = forecast.Adam(37, weight_decay=0.01, clip_norm=2.0)
    first = second = np.zeros(37)
    for t in range(1, 8):
        gradient = rng.standard_normal(37).astype("f4")
        norm = float(np.linalg.norm(gradient.astype(float)))
        g = gradient * min(1.0, 2.0 / (norm + 1e-6)) + 0.01 * expected
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g * g
        expected = expected - 0.1 * (first / (1 - 0.9**t)) / (
            np.sqrt(second / (1 - 0.999**t)) + 1e-8
        )
        assert adam.step(parameters, gradient, 0.1) == pytest.approx(norm, rel=1e-6)
        np.testing.assert_allclose(parameters, expected, rtol=2e-5, atol=2e-6)


def test_dropout_repeats_for_a_seed_and_differs_for_another():
    batch = make_batch(1, batch=16, steps=9)
    step = batch.step()
    first = step.loss_and_gradient(batch.parameters, dropout=0.3, seed=4)
    again = step.loss_and_gradient(batch.parameters, dropout=0.3, seed=4)
    other = step.loss_and_gradient(batch.parameters, dropout=0.3, seed=5)
    assert first[0] == again[0]
    assert (first[2] == again[2]).all()
    assert first[0] != other[0]


def test_wrong_extents_and_categories_are_refused_with_both_values():
    batch = make_batch(2, embeddings=[(3, 2)])
    step = forecast.TrainingStep(batch.shape, 6, 5)
    with pytest.raises(headrace.Error, match=r"second axis \(batch\) has extent 4.*has 6"):
        step.fill(
            batch.inputs[:, :4].copy(),
            batch.target,
            batch.observed,
            batch.scales,
            batch.categories,
        )
    with pytest.raises(headrace.InvalidArgument, match=r"category 3 of feature 0 is not in \[0, 3"):
        step.fill(
            batch.inputs, batch.target, batch.observed, batch.scales, batch.categories * 0 + 3
        )
    with pytest.raises(headrace.Error, match="parameter vector has extent 1"):
        step.loss(np.zeros(1, "f4"))
    with pytest.raises(headrace.InvalidArgument, match="hidden is 0"):
        forecast.TrainingStep(forecast.NetworkShape(1, 1, hidden=0), 1, 1)
    with pytest.raises(headrace.InvalidArgument, match='no distribution "cauchy"'):
        forecast.NetworkShape(1, 1, distribution="cauchy")
    with pytest.raises(headrace.InvalidArgument, match="at most 8"):
        forecast.Decoder(batch.shape, 8, batch.parameters).reset(9)


@pytest.mark.parametrize("name", ["scalar", "sse9"])
def test_the_environment_chooses_the_instruction_set(name):
    code = "from headrace import _native; print(_native.forecast.instruction_set())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HEADRACE_FORECAST_ISA": name},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    if name in forecast.instruction_sets():
        assert done.stdout.strip() == name
    else:
        assert done.stdout.strip() == forecast.instruction_sets()[0]
        assert 'HEADRACE_FORECAST_ISA: forecast: instruction set "sse9" is not there' in done.stderr
        assert forecast.instruction_sets()[0] in done.stderr
