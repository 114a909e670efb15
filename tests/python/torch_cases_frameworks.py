# SPDX-License-Identifier: Apache-2.0
"""Cases of test_torch_stack.py: Accelerate, Lightning and DeepSpeed over the backend "headrace"."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import accelerate
import deepspeed
import lightning
import torch
import torch._dynamo
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


CASES: dict[str, Callable[[int, int], Any]] = {}

# DeepSpeed would compile its own shared-memory calls for inference, which takes a minute.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def case(function: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    CASES[function.__name__] = function
    return function


def network() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 51), nn.ReLU(), nn.Linear(51, 3))


def samples() -> torch.Tensor:
    return torch.randn(64, 20, generator=torch.Generator().manual_seed(1))


def train_alone(batches: list[torch.Tensor], learning_rate: float = 0.05) -> nn.Module:
    single = network()
    optimizer = torch.optim.SGD(single.parameters(), learning_rate)
    for batch in batches:
        optimizer.zero_grad()
        single(batch).square().mean().backward()
        optimizer.step()
    return single


def close(ours: dict[str, torch.Tensor], wanted: nn.Module) -> None:
    """One process adds in another order: equal within rounding."""
    for name, tensor in wanted.state_dict().items():
        assert torch.allclose(ours[name], tensor, rtol=0, atol=2e-6), name


def global_batches(rank_batch: int, size: int) -> list[torch.Tensor]:
    """What all ranks together see, step by step, when samples are dealt out one by one."""
    return list(samples().split(rank_batch * size))


@case
def accelerate_trains(rank: int, size: int) -> None:
    here = accelerate.Accelerator(cpu=True)  # takes the group that is there
    assert dist.get_backend() == "headrace" and here.num_processes == size
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loader = DataLoader(TensorDataset(samples()), batch_size=8)
    model, optimizer, loader = here.prepare(model, optimizer, loader)
    for (batch,) in loader:
        optimizer.zero_grad()
        here.backward(model(batch).square().mean())
        optimizer.step()
    close(here.unwrap_model(model).state_dict(), train_alone(global_batches(8, size)))
    assert here.gather(torch.tensor([rank])).tolist() == list(range(size))
    assert here.reduce(torch.ones(2), "mean").tolist() == [1, 1]
    here.wait_for_everyone()


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = self.network(batch[0]).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.05)


@case
def lightning_trains(rank: int, size: int) -> None:
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = os.environ["FREE_PORT"]
    model = Module()
    folder = Path(os.environ["CASE_FOLDER"])
    trainer = lightning.Trainer(
        accelerator="cpu", devices=size, max_epochs=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
        use_distributed_sampler=False,
        strategy=DDPStrategy(process_group_backend="headrace"),
    )  # fmt: skip
    every = TensorDataset(samples())
    sampler = DistributedSampler(every, size, rank, shuffle=False)
    loader = DataLoader(every, batch_size=8, sampler=sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(model, loader)
    assert dist.get_backend() == "headrace" and trainer.world_size == size
    batches = [
        torch.cat([samples()[r::size][step * 8 : step * 8 + 8] for r in range(size)])
        for step in range(64 // (8 * size))
    ]
    close(model.network.state_dict(), train_alone(batches))
    assert trainer.callback_metrics["loss"] > 0


@case
def deepspeed_trains(rank: int, size: int) -> None:
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = os.environ["FREE_PORT"]
    deepspeed.init_distributed(dist_backend="headrace", auto_mpi_discovery=False)
    assert dist.get_backend() == "headrace"
    wanted = train_alone(list(samples().split(16)))
    for stage in (1, 2, 3):
        engine, *_ = deepspeed.initialize(
            model=network(),
            config={
                "train_micro_batch_size_per_gpu": 8,
                "zero_optimization": {"stage": stage},
                "optimizer": {"type": "SGD", "params": {"lr": 0.05}},
                "zero_allow_untested_optimizer": True,
            },
        )
        for step in range(4):
            batch = samples()[16 * step : 16 * step + 16].split(8)[rank]
            engine.backward(engine(batch).square().mean())
            engine.step()
        whole = deepspeed.zero.GatheredParameters(
            list(engine.module.parameters()), enabled=stage == 3
        )
        with whole:
            close(engine.module.state_dict(), wanted)
        engine.destroy()
