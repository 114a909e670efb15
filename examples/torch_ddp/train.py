# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch DDP over headrace: torchrun --nproc-per-node 2 examples/torch_ddp/train.py."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import headrace.torch  # noqa: F401  (registers the backend)

dist.init_process_group("headrace")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
features = torch.randn(512, 8)
target = features @ torch.arange(1.0, 9.0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(200):
    optimizer.zero_grad()
    loss = (model(features[rank::size]).squeeze(1) - target[rank::size]).square().mean()
    loss.backward()  # gradients are averaged over the ranks
    optimizer.step()
dist.all_reduce(loss.detach_(), op=dist.ReduceOp.AVG)
if rank == 0:
    print(f"{size} ranks, loss {loss.item():.6f}")
dist.destroy_process_group()
