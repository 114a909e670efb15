# SPDX-License-Identifier: Apache-2.0
"""One rank of comm_collectives.py in torch.distributed: the commands of comm_worker.h and more.

Usage: comm_torch_worker.py BACKEND FOLDER RANK RANKS, in a Python that has torch; for the backend
headrace its own package must be on the path.

time KIND TYPE BYTES TIMES   a collective, waited for at once
list TIMES COUNT...          an all_reduce of each count of f32
async TIMES COUNT...         the same, all submitted before the first is waited for
step mlp|convnet TIMES       a training step under DistributedDataParallel
"""

from __future__ import annotations

import os
import pathlib
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def timed(times: int, once: Callable[[], object]) -> float:
    """Seconds of `times` calls after one that is not timed."""
    once()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(times):
        once()
    return time.perf_counter() - began


def time_one(kind: str, dtype: str, size: str, times: str) -> float:
    """A collective of `size` bytes on the smaller side of this rank."""
    item = torch.bfloat16 if dtype == "bf16" else torch.float32
    count = int(size) // item.itemsize
    ranks = dist.get_world_size()
    if kind == "all_reduce":
        tensor = torch.zeros(count, dtype=item)
        return timed(int(times), lambda: dist.all_reduce(tensor))
    sides = {"reduce_scatter": (ranks, 1), "all_gather": (1, ranks), "all_to_all": (1, 1)}[kind]
    source = torch.zeros(count * sides[0], dtype=item)
    target = torch.zeros(count * sides[1], dtype=item)
    call = {
        "reduce_scatter": dist.reduce_scatter_tensor,
        "all_gather": dist.all_gather_into_tensor,
        "all_to_all": dist.all_to_all_single,
    }[kind]
    return timed(int(times), lambda: call(target, source))


def time_list(times: str, *counts: str, at_once: bool = False) -> float:
    """An all_reduce of each count."""
    tensors = [torch.zeros(int(count)) for count in counts]

    def one_by_one() -> None:
        for tensor in tensors:
            dist.all_reduce(tensor)

    def together() -> None:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    return timed(int(times), together if at_once else one_by_one)


def mlp() -> tuple[nn.Module, torch.Tensor, int]:
    """2.1 M parameters, and a batch."""
    model = nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 240)
    )
    return model, torch.randn(128, 784), 240


def convnet() -> tuple[nn.Module, torch.Tensor, int]:
    """4.7 M parameters, and a batch."""
    layers: list[nn.Module] = []
    for before, after in ((3, 64), (64, 128), (128, 256), (256, 512), (512, 512)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(512, 1500), nn.ReLU(), nn.Linear(1500, 10)]
    return nn.Sequential(*layers), torch.randn(16, 3, 32, 32), 10


STEPS: dict[str, Callable[[], None]] = {}


def step_of(name: str) -> Callable[[], None]:
    """A training step; the model stays for the next batch of steps."""
    if name not in STEPS:
        torch.manual_seed(1)
        module, data, classes = {"mlp": mlp, "convnet": convnet}[name]()
        labels = torch.randint(0, classes, (len(data),))
        model = nn.parallel.DistributedDataParallel(module)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data), labels).backward()
            optimizer.step()

        for _ in range(3):  # the first one sees in what order gradients come
            step()
        STEPS[name] = step
    return STEPS[name]


def run(words: list[str]) -> float:
    """Seconds of a command's calls."""
    match words:
        case ["time", *rest]:
            return time_one(*rest)
        case ["list", *rest]:
            return time_list(*rest)
        case ["async", *rest]:
            return time_list(*rest, at_once=True)
        case ["step", name, times]:
            return timed(int(times), step_of(name))
    raise RuntimeError(f"no such command: {' '.join(words)}")


def main() -> int:
    """Serve commands until "quit"."""
    backend, folder, rank, ranks = sys.argv[1], pathlib.Path(sys.argv[2]), *sys.argv[3:5]
    torch.set_num_threads(1)
    if backend == "headrace":
        import headrace.torch  # noqa: F401
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=int(rank), world_size=2)
    else:
        dist.init_process_group(
            backend,
            init_method=f"file://{folder}/store",
            rank=int(rank),
            world_size=int(ranks),
            timeout=timedelta(seconds=60),
        )
    answers = os.open(folder / "out", os.O_WRONLY)

    def answer(text: str) -> None:
        os.write(answers, f"{rank} {text}\n".encode())

    with (folder / f"{rank}.in").open() as commands:
        answer("ready")
        for line in commands:
            words = line.split()
            if words == ["quit"]:
                break
            cpu = time.process_time()
            try:
                wall = run(words)
                answer(f"{wall:.9f} {time.process_time() - cpu:.9f}")
            except RuntimeError as error:  # a peer that cannot do this
                answer("cannot " + str(error).splitlines()[0][:200])
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
