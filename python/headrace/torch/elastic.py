# SPDX-License-Identifier: Apache-2.0
"""The place of elastic training, which is not there yet."""

raise ImportError(
    "headrace.torch.elastic is not there yet; training with a fixed number of ranks works "
    "(hvd.init() and hvd.DistributedOptimizer)",
    name="headrace.torch.elastic",
)
