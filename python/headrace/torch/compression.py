# SPDX-License-Identifier: Apache-2.0
"""What a gradient is made into before it is sent, and back."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """Base of compressions; a class of your own has the same two static methods."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and what `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The tensor as it was, of what was received."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Send tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The same tensor."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The same tensor."""
        return tensor


class _CastCompressor(Compressor):
    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Floating tensors in 16 bits; others as they are."""
        if not tensor.is_floating_point() or tensor.dtype == cls.dtype:
            return tensor, None
        return tensor.to(cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The tensor in the type it came in."""
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Send floating tensors as float16."""

    dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """Send floating tensors as bfloat16: as many bits, the range of float32."""

    dtype = torch.bfloat16


class Compression:
    """Values of the arguments `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
