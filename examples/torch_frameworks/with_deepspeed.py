# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed ZeRO on the CPU.

DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 examples/torch_frameworks/with_deepspeed.py
"""

import deepspeed
import torch
import torch.distributed as dist

import headrace.torch  # noqa: F401  (registers the backend)

deepspeed.init_distributed(dist_backend="headrace", auto_mpi_discovery=False)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
features = torch.randn(512, 8)
target = features @ torch.arange(1.0, 9.0)
engine, *_ = deepspeed.initialize(
    model=torch.nn.Linear(8, 1),
    config={
        "train_micro_batch_size_per_gpu": 512 // size,
        "zero_optimization": {
            "stage": 3
        },  # 1: optimizer states, 2: gradients too, 3: parameters too
        "optimizer": {"type": "SGD", "params": {"lr": 0.05}},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0,  # 1.0 unless it is told
    },
)
for _ in range(200):
    loss = (engine(features[rank::size]).squeeze(1) - target[rank::size]).square().mean()
    engine.backward(loss)
    engine.step()
if rank == 0:
    print(f"{size} ranks, loss {loss.item():.6f}")
dist.destroy_process_group()
