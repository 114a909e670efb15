# SPDX-License-Identifier: Apache-2.0
"""Tensors as the collectives take them, on the CPU and on GPUs; streams of GPUs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from headrace._errors import Unsupported
from headrace._front import Memory

_DTYPES = {
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bool: "bool",
}
# Pairs of reals: they add and average as such.
COMPLEX = {torch.complex64: torch.float32, torch.complex128: torch.float64}

# Where wheels of NCCL and CUDA's runtime have their libraries.
_WHEELS = ("nvidia/nccl/lib", "nvidia/cuda_runtime/lib", "nvidia/cu13/lib", "nvidia/cu12/lib")


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs."""
    return torch.view_as_real(tensor) if tensor.dtype in COMPLEX else tensor


def on_gpu(tensor: torch.Tensor) -> bool:
    """Its collectives go through NCCL."""
    return bool(tensor.is_cuda)


def _at(tensor: torch.Tensor, count: int, name: str) -> Any:
    if on_gpu(tensor):
        device = tensor.device
        return Memory(tensor.data_ptr(), count, name, device.index or 0, current_stream(device))
    if tensor.device.type == "cpu":
        return Memory(tensor.data_ptr(), count, name)
    raise Unsupported(
        f"headrace: the tensor is on {tensor.device}; collectives are for the CPU and for cuda"
    )


def memory(tensor: torch.Tensor) -> Any:
    """The tensor's elements, to be computed with.

    Raises:
        Unsupported: its type or its device.
    """
    name = _DTYPES.get(tensor.dtype)
    if name is None:
        raise Unsupported(f"headrace: no collectives for {tensor.dtype} yet")
    return _at(tensor, tensor.numel(), name)


def raw(tensor: torch.Tensor) -> Any:
    """A tensor of any type, to be moved and not computed with."""
    return _at(tensor, tensor.numel() * tensor.element_size(), "uint8")


def types() -> list[torch.device]:
    """What kinds of devices there are collectives for here."""
    return [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]


def library_folders() -> list[str]:
    """Folders of Python's packages with NCCL and CUDA's runtime; none for a torch without CUDA."""
    if not torch.backends.cuda.is_built():
        return []
    folders = [Path(entry) / wheel for entry in sys.path for wheel in _WHEELS]
    return [str(folder) for folder in folders if folder.is_dir()]


def current_stream(device: torch.device) -> int:
    """The address of the stream that torch uses now."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def hold_up(stream: int, work: Any) -> None:
    """Have what is put on the stream from now on begin after the work."""
    work.wait_on_stream(stream)


def future_of(device: torch.device) -> torch.futures.Future[Any]:
    """A future whose value is on a device: those that wait for it wait with their streams."""
    return torch.futures.Future(devices=[device])
