# SPDX-License-Identifier: Apache-2.0
"""Read back what was pushed to MLflow: the pushed folder holds an export, which is taken in."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from headrace import registry
from headrace._errors import Error, InvalidArgument, IoError, NotFound, Unsupported

SCHEME = "models:/"


def fetch(r: registry.Registry, reference: str) -> list[registry.Version]:
    """Take the versions of models:/NAME/7 or models:/NAME@ALIAS into `r`; see Registry.fetch."""
    found = re.fullmatch(r"models:/([^/@:]+)(?:@([^/@:]+)|/([1-9][0-9]*))", reference)
    if found is None:
        raise InvalidArgument(
            f'registry: "{reference}" names no version of MLflow; '
            "expected models:/NAME@ALIAS or models:/NAME/VERSION"
        )
    try:
        import mlflow
    except ImportError:
        raise Unsupported(
            f"registry: {reference} is read by the MLflow client, which is not installed; "
            "pip install mlflow-skinny"
        ) from None
    try:
        return _take(r, mlflow.MlflowClient(), reference, *found.groups())
    except Error:
        raise
    except Exception as error:  # what a client raises has no common base
        missing = getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST"
        kind = NotFound if missing else IoError
        raise kind(f"registry: {reference} on {mlflow.get_tracking_uri()}: {error}") from error


def _take(
    r: registry.Registry,
    client: Any,  # noqa: ANN401 - of MLflow
    reference: str,
    name: str,
    alias: str | None,
    number: str | None,
) -> list[registry.Version]:
    there = (
        client.get_model_version(name, number)
        if alias is None
        else client.get_model_version_by_alias(name, alias)
    )
    uid = there.tags.get("headrace.uid")
    if uid is None:
        raise Unsupported(
            f"registry: {reference} was not pushed by headrace; load it with mlflow.pyfunc"
        )
    run = there.tags.get("headrace.run")
    if run is None:
        try:
            return [r.get(f"uid:{uid}")]  # a version never changes: once is enough
        except NotFound:
            pass
    with tempfile.TemporaryDirectory(prefix="headrace-mlflow-") as folder:
        file = client.download_artifacts(there.run_id, "model/data/models.tar", folder)
        r.import_file(Path(file))
    if run is None:
        return [r.get(f"uid:{uid}")]
    return list(r.list(f"{there.tags['headrace.name']}/*", run=run))
