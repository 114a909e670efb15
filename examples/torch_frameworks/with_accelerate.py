# SPDX-License-Identifier: Apache-2.0
"""Accelerate takes the process group that is there.

torchrun --nproc-per-node 2 examples/torch_frameworks/with_accelerate.py
"""

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import headrace.torch  # noqa: F401  (registers the backend)

dist.init_process_group("headrace")
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
features = torch.randn(512, 8)
target = features @ torch.arange(1.0, 9.0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(features, target), batch_size=64, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for _ in range(40):
    for inputs, wanted in loader:
        optimizer.zero_grad()
        loss = (model(inputs).squeeze(1) - wanted).square().mean()
        accelerator.backward(loss)
        optimizer.step()
accelerator.print(f"{accelerator.num_processes} ranks, loss {loss.item():.6f}")
dist.destroy_process_group()
