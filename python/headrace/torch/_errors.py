# SPDX-License-Identifier: Apache-2.0
"""headrace's errors as torch's users catch them: each is a `torch.distributed.DistBackendError` too."""

from __future__ import annotations

import torch.distributed as dist

from headrace import _errors

# What the caller did wrong is no failure of the backend.
_OF_THE_CALLER = (_errors.InvalidArgument, _errors.Unsupported)


def _with_torch(kind: type[_errors.Error]) -> type[_errors.Error]:
    return type(kind.__name__, (kind, dist.DistBackendError), {"__doc__": kind.__doc__})


_KINDS = {
    kind: _with_torch(kind) for kind in _errors.BY_CODE.values() if kind not in _OF_THE_CALLER
}


def as_torch(error: Exception) -> Exception:
    """The same error, which `except dist.DistBackendError` catches as well."""
    kind = _KINDS.get(type(error))  # type: ignore[arg-type]
    if kind is None:
        return error
    told = kind(*error.args)
    told.origin = error.origin  # type: ignore[attr-defined]
    return told
