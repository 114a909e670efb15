# SPDX-License-Identifier: Apache-2.0
"""Tensors as the engine takes them: address, name of the type, shape; and its memory as tensors."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from headrace._named import Adasum, Average, Sum

if TYPE_CHECKING:
    from headrace._native.comm import NamedWork

_NAMES = (
    "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "bool",
)  # fmt: skip
DTYPES: dict[torch.dtype, str] = {
    getattr(torch, name): name for name in _NAMES if hasattr(torch, name)
}
# Pairs of reals: they add and average as such.
COMPLEX = {torch.complex64: torch.float32, torch.complex128: torch.float64}
# Types that are moved and not computed with.
_OPAQUE = tuple(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if hasattr(torch, name)
)

_warned_of_staging = False


def staged(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in host memory.

    Raises:
        ValueError: it is no dense tensor, or inside a transform of torch.func.
    """
    global _warned_of_staging
    if tensor.device.type == "cpu":
        return tensor
    if tensor.device.type == "meta":
        raise ValueError("headrace: a tensor on the device meta has no values to send")
    if not _warned_of_staging:
        _warned_of_staging = True
        warnings.warn(
            f"headrace: tensors on {tensor.device} are copied through host memory", stacklevel=4
        )
    return tensor.cpu()


def check(tensor: Any, kind: str) -> None:
    """Refuse what is no plain tensor.

    Raises:
        ValueError: not a dense tensor.
        RuntimeError: a tensor of a transform of torch.func, which has no memory of its own.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"headrace: {kind}: a torch tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise ValueError(
            f"headrace: {kind}: the tensor is {tensor.layout}; use sparse_allreduce_async, or "
            "to_dense()"
        )
    if _is_of_transform(tensor):
        raise RuntimeError(
            f"headrace: {kind} was called inside a transform of torch.func (vmap, grad, jvp); "
            "collectives work on plain tensors only, call it outside of the transform"
        )


def _is_of_transform(tensor: torch.Tensor) -> bool:
    functorch = getattr(torch._C, "_functorch", None)
    found = getattr(functorch, "is_functorch_wrapped_tensor", None)
    return found is not None and bool(found(tensor))


def dtype_name(tensor: torch.Tensor, kind: str) -> str:
    """numpy's name of the tensor's type.

    Raises:
        ValueError: the collectives have no such type.
    """
    name = DTYPES.get(tensor.dtype)
    if name is None:
        raise ValueError(f"Tensor type {tensor.dtype} is not supported by {kind}")
    return name


def to_reduce(tensor: torch.Tensor, kind: str, op: int) -> torch.Tensor:
    """The tensor as numbers that the engine can reduce: complex ones as pairs.

    Raises:
        ValueError: the type cannot be reduced so.
    """
    if tensor.dtype in COMPLEX:
        if op not in (Average, Sum):
            raise ValueError(
                f"Tensor type {tensor.dtype} is not supported by {kind} but with Sum and Average"
            )
        return torch.view_as_real(tensor)
    if op == Adasum and not tensor.is_floating_point():
        raise ValueError(f"Tensor type {tensor.dtype} is not supported by {kind} with Adasum")
    return tensor


def to_move(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as numbers that the engine knows, to be moved and not computed with."""
    if tensor.dtype in COMPLEX:
        return torch.view_as_real(tensor) if tensor.dim() > 0 else tensor.real
    if tensor.dtype in _OPAQUE:
        return tensor.view(torch.uint8)
    return tensor


def flat_memory(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    """The tensor itself, to be written in place.

    Raises:
        ValueError: its elements do not lie one after the other.
    """
    if not tensor.is_contiguous():
        raise ValueError(f"{kind}: the tensor is required to be contiguous to be changed in place")
    return tensor


def allocated(work: NamedWork, like: torch.Tensor, rest: torch.Size) -> torch.Tensor:
    """What the engine has allocated for a work: `work.rows` rows of shape `rest`."""
    shape = (work.rows, *rest)
    if 0 in shape:
        return torch.empty(shape, dtype=like.dtype)
    return torch.frombuffer(work.output, dtype=torch.uint8).view(like.dtype).view(shape)


def from_move(moved: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """What `to_move` or `to_reduce` made, in the type of the original."""
    if original.dtype in COMPLEX:
        return torch.view_as_complex(moved)
    if original.dtype in _OPAQUE:
        return moved.view(original.dtype)
    return moved
