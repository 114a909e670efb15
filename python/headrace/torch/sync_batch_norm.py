# SPDX-License-Identifier: Apache-2.0
"""Batch normalization over the batches of all ranks, by public tensor operations alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional
from torch.nn.modules.batchnorm import _BatchNorm

from headrace import _named
from headrace._named import Sum
from headrace.common.process_sets import ProcessSet, global_process_set, scope_of
from headrace.torch._async import allgather_async, allreduce_async


def _by_channel(vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return vector.view(1, -1, *[1] * (like.dim() - 2))


class _Normalize(torch.autograd.Function):  # type: ignore[misc]
    """Normalize with the mean and variance over all ranks; gives them and the count too."""

    @staticmethod
    def forward(
        ctx: Any,
        features: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        name: str,
        process_set: ProcessSet,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        channels = features.size(1)
        axes = [0, *range(2, features.dim())]
        wide = features.to(torch.promote_types(features.dtype, torch.float32))
        count = features.numel() // channels if channels else 0
        mean = wide.mean(axes) if count else wide.new_zeros(channels)
        spread = (wide - _by_channel(mean, wide)).square().sum(axes)
        mine = torch.cat([mean.new_full((1,), float(count)), mean, spread]).double()
        # Chan's formula: sums of squares of the parts, about the mean of all.
        every = allgather_async(mine.unsqueeze(0), f"{name}.forward", process_set).synchronize()
        counts, means, spreads = every[:, :1], every[:, 1 : channels + 1], every[:, channels + 1 :]
        total = counts.sum()
        mean = (counts * means).sum(0) / total.clamp(min=1)
        spread = (spreads + counts * (means - mean).square()).sum(0)
        scale = torch.rsqrt(spread / total.clamp(min=1) + eps).to(wide.dtype)
        ctx.save_for_backward(features, weight, mean.to(wide.dtype), scale, total)
        ctx.name, ctx.process_set, ctx.has_bias = name, process_set, bias is not None
        out = (wide - _by_channel(mean.to(wide.dtype), wide)) * _by_channel(scale, wide)
        if weight is not None:
            out = out * _by_channel(weight, wide)
        if bias is not None:
            out = out + _by_channel(bias, wide)
        ctx.mark_non_differentiable(mean, spread, total)
        return out.to(features.dtype), mean, spread, total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        features, weight, mean, scale, total = ctx.saved_tensors
        axes = [0, *range(2, features.dim())]
        wide = gradient.to(scale.dtype)
        centred = (features.to(scale.dtype) - _by_channel(mean, features)) * _by_channel(
            scale, features
        )
        sums = torch.cat([wide.sum(axes), (wide * centred).sum(axes)])
        weight_gradient = bias_gradient = feature_gradient = None
        if weight is not None and ctx.needs_input_grad[1]:
            weight_gradient = sums[scale.numel() :].to(weight.dtype)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            bias_gradient = sums[: scale.numel()].clone()
        # On all ranks alike: whether the input needs a gradient may not decide who takes part.
        handle = allreduce_async(
            sums.double(), name=f"{ctx.name}.backward", op=Sum, process_set=ctx.process_set
        )
        means = (handle.synchronize() / total.clamp(min=1)).to(scale.dtype)
        if ctx.needs_input_grad[0]:
            shift, slope = means[: scale.numel()], means[scale.numel() :]
            factor = scale if weight is None else scale * weight
            feature_gradient = (
                wide - _by_channel(shift, wide) - centred * _by_channel(slope, wide)
            ) * _by_channel(factor, wide)
            feature_gradient = feature_gradient.to(features.dtype)
        return feature_gradient, weight_gradient, bias_gradient, None, None, None


class SyncBatchNorm(_BatchNorm):  # type: ignore[misc]
    """BatchNorm1d, 2d and 3d with the statistics of all ranks, weighted by their counts.

    The ranks' batches may differ in size, and be empty. Arguments are those of torch's BatchNorm,
    and the process set whose ranks take part.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set
        self._collective_name = f"sync_batch_norm.{_named.ordinal('layer')}"

    def _check_input_dim(self, features: torch.Tensor) -> None:
        if features.dim() < 2:
            raise ValueError(f"SyncBatchNorm: at least 2 dimensions (N, C), not {features.dim()}")
        if features.size(1) != self.num_features:
            raise ValueError(
                f"SyncBatchNorm: {self.num_features} channels, the input has {features.size(1)}"
            )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Normalize (N, C, ...); in training all ranks of the set call it."""
        self._check_input_dim(features)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        if not self.training or scope_of(self.process_set).size == 1:
            tracked = not self.training or self.track_running_stats
            return functional.batch_norm(
                features,
                self.running_mean if tracked else None,
                self.running_var if tracked else None,
                self.weight,
                self.bias,
                self.training or self.running_mean is None,
                momentum,
                self.eps,
            )
        out, mean, spread, total = _Normalize.apply(
            features, self.weight, self.bias, self.eps, self._collective_name, self.process_set
        )
        if self.track_running_stats and self.running_mean is not None and total > 0:
            with torch.no_grad():
                variance = spread / (total - 1).clamp(min=1)
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
                self.running_var.lerp_(variance.to(self.running_var.dtype), momentum)
        return out

    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_set: ProcessSet = global_process_set
    ) -> torch.nn.Module:
        """Replace every BatchNorm layer in a module; parameters and statistics are kept."""
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            made = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_set,
            )
            made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
            return made
        for name, child in module.named_children():
            converted = cls.convert_sync_batchnorm(child, process_set)
            if converted is not child:
                setattr(module, name, converted)
        return module
