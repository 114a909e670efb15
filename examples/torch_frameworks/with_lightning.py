# SPDX-License-Identifier: Apache-2.0
"""Lightning with its own DDPStrategy.

torchrun --nproc-per-node 2 examples/torch_frameworks/with_lightning.py
"""

import os

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

import headrace.torch  # noqa: F401  (registers the backend)


class Linear(lightning.LightningModule):
    """One linear layer."""

    def __init__(self) -> None:
        """With weights of its own."""
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """The loss of a batch."""
        inputs, wanted = batch
        loss = (self.layer(inputs).squeeze(1) - wanted).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


torch.manual_seed(0)
features = torch.randn(512, 8)
target = features @ torch.arange(1.0, 9.0)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy=DDPStrategy(process_group_backend="headrace"),
    max_epochs=40,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Linear(), DataLoader(TensorDataset(features, target), batch_size=64, shuffle=True))
loss = trainer.callback_metrics["loss"]
if trainer.is_global_zero:
    print(f"{trainer.world_size} ranks, loss {loss.item():.6f}")
dist.destroy_process_group()
