# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits in the manner of Horovod's scripts, with images made on the spot.

headrace run -np 2 python examples/horovod_mnist.py
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data
import torch.utils.data.distributed

import headrace.torch as hvd

parser = argparse.ArgumentParser(description="MNIST, synthetic")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--samples", type=int, default=500)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--use-adasum", action="store_true")
parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
parser.add_argument("--batches-per-allreduce", type=int, default=1)


def digits(samples: int, seed: int) -> torch.utils.data.TensorDataset:
    """Ten fixed pictures and noise."""
    pictures = torch.rand(10, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (samples,), generator=generator)
    noise = torch.randn(samples, 1, 12, 12, generator=generator)
    return torch.utils.data.TensorDataset(pictures[labels] + 0.2 * noise, labels)


class Net(nn.Module):
    """A convolution and two linear layers."""

    def __init__(self) -> None:  # noqa: D107
        super().__init__()
        self.conv = nn.Conv2d(1, 6, kernel_size=3)
        self.bn = hvd.SyncBatchNorm(6)
        self.fc1 = nn.Linear(150, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Log probabilities of the digits."""
        x = F.relu(F.max_pool2d(self.bn(self.conv(x)), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(epoch: int) -> None:
    """One epoch over this rank's share."""
    model.train()
    train_sampler.set_epoch(epoch)
    for data, target in train_loader:
        optimizer.zero_grad()
        for i in range(0, len(data), args.batch_size):
            data_batch = data[i : i + args.batch_size]
            loss = F.nll_loss(model(data_batch), target[i : i + args.batch_size])
            loss.div_(-(-len(data) // args.batch_size))
            loss.backward()
        optimizer.step()


def metric_average(value: float, name: str) -> float:
    """The mean over the ranks."""
    return hvd.allreduce(torch.tensor(value), name=name).item()


def test() -> tuple[float, float]:
    """Loss and accuracy over the test images of all ranks."""
    model.eval()
    loss = correct = 0.0
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            correct += output.argmax(1).eq(target).sum().item()
    shown = len(test_sampler)
    return metric_average(loss / shown, "avg_loss"), metric_average(correct / shown, "avg_accuracy")


if __name__ == "__main__":
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(args.seed + hvd.rank())
    torch.set_num_threads(1)

    train_dataset, test_dataset = digits(args.samples, 1), digits(args.samples // 2, 2)
    train_sampler = torch.utils.data.distributed.DistributedSampler(
        train_dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    train_loader = torch.utils.data.DataLoader(
        train_dataset,
        batch_size=args.batch_size * args.batches_per_allreduce,
        sampler=train_sampler,
    )
    test_sampler = torch.utils.data.distributed.DistributedSampler(
        test_dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    test_loader = torch.utils.data.DataLoader(test_dataset, batch_size=50, sampler=test_sampler)

    model = Net()
    lr_scaler = args.batches_per_allreduce * (1 if args.use_adasum else hvd.size())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * lr_scaler, momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        backward_passes_per_step=args.batches_per_allreduce,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        hvd.join()
        loss, accuracy = test()
        if hvd.rank() == 0:
            print(f"epoch {epoch}: test loss {loss:.4f}, accuracy {100 * accuracy:.1f} %")
