# SPDX-License-Identifier: Apache-2.0
"""Train one GluonTS DeepAR in this process: a job as JSON on stdin, its result as JSON on stdout.

The benchmarks run it with the Python of the reference environment (requirements-reference.txt),
so that headrace and GluonTS need not share one. CPU time is taken around training and prediction
alone, without imports.
"""

import contextlib
import json
import logging
import os
import sys
import tempfile
import time
import warnings

import gluonts
import lightning.pytorch
import numpy as np
import torch
from gluonts.dataset.common import ListDataset
from gluonts.torch.distributions import NegativeBinomialOutput, NormalOutput, StudentTOutput
from gluonts.torch.model.deepar import DeepAREstimator
from gluonts.transform import ExpectedNumInstanceSampler

OUTPUTS = {
    "student_t": StudentTOutput,
    "normal": NormalOutput,
    "negative_binomial": NegativeBinomialOutput,
}


def make_estimator(job: dict) -> DeepAREstimator:
    """The estimator of a job; `loader` is "shipped" or "cached" (32 windows per pass)."""
    batches = min(50, job["steps"])
    sampler = None
    if job["loader"] == "cached":
        sampler = ExpectedNumInstanceSampler(num_instances=32, min_future=job["horizon"])
    return DeepAREstimator(
        freq=job["frequency"],
        prediction_length=job["horizon"],
        context_length=job["context"],
        lr=job.get("learning_rate", 1e-3),
        batch_size=job.get("batch", 32),
        num_batches_per_epoch=batches,
        lags_seq=job.get("lags"),
        distr_output=OUTPUTS[job.get("distribution", "student_t")](),
        num_parallel_samples=job.get("samples", 100),
        train_sampler=sampler,
        trainer_kwargs={
            "max_epochs": job["steps"] // batches,
            "accelerator": "cpu",
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        },
    )


def train_and_predict(job: dict) -> dict:
    """CPU and wall seconds of training and prediction, and the forecasts' quantiles."""
    lightning.pytorch.seed_everything(job["seed"])
    torch.set_num_threads(1)
    data = ListDataset(
        [
            {"start": series["start"], "target": series["values"], "item_id": series["item_id"]}
            for series in job["series"]
        ],
        freq=job["frequency"],
    )
    estimator = make_estimator(job)
    cpu, wall = time.process_time(), time.perf_counter()
    predictor = estimator.train(data, cache_data=job["loader"] == "cached")
    trained_cpu, trained_wall = time.process_time(), time.perf_counter()
    forecasts = list(predictor.predict(data))
    predicted_cpu = time.process_time()
    levels = [round(0.05 * k, 2) for k in range(1, 20)]
    return {
        "train_cpu_seconds": trained_cpu - cpu,
        "train_wall_seconds": trained_wall - wall,
        "predict_cpu_seconds": predicted_cpu - trained_cpu,
        "versions": {"gluonts": gluonts.__version__, "torch": torch.__version__},
        "levels": levels,
        "quantiles": {
            forecast.item_id: np.quantile(forecast.samples, levels, axis=0).tolist()
            for forecast in forecasts
        },
    }


def main() -> None:
    """Keep everything that the libraries print off stdout; their files go to a temporary folder."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    job = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        os.chdir(folder)
        result = train_and_predict(job)
        os.chdir("/")
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
