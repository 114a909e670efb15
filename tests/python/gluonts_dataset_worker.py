# SPDX-License-Identifier: Apache-2.0
"""Write data sets with GluonTS itself, one folder per frequency; run in the reference environment.

Started by test_gluonts_dataset.py: gluonts_dataset_worker.py FOLDER FREQUENCY...
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from gluonts.dataset.common import (
    BasicFeatureInfo,
    CategoricalFeatureInfo,
    MetaData,
    TrainDatasets,
)
from gluonts.dataset.jsonl import JsonLinesWriter

HORIZON = 6


def entries(freq: str, length: int) -> list[dict[str, object]]:
    """Two series that start in the period of the first of July 2015."""
    steps = np.arange(length)
    return [
        {
            "item_id": f"shop-{k}",
            "start": pd.Period("2015-07-01 00:00", freq=freq),
            "target": 10.0 + k + np.sin(steps / 3) + steps % 4,
            "feat_static_cat": np.array([k]),
            "feat_static_real": np.array([k / 2]),
        }
        for k in range(2)
    ]


def main() -> None:
    """Save train/, test/ and metadata.json of each frequency."""
    for freq in sys.argv[2:]:
        metadata = MetaData(
            freq=freq,
            prediction_length=HORIZON,
            feat_static_cat=[CategoricalFeatureInfo(name="shop", cardinality="2")],
            feat_static_real=[BasicFeatureInfo(name="size")],
        )
        train, test = entries(freq, 60), entries(freq, 60 + HORIZON)
        folder = Path(sys.argv[1]) / freq
        TrainDatasets(metadata, train, test).save(str(folder), JsonLinesWriter())


main()
