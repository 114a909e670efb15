# SPDX-License-Identifier: Apache-2.0
"""FSDP2 and a sharded checkpoint.

torchrun --nproc-per-node 2 examples/torch_frameworks/with_fsdp.py
"""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

import headrace.torch  # noqa: F401  (registers the backend)

dist.init_process_group("headrace")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
features = torch.randn(512, 8)
target = features @ torch.arange(1.0, 9.0)
model = fully_shard(torch.nn.Linear(8, 1))  # each rank holds a part of each parameter
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(200):
    optimizer.zero_grad()
    loss = (model(features[rank::size]).squeeze(1) - target[rank::size]).square().mean()
    loss.backward()
    optimizer.step()

folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
saving = dcp.async_save(
    {"model": get_model_state_dict(model)},
    checkpoint_id=folder[0],
    process_group=dist.new_group(),  # of its own, for training may go on meanwhile
)
saving.result()
if rank == 0:
    print(f"{size} ranks, loss {loss.item():.6f}, saved to {folder[0]}")
dist.destroy_process_group()
