# SPDX-License-Identifier: Apache-2.0
"""Collectives, process sets, join and errors under Horovod's names; see hvd_ranks.py."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import headrace
import headrace.torch as hvd
from headrace.common.exceptions import HorovodInternalError
from hvd_ranks import collect

torch.set_num_threads(1)
CASES, case = collect()

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def raised(kind: type[BaseException], call: Callable[[], Any], *words: str) -> str:
    """The text of the exception that must come, with these words in it."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return str(error)
    raise AssertionError(f"no {kind.__name__} with {words}")


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def drawn(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(1, 5, shape, generator=generator).to(dtype)


@case
def queries(rank: int, size: int) -> None:
    for question in ("size", "rank", "local_rank", "local_size", "cross_rank", "cross_size"):
        raised(ValueError, getattr(hvd, question), "has not been initialized; use hvd.init()")
    raised(ValueError, lambda: hvd.allreduce(torch.ones(1)), "has not been initialized")
    raised(ValueError, lambda: hvd.start_timeline("x"), "has not been initialized")
    assert not hvd.is_initialized()
    assert hvd.global_process_set.size() is None
    hvd.init()
    hvd.init()
    assert hvd.is_initialized()
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (rank, size, rank, size)
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)
    assert not any((hvd.mpi_built(), hvd.mpi_enabled(), hvd.rocm_built(), hvd.ddl_built()))
    assert hvd.gloo_built() and hvd.gloo_enabled() and not hvd.ccl_built()
    assert isinstance(hvd.nccl_built(), int) and isinstance(hvd.cuda_built(), bool)
    raised(ValueError, hvd.mpi_threads_supported, "not enabled")
    constants = (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)
    assert constants == tuple(range(6))
    from headrace.torch.functions import broadcast_object
    from headrace.torch.mpi_ops import allreduce_async_, poll, synchronize

    assert broadcast_object is hvd.broadcast_object
    assert synchronize is hvd.synchronize and poll is hvd.poll and allreduce_async_
    raised(ImportError, lambda: hvd.elastic, "not there yet")
    hvd.shutdown()
    hvd.shutdown()
    raised(ValueError, lambda: hvd.init(comm=object()), "MPI is not used")


@case
def again(rank: int, size: int) -> None:
    """init and shutdown any number of times; counters restart, old handles are dead."""
    kept = []
    for cycle in range(20):
        hvd.init()
        if rank == 0 and cycle == 3:
            hvd.allgather(torch.ones(1)) if size == 1 else None
        handle = hvd.allreduce_async(torch.ones(2))
        assert (
            hvd.synchronize(hvd.allreduce_async(torch.full((2,), float(cycle)))).tolist()
            == [float(cycle)] * 2
        )
        kept.append(handle)
        hvd.barrier()
        hvd.shutdown()
    hvd.init()
    for handle in kept:
        assert hvd.poll(handle)
        assert hvd.synchronize(handle) is None
    hvd.shutdown()


@case
def reductions(rank: int, size: int) -> None:
    hvd.init()
    combine = {
        hvd.Sum: lambda t: t.sum(0),
        hvd.Average: lambda t: t.mean(0),
        hvd.Min: lambda t: t.min(0).values,
        hvd.Max: lambda t: t.max(0).values,
        hvd.Product: lambda t: t.prod(0),
    }
    for dtype in FLOATS + INTEGERS:
        for op, fold in combine.items():
            for shape in ((), (0,), (5,), (17, 9)):
                every = [drawn(r, shape, dtype) for r in range(size)]
                exact = fold(torch.stack([one.double() for one in every]))
                if not dtype.is_floating_point:
                    exact = exact.trunc()
                mine = every[rank].clone()
                result = hvd.allreduce(mine, op=op)
                assert result.dtype == dtype and result.shape == shape
                tolerance = 1e-2 if dtype.itemsize == 2 else 1e-6
                assert torch.allclose(result.double(), exact, rtol=tolerance), (dtype, op, shape)
                assert torch.equal(mine, every[rank])  # untouched
                assert hvd.allreduce_(mine, op=op) is mine
                assert torch.equal(mine, result)
    # Integers: the mean is cut towards zero.
    odd = torch.tensor([-3, 3]) if rank == 0 else torch.tensor([0, 0])
    assert hvd.allreduce(odd).tolist() == [
        int(-3 / size), int(3 / size),
    ]  # fmt: skip
    # 16 bits: accumulated in 32, rounded once.
    for dtype in (torch.float16, torch.bfloat16):
        every = [torch.randn(1000, generator=torch.Generator().manual_seed(r)).to(dtype)
                 for r in range(size)]  # fmt: skip
        exact = torch.stack([one.double() for one in every]).sum(0)
        assert torch.equal(hvd.allreduce(every[rank], op=hvd.Sum), exact.to(dtype)), dtype
    # Factors, also in types that Horovod did not reduce.
    scaled = hvd.allreduce(
        torch.full((3,), 2.0), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0
    )
    assert scaled.tolist() == [3.0 * size] * 3
    assert hvd.allreduce(torch.tensor([7]), op=hvd.Max, prescale_factor=0.5).tolist() == [3]
    truth = torch.tensor([rank == 0, True, False])
    assert hvd.allreduce(truth, op=hvd.Sum).tolist() == [True, True, False]
    assert hvd.allreduce(truth, op=hvd.Min).tolist() == [size == 1, True, False]
    pair = torch.full((3,), complex(1, rank))
    assert hvd.allreduce(pair, op=hvd.Sum).tolist() == [complex(size, sum(range(size)))] * 3
    raised(ValueError, lambda: hvd.allreduce(pair, op=hvd.Max), "Tensor type torch.complex64")
    # Of tensors that are not contiguous a copy is reduced.
    columns = torch.arange(6.0).view(2, 3).t() + rank
    assert torch.equal(hvd.allreduce(columns), torch.arange(6.0).view(2, 3).t() + (size - 1) / 2)
    raised(ValueError, lambda: hvd.allreduce_(columns), "required to be contiguous")
    # Old spelling.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert hvd.allreduce(torch.ones(1), average=False).tolist() == [float(size)]
    assert any(issubclass(one.category, DeprecationWarning) for one in caught)
    raised(ValueError, lambda: hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum), "supersedes")
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16, Doubled):
        halved = hvd.allreduce(torch.full((4,), 1.5 + rank), compression=compression, op=hvd.Sum)
        assert halved.dtype == torch.float32
        assert halved.tolist() == [1.5 * size + sum(range(size))] * 4, compression
    whole = hvd.allreduce(torch.ones(2, dtype=torch.int64), compression=hvd.Compression.fp16)
    assert whole.dtype == torch.int64
    hvd.shutdown()


class Doubled(hvd.Compressor):
    """A compression of a user."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor * 2, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return (tensor / 2).to(ctx)


@case
def any_order(rank: int, size: int) -> None:
    """Ranks submit the same names in different orders, some from several threads."""
    hvd.init()
    total = 60
    order = torch.randperm(total, generator=torch.Generator().manual_seed(rank)).tolist()
    for _ in range(3):  # later rounds come from the cache
        handles: dict[int, Any] = {}

        def submit(numbers: list[int], into: dict[int, Any]) -> None:
            for number in numbers:
                into[number] = hvd.allreduce_async(
                    torch.full((number + 1,), float(number + rank)), name=f"n{number}"
                )

        threads = [
            threading.Thread(target=submit, args=(order[part::3], handles)) for part in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, handle in handles.items():
            expected = number + (size - 1) / 2
            assert hvd.synchronize(handle).tolist() == [expected] * (number + 1)
            assert hvd.poll(handle) and hvd.synchronize(handle) is None
    hvd.shutdown()


@case
def movements(rank: int, size: int) -> None:
    hvd.init()
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.float8_e4m3fn):
        mine = torch.full((rank + 1, 2), float(rank + 1)).to(dtype)
        every = hvd.allgather(mine, name=f"g{dtype}")
        expected = torch.cat([torch.full((r + 1, 2), float(r + 1)).to(dtype) for r in range(size)])
        assert every.dtype == dtype
        assert every.to(torch.complex64).tolist() == expected.to(torch.complex64).tolist()
        root = hvd.broadcast(mine[:1].contiguous(), root_rank=size - 1)
        last = torch.full((1, 2), float(size)).to(dtype)
        assert root.to(torch.complex64).tolist() == last.to(torch.complex64).tolist(), dtype
    nothing = hvd.allgather(torch.empty((0, 3)))
    assert nothing.shape == (0, 3)
    some = hvd.allgather(torch.full((rank, 3), float(rank)))
    assert some.tolist() == [[float(r)] * 3 for r in range(size) for _ in range(r)]
    scalar = torch.tensor(float(rank))
    assert hvd.broadcast_(scalar, 0) is scalar and scalar.item() == 0.0
    assert hvd.broadcast(torch.empty(0), 0).numel() == 0

    block = torch.arange(2.0 * size) + 100 * rank
    swapped = hvd.alltoall(block)
    assert swapped.tolist() == [100.0 * r + 2 * rank + i for r in range(size) for i in (0, 1)]
    for splits in (
        list(range(1, size + 1)),
        torch.arange(1, size + 1, dtype=torch.int32),
        torch.arange(1, size + 1),
    ):
        rows = torch.full((sum(range(size + 1)) + 2, 3), float(rank))  # two rows are not sent
        received, counts = hvd.alltoall(rows, splits=splits)
        assert counts.tolist() == [rank + 1] * size
        assert counts.dtype == getattr(splits, "dtype", torch.int32)
        assert received.tolist() == [[float(r)] * 3 for r in range(size) for _ in range(rank + 1)]
    pair = hvd.synchronize(hvd.alltoall_async(block))
    assert torch.equal(pair[0], swapped) and pair[1].tolist() == [2] * size
    empty, counts = hvd.alltoall(torch.empty((0, 2)), splits=[0] * size)
    assert empty.shape == (0, 2) and counts.tolist() == [0] * size

    for rows in (0, 1, size, 2 * size + 1):
        whole = torch.arange(3.0 * rows).view(rows, 3) + rank
        mine = hvd.reducescatter(whole, op=hvd.Sum)
        first = sum(rows // size + (r < rows % size) for r in range(rank))
        count = rows // size + (rank < rows % size)
        expected = (torch.arange(3.0 * rows).view(rows, 3) * size + sum(range(size)))[
            first : first + count
        ]
        assert torch.equal(mine, expected), rows
    assert hvd.reducescatter(torch.full((size,), 1.0), postscale_factor=4.0).tolist() == [4.0]
    half = hvd.reducescatter(torch.full((size,), 1.0), compression=hvd.Compression.fp16)
    assert half.dtype == torch.float32
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        raised(RuntimeError, lambda op=op: hvd.reducescatter(torch.ones(4), op=op), "only supports")
    hvd.barrier()
    hvd.shutdown()


@case
def groups(rank: int, size: int) -> None:
    hvd.init()
    mean = (size - 1) / 2
    for _ in range(3):
        tensors = [torch.full((i + 1,), float(i + rank)) for i in range(5)]
        tensors.append(torch.full((2,), rank, dtype=torch.int64))
        results = hvd.grouped_allreduce(tensors, name="group")
        assert [t.tolist() for t in results[:5]] == [[i + mean] * (i + 1) for i in range(5)]
        assert results[5].tolist() == [int(mean)] * 2
        ours = hvd.grouped_allreduce_(tensors[:5], op=hvd.Sum)
        assert all(a is b for a, b in zip(ours, tensors, strict=False))
        assert tensors[0].tolist() == [sum(range(size))]
        gathered = hvd.grouped_allgather([torch.full((rank + 1,), 1.0), torch.full((1, 2), rank)])
        assert gathered[0].numel() == sum(range(size + 1))
        assert gathered[1].tolist() == [[r, r] for r in range(size)]
        parts = hvd.grouped_reducescatter([torch.ones(size), torch.ones((size, 2))], op=hvd.Sum)
        assert [t.tolist() for t in parts] == [[float(size)], [[float(size)] * 2]]
    # None of a group is enqueued if one of its names is taken.
    if size > 1 and rank == 0:
        first = hvd.allreduce_async(torch.ones(1), name="taken_2of2")
        two = [torch.ones(1), torch.ones(1)]
        raised(ValueError, lambda: hvd.grouped_allreduce_async(two, name="taken"), "same name")
    hvd.barrier()
    if size > 1:
        if rank != 0:
            first = hvd.allreduce_async(torch.ones(1), name="taken_2of2")
        assert hvd.synchronize(first).tolist() == [1.0]
        both = hvd.grouped_allreduce([torch.ones(1), torch.ones(1)], name="taken")
        assert [t.item() for t in both] == [1.0, 1.0]
    raised(ValueError, lambda: hvd.grouped_allreduce([]), "empty")
    hvd.shutdown()


@case
def sparse(rank: int, size: int) -> None:
    hvd.init()
    for nnz in (2, rank, 0):
        rows = torch.arange(nnz) + rank
        values = torch.full((nnz, 3), float(rank + 1))
        tensor = torch.sparse_coo_tensor(rows.unsqueeze(0), values, (size + 3, 3))
        for op in (hvd.Average, hvd.Sum):
            wait = hvd.sparse_allreduce_async(tensor, name="s", op=op)
            result = wait().to_dense()
            expected = torch.zeros(size + 3, 3)
            for r in range(size):
                count = nnz if nnz != rank or nnz == 2 else r
                count = 2 if nnz == 2 else (0 if nnz == 0 and rank != 0 else count)
                expected[r : r + count] += r + 1
            if nnz == 2:
                divisor = size if op == hvd.Average else 1
                assert torch.allclose(result, expected / divisor)
            assert result.shape == (size + 3, 3)
    raised(ValueError, lambda: hvd.sparse_allreduce_async(torch.ones(2), "d"), "sparse COO")
    raised(ValueError, lambda: hvd.allreduce(tensor), "sparse_allreduce_async")
    hvd.shutdown()


@case
def refused_here(rank: int, size: int) -> None:
    """What is wrong with a call is told at the call, and other operations go on."""
    hvd.init()
    pending = None
    if rank == 0 and size > 1:
        pending = hvd.allreduce_async(torch.ones(3), name="twice")
        raised(ValueError, lambda: hvd.allreduce_async(torch.ones(3), name="twice"), "same name")
    hvd.barrier()
    if size > 1:
        other = pending or hvd.allreduce_async(torch.ones(3), name="twice")
        assert hvd.synchronize(other).tolist() == [1.0] * 3
    strange = hvd.ProcessSet([0])
    raised(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=strange), "unknown process")
    raised(ValueError, lambda: hvd.broadcast(torch.ones(1), size), "root rank")
    for splits, words in (
        ([1.5] * size, "32-bit integer"),
        (torch.ones((1, size), dtype=torch.int32), "1-D"),
        ([1] * (size + 1), "splits for"),
        ([9] * size, "greater than"),
    ):
        raised(ValueError, lambda s=splits: hvd.alltoall(torch.ones(4 * size), splits=s), words)
    if size > 1:
        raised(ValueError, lambda: hvd.alltoall(torch.ones(size + 1)), "not divisible")
    raised(ValueError, lambda: hvd.allreduce(torch.quantize_per_tensor(
        torch.ones(2), 1.0, 0, torch.quint8)), "Tensor type")  # fmt: skip
    raised(ValueError, lambda: hvd.allreduce([1.0]), "torch tensor")
    raised(ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum),
           "Adasum")  # fmt: skip
    assert hvd.synchronize(12345) is None and hvd.poll(None)
    if size & (size - 1):
        raised(
            NotImplementedError, lambda: hvd.allreduce(torch.ones(2), op=hvd.Adasum), "power of 2"
        )
    else:
        hvd.allreduce(torch.ones(2), op=hvd.Adasum)
    hvd.shutdown()


@case
def mismatches(rank: int, size: int) -> list[str]:
    """Each fails on all ranks with its words; the name works afterwards, others all the time."""
    hvd.init()
    odd = rank == size - 1
    other = hvd.allreduce_async(torch.ones(2), name="other") if odd else None
    two, three = torch.ones(2), torch.ones(3)
    grid, wide = torch.ones((2, 3)), torch.ones((2, 4))
    ints = torch.ones(2, dtype=torch.int32)
    checks: list[tuple[Callable[[str], Any], Callable[[str], Any], tuple[str, ...]]] = [
        (lambda n: hvd.allreduce(two, name=n), lambda n: hvd.allreduce(ints, name=n),
         ("Mismatched data types", "float32", "int32")),
        (lambda n: hvd.allreduce(two, name=n), lambda n: hvd.allreduce(three, name=n),
         ("Mismatched", "tensor shapes", "[2]", "[3]")),
        (lambda n: hvd.allreduce(two, name=n),
         lambda n: hvd.allreduce(two, name=n, op=hvd.Adasum if not size & (size - 1) else hvd.Sum),
         ("Mismatched operations" if not size & (size - 1) else "Mismatched reduction operation",)),
        (lambda n: hvd.allreduce(two, name=n), lambda n: hvd.allreduce(two, name=n, op=hvd.Max),
         ("Mismatched reduction operation",)),
        (lambda n: hvd.allreduce(two, name=n),
         lambda n: hvd.allreduce(two, name=n, prescale_factor=2.0),
         ("Mismatched prescale and/or postscale factors",)),
        (lambda n: hvd.broadcast(two, 0, name=n), lambda n: hvd.broadcast(two, size - 1, name=n),
         ("Mismatched", "root ranks")),
        (lambda n: hvd.broadcast(two, 0, name=n), lambda n: hvd.broadcast(three, 0, name=n),
         ("Mismatched", "tensor shapes")),
        (lambda n: hvd.allgather(grid, name=n), lambda n: hvd.allgather(wide, name=n),
         ("Mismatched", "tensor shapes", "3", "4")),
        (lambda n: hvd.allgather(grid, name=n), lambda n: hvd.allgather(two, name=n),
         ("Mismatched", "tensor shapes")),
        (lambda n: hvd.allgather(torch.tensor(1.0), name=n),
         lambda n: hvd.allgather(torch.tensor(1.0), name=n), ("rank-zero tensor",)),
        (lambda n: hvd.alltoall(torch.tensor(1.0), name=n),
         lambda n: hvd.alltoall(torch.tensor(1.0), name=n), ("rank-zero tensor",)),
        (lambda n: hvd.reducescatter(torch.tensor(1.0), name=n),
         lambda n: hvd.reducescatter(torch.tensor(1.0), name=n), ("rank-zero tensor",)),
        (lambda n: hvd.reducescatter(two, name=n),
         lambda n: hvd.reducescatter(two, name=n, op=hvd.Sum), ("Mismatched reduction operation",)),
    ]  # fmt: skip
    texts = []
    for number, (usual, odd_call, words) in enumerate(checks):
        name = f"check{number}"
        call = odd_call if odd else usual
        texts.append(raised(HorovodInternalError, lambda c=call, n=name: c(n), *words))
        assert hvd.allreduce(torch.ones(1), name=name).item() == 1.0
    if other is None:
        other = hvd.allreduce_async(torch.ones(2), name="other")
    assert hvd.synchronize(other).tolist() == [1.0, 1.0]
    hvd.shutdown()
    return texts


@case
def gradients(rank: int, size: int) -> None:
    """Section 5's table; expected by hand."""
    hvd.init()

    def backward(result: torch.Tensor, source: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        gradient = torch.full_like(result, float(rank + 1) * factor)
        before = gradient.clone()
        result.backward(gradient)
        assert torch.equal(gradient, before), "the incoming gradient was changed"
        assert source.grad is not None
        return source.grad

    total = float(sum(range(1, size + 1)))
    mean = total / size
    for op, expected in ((hvd.Sum, total), (hvd.Average, mean)):
        x = torch.ones(3, requires_grad=True)
        y = hvd.allreduce(x, op=op, prescale_factor=2.0, postscale_factor=3.0, name="a")
        assert torch.allclose(backward(y, x), torch.full((3,), expected * 6))
    for op in (hvd.Min, hvd.Max, hvd.Product):
        x = torch.ones(3, requires_grad=True)
        y = hvd.allreduce(x, op=op)
        raised(NotImplementedError, lambda y=y: y.sum().backward(), "no gradient")
    xs = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    ys = hvd.grouped_allreduce(xs, op=hvd.Sum)
    (ys[0].sum() * (rank + 1) + ys[1].sum() * 2).backward()
    assert xs[0].grad.tolist() == [total] * 2 and xs[1].grad.tolist() == [2.0 * size] * 3

    x = torch.ones((rank + 1, 2), requires_grad=True)
    assert torch.allclose(backward(hvd.allgather(x), x), torch.full((rank + 1, 2), mean))
    xs = [torch.ones((rank + 1, 2), requires_grad=True), torch.ones(1, requires_grad=True)]
    ys = hvd.grouped_allgather(xs)
    (ys[0].sum() * (rank + 1) + ys[1].sum()).backward()
    assert torch.allclose(xs[0].grad, torch.full((rank + 1, 2), mean))
    assert xs[1].grad.tolist() == [1.0]

    x = torch.ones(3, requires_grad=True)
    root = size - 1
    expected = mean if rank == root else 0.0
    assert torch.allclose(backward(hvd.broadcast(x, root), x), torch.full((3,), expected))

    x = torch.ones(2 * size, requires_grad=True)
    y = hvd.alltoall(x)
    y.backward(torch.full_like(y, float(rank + 1)))
    assert x.grad.tolist() == [float(r + 1) for r in range(size) for _ in range(2)]
    x = torch.ones((size + 1, 2), requires_grad=True)
    y, counts = hvd.alltoall(x, splits=[1] * size)
    assert not counts.requires_grad
    y.backward(torch.full_like(y, float(rank + 1)))
    assert x.grad.tolist() == [[float(r + 1)] * 2 for r in range(size)] + [[0.0, 0.0]]

    for op, factor in ((hvd.Average, 1.0), (hvd.Sum, float(size))):
        x = torch.ones(size, requires_grad=True)
        y = hvd.reducescatter(x, op=op, prescale_factor=2.0)
        assert backward(y, x).tolist() == [2.0 * factor * (r + 1) for r in range(size)]
        x = torch.ones(size, requires_grad=True)
        (y,) = hvd.grouped_reducescatter([x], op=op)
        (y * (rank + 1)).sum().backward()
        assert x.grad.tolist() == [factor * (r + 1) for r in range(size)]
    x = torch.ones(2, requires_grad=True)
    hvd.allreduce(x, compression=hvd.Compression.fp16).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    hvd.shutdown()


@case
def transforms(rank: int, size: int) -> None:
    hvd.init()
    raised(
        RuntimeError, lambda: torch.func.grad(lambda x: hvd.allreduce(x).sum())(torch.ones(2)),
        "torch.func",
    )  # fmt: skip
    raised(RuntimeError, lambda: torch.vmap(hvd.allreduce)(torch.ones(2, 2)), "torch.func")

    def function(x: torch.Tensor) -> torch.Tensor:
        return hvd.allreduce(x * 2, op=hvd.Sum, name="compiled") + 1

    compiled = torch.compile(function, backend="eager")
    for _ in range(3):
        assert compiled(torch.full((2,), float(rank))).tolist() == [2.0 * sum(range(size)) + 1] * 2
    hvd.shutdown()


@case
def objects(rank: int, size: int) -> None:
    hvd.init()
    thing = {"rank": rank, "list": list(range(rank + 1)), "text": "x" * 1000 * (rank + 1)}
    got = hvd.broadcast_object(thing if rank == size - 1 else None, root_rank=size - 1)
    assert got["rank"] == size - 1 and len(got["text"]) == 1000 * size
    # Another type on each rank is no other name.
    assert hvd.broadcast_object(1 if rank == 0 else "text", 0) == 1
    every = hvd.allgather_object(thing)
    assert [one["rank"] for one in every] == list(range(size))
    assert hvd.allgather_object(None) == [None] * size

    parameters = {
        "b": torch.full((2, 3), float(rank)).t(),
        "a": torch.full((2,), rank),
        "n": 5 + rank,
    }
    alias = parameters["a"]
    parameters["z"] = alias
    hvd.broadcast_parameters(parameters, root_rank=size - 1)
    assert parameters["a"].tolist() == [size - 1] * 2 and parameters["n"] == 5 + size - 1
    assert parameters["b"].eq(size - 1).all()
    model = torch.nn.Linear(2, 2)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
    hvd.broadcast_parameters(list(model.parameters()), root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert len({float(w) for w in hvd.allgather(model.weight.detach()[:1, 0])}) == 1
    for wrong in (3, torch.ones(1), "text", [1, 2]):
        raised(ValueError, lambda w=wrong: hvd.broadcast_parameters(w, 0), "invalid params of type")
    hvd.shutdown()


@case
def dropped(rank: int, size: int) -> None:
    """Handles that nobody waits for neither leak nor let go of memory too early."""
    hvd.init()

    def burst(total: int) -> None:
        for number in range(total):
            hvd.allreduce_async_(torch.full((1000,), float(rank)), name=f"d{number % 500}.{number}")
            if number % 200 == 199:
                hvd.barrier()

    burst(2000)
    gc.collect()
    before = resident_kib()
    burst(10_000)
    hvd.barrier()
    hvd.allreduce(torch.ones(1))
    gc.collect()
    grown = resident_kib() - before
    assert grown < 20_000, grown  # 10,000 buffers are 40 MB
    from headrace import _named

    assert len(_named._orphans) <= 500
    hvd.shutdown()


@case
def flat_memory(rank: int, size: int) -> None:
    hvd.init()

    def steps(total: int) -> None:
        for _ in range(total):
            hvd.synchronize(hvd.allreduce_async(torch.ones(5000), name="flat"))
            hvd.allgather(torch.ones(100))
            hvd.broadcast_object({"a": 1})

    steps(500)
    before = resident_kib()
    steps(3000)
    grown = resident_kib() - before
    assert grown < 4_000, grown
    hvd.shutdown()


@case
def sets(rank: int, size: int) -> None:
    """Needs 3 ranks or more."""
    first, last = hvd.ProcessSet([1, 0]), hvd.ProcessSet(range(1, size))
    assert first.ranks == [0, 1] and first.process_set_id is None and first.size() is None
    assert str(first) == "ProcessSet(process_set_id=None, ranks=[0, 1])"
    raised(ValueError, lambda: hvd.ProcessSet(["a"]), "int")
    raised(ValueError, lambda: hvd.ProcessSet(object()), "MPI is not used")
    raised(ValueError, lambda: hvd.init(process_sets=[first, hvd.ProcessSet([0, 1])]), "sets[1]")
    everybody = hvd.ProcessSet(range(size))
    raised(ValueError, lambda: hvd.init(process_sets=[first, everybody]), "sets[1]", "duplicate")
    assert not hvd.is_initialized()
    hvd.init(process_sets=[first, last])
    assert (first.process_set_id, last.process_set_id) == (1, 2)
    assert first.included() == (rank < 2) and last.included() == (rank >= 1)
    assert first.size() == 2 and last.size() == size - 1
    assert hvd.global_process_set.ranks == list(range(size))
    assert hvd.process_sets_table() == {
        0: list(range(size)), 1: [0, 1], 2: list(range(1, size)),
    }  # fmt: skip
    if rank < 2:
        assert first.rank() == rank
        assert hvd.allreduce(torch.tensor([1.0 + rank]), process_set=first).item() == 1.5
        assert hvd.broadcast(torch.tensor([rank]), 1, process_set=first).item() == 1
    else:
        raised(ValueError, first.rank, "not part of provided process set")
        raised(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=first), "not a member")
    if rank >= 1:
        got = hvd.allgather(torch.tensor([rank]), process_set=last, name="x")
        assert got.tolist() == list(range(1, size))
        raised(ValueError, lambda: hvd.broadcast(torch.ones(1), 0, process_set=last), "root rank")
        got = hvd.broadcast_object(rank, root_rank=size - 1, process_set=last)
        assert got == size - 1
    # A set goes on while other ranks do something else, here nothing at all.
    if rank < 2:
        for _ in range(10):
            hvd.allreduce(torch.ones(1), process_set=first)
        hvd.barrier(process_set=first)
    hvd.barrier()
    added = hvd.add_process_set([0, size - 1])
    raised(ValueError, lambda: hvd.add_process_set(hvd.ProcessSet([size - 1, 0])), "duplicate")
    raised(ValueError, lambda: hvd.add_process_set([0, size]), "the world has")
    assert added.process_set_id == 3
    if added.included():
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=added).item() == 2.0
    # What is pending on a set that is removed fails.
    handle = None
    if rank == 0:
        handle = hvd.allreduce_async(torch.ones(1), name="never", process_set=added)
    hvd.barrier()
    assert hvd.remove_process_set(added) is True
    if handle is not None:
        raised(HorovodInternalError, lambda: hvd.synchronize(handle))
    assert added.process_set_id is None and hvd.remove_process_set(added) is False
    assert hvd.remove_process_set(hvd.global_process_set) is False
    hvd.shutdown()
    assert first.process_set_id is None
    # Other lists on other ranks: told to all.
    several = [first, last] if rank == 0 else [first]
    raised(HorovodInternalError, lambda: hvd.init(process_sets=several), "differs between ranks")
    hvd.init(process_sets="dynamic")
    assert hvd.allreduce(torch.ones(1)).item() == 1.0
    hvd.shutdown()


@case
def joins(rank: int, size: int) -> int:
    """Rank r has r + 1 batches; the last to come back is the last rank."""
    hvd.init()
    for batch in range(rank + 1):
        active = size - batch
        value = hvd.allreduce(torch.ones(3), name=f"batch{batch % 2}", op=hvd.Sum)
        assert value.tolist() == [float(active)] * 3, (batch, value)
        mean = hvd.allreduce(torch.full((2,), 2.0), name="mean")
        assert torch.allclose(mean, torch.full((2,), 2.0 * active / size))
        least = hvd.allreduce(torch.full((1,), 5.0), name="min", op=hvd.Min)
        assert least.item() == 5.0
        if active < size and rank == size - 1:
            pass
    if rank == size - 1 and size > 1:
        raised(HorovodInternalError, lambda: hvd.allgather(torch.ones(1), name="g"), "Join")
        raised(HorovodInternalError, lambda: hvd.broadcast(torch.ones(1), rank, name="b"), "Join")
        assert hvd.allreduce(torch.ones(1), name="mean2", op=hvd.Sum).item() == 1.0
    last = hvd.join()
    assert last == size - 1
    assert hvd.allgather(torch.ones(1)).numel() == size
    assert hvd.join() in range(size)
    hvd.shutdown()
    return last


@case
def an_exception(rank: int, size: int) -> str:
    """Rank 1 ends with an exception while the others wait for it."""
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if rank == 1:
        import sys

        try:
            raise ValueError("batch 17 holds NaN")
        except ValueError as error:
            sys.last_value = error  # as the interpreter does before the functions of atexit
        return ""
    begin = time.monotonic()
    text = raised(HorovodInternalError, lambda: hvd.allreduce(torch.ones(1), name="lonely"))
    assert time.monotonic() - begin < 30
    return text


@case
def killed(rank: int, size: int) -> str:
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    text = raised(HorovodInternalError, lambda: hvd.allreduce(torch.ones(1), name="lonely"))
    raised(HorovodInternalError, lambda: hvd.allreduce(torch.ones(1), name="later"))
    return text


@case
def ends_early(rank: int, size: int) -> str:
    """shutdown() on one rank ends the engine on all."""
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if rank == 1:
        hvd.shutdown()
        return ""
    handle = hvd.allreduce_async(torch.ones(1), name="lonely")
    text = raised(HorovodInternalError, lambda: hvd.synchronize(handle))
    assert hvd.poll(handle)
    hvd.shutdown()
    return text


@case
def interrupted(rank: int, size: int) -> None:
    """A wait is left by Ctrl-C, and the operation goes on."""
    hvd.init()
    handle = None
    if rank == 0:
        handle = hvd.allreduce_async(torch.ones(1), name="late")
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        raised(KeyboardInterrupt, lambda: hvd.synchronize(handle))
    hvd.barrier()
    handle = handle or hvd.allreduce_async(torch.ones(1), name="late")
    assert hvd.synchronize(handle).item() == 1.0
    hvd.shutdown()


class Squares(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        assert not hvd.is_initialized()
        return torch.tensor(float(index * index))


@case
def forks(rank: int, size: int) -> None:
    """DataLoader workers are forked after init, while operations are under way."""
    hvd.init()
    for epoch in range(2):
        loader = torch.utils.data.DataLoader(
            Squares(), batch_size=8, num_workers=4, multiprocessing_context="fork"
        )
        for number, batch in enumerate(loader):
            total = hvd.allreduce(batch.sum(), name=f"b{number}")
            assert total.item() == batch.sum().item(), epoch
    pending = hvd.allreduce_async(torch.ones(100), name="pending") if rank == 0 else None
    child = os.fork()
    if child == 0:
        dead = pending is None or hvd.synchronize(pending) is None
        try:
            hvd.rank()
        except ValueError:
            os._exit(0 if dead and not hvd.is_initialized() else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    child = os.fork()
    if child == 0:
        raise SystemExit(0)  # ends with all finalizers of the interpreter
    assert os.waitpid(child, 0)[1] == 0
    if pending is None:
        pending = hvd.allreduce_async(torch.ones(100), name="pending")
    assert hvd.synchronize(pending).sum().item() == 100.0
    hvd.shutdown()


@case
def arrays(rank: int, size: int) -> None:
    """The functions of the package itself, for numpy and what exports DLPack."""
    import numpy as np

    headrace.init()
    assert (headrace.rank(), headrace.size()) == (rank, size) and hvd.is_initialized()
    ours = np.arange(6, dtype=np.float32).reshape(2, 3) + rank
    mean = headrace.allreduce(ours)
    assert type(mean) is np.ndarray and mean.dtype == np.float32
    assert np.array_equal(mean, ours - rank + (size - 1) / 2)
    assert headrace.allreduce(np.array([3]), op=headrace.Sum).tolist() == [3 * size]
    assert headrace.allreduce(2.0, op=headrace.Sum) == 2.0 * size
    assert headrace.allreduce(ours.T).shape == (3, 2)
    handle = headrace.allreduce_async(ours, name="h")
    assert np.array_equal(headrace.synchronize(handle), mean) and headrace.poll(handle)
    gathered = headrace.allgather(np.full((rank + 1, 2), rank))
    assert gathered.tolist() == [[r, r] for r in range(size) for _ in range(r + 1)]
    assert headrace.broadcast(np.array([rank]), root_rank=size - 1).tolist() == [size - 1]
    received, counts = headrace.alltoall(np.full((2 * size,), rank), splits=[2] * size)
    assert received.tolist() == [r for r in range(size) for _ in (0, 1)]
    assert counts.tolist() == [2] * size
    assert headrace.alltoall(np.full((size,), rank)).tolist() == list(range(size))
    assert headrace.reducescatter(np.ones((size, 2)), op=headrace.Sum).tolist() == [[size, size]]
    assert [a.tolist() for a in headrace.grouped_allreduce([ours, np.ones(2)])][1] == [1.0, 1.0]
    tensor = headrace.allreduce(torch.full((2,), float(rank)))
    assert isinstance(tensor, torch.Tensor) and tensor.tolist() == [(size - 1) / 2] * 2
    half = headrace.allreduce(torch.full((2,), 1.0, dtype=torch.bfloat16), op=headrace.Sum)
    assert half.dtype == torch.bfloat16 and half.tolist() == [float(size)] * 2

    class Exporter:  # of no framework that we know
        def __dlpack__(self, **options: Any) -> Any:
            return ours.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return ours.__dlpack_device__()

    assert np.array_equal(headrace.allreduce(Exporter()), mean)

    class Owner:  # of a namespace that makes its own arrays
        from_dlpack = staticmethod(lambda result: ("made", np.from_dlpack(result)))

    class Array(Exporter):
        def __array_namespace__(self) -> Any:
            return Owner

    made, result = headrace.allreduce(Array())
    assert made == "made" and np.array_equal(result, mean)
    assert headrace.broadcast_object({"rank": rank}, 0) == {"rank": 0}
    assert headrace.allgather_object(rank) == list(range(size))
    for wrong in (np.array(["text"]), np.array([object()])):
        raised(ValueError, lambda w=wrong: headrace.allreduce(w), "not supported")
    raised(ValueError, lambda: headrace.allreduce(object()), "DLPack")
    complex_ = headrace.allreduce(np.array([1 + 2j]), op=headrace.Sum)
    assert complex_.tolist() == [size * (1 + 2j)]
    headrace.barrier()
    assert headrace.join() in range(size)
    headrace.shutdown()


@case
def jax_arrays(rank: int, size: int) -> None:
    """JAX's arrays come back as JAX's; averaged gradients are those of the whole batch."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    headrace.init()
    ours = jnp.arange(6, dtype=jnp.float32).reshape(2, 3) * (rank + 1)
    total = size * (size + 1) // 2
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32):
        summed = headrace.allreduce(ours.astype(dtype), op=headrace.Sum)
        assert isinstance(summed, jax.Array) and summed.dtype == dtype
        assert np.array_equal(summed, np.arange(6).reshape(2, 3) * total)
    flags = headrace.allgather(jnp.array([rank == 0, True]))
    assert isinstance(flags, jax.Array) and flags.dtype == jnp.bool_
    assert flags.tolist() == [r == 0 or i == 1 for r in range(size) for i in (0, 1)]
    assert headrace.broadcast(jnp.float32(rank), root_rank=size - 1).shape == ()

    def loss(weights: Any, x: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ weights["w"]) + weights["b"] - 1.0) ** 2)

    x = jnp.sin(jnp.arange(size * 4 * 3, dtype=jnp.float32)).reshape(size * 4, 3)
    weights = {"w": jnp.ones((3, 2)) / 3, "b": jnp.zeros(2)}
    whole = jax.grad(loss)(weights, x)
    part = jax.grad(loss)(weights, x[rank * 4 : rank * 4 + 4])
    mean = jax.tree.map(headrace.allreduce, part)
    assert all(np.allclose(mean[key], whole[key], atol=1e-6) for key in weights)
    headrace.shutdown()


@case
def timelines(rank: int, size: int) -> None:
    """start_timeline and stop_timeline, and a file for each rank."""
    import json
    import tempfile
    from pathlib import Path

    hvd.init()
    folder = Path(hvd.broadcast_object(tempfile.mkdtemp() if rank == 0 else None, 0))
    for number in range(2):
        hvd.barrier()
        hvd.start_timeline(str(folder / f"of{number}.%r.json"), mark_cycles=True)
        hvd.allreduce(torch.ones(2), name=f"traced{number}")
        hvd.stop_timeline()
        hvd.barrier()  # else the first rank hears of the others' next one in time
        hvd.allreduce(torch.ones(2), name="untraced")
    for number in range(2):
        text = (folder / f"of{number}.{rank}.json").read_text()
        assert json.loads(text)
        assert f"allreduce.traced{number}" in text and "untraced" not in text
    hvd.start_timeline(str(folder / "one.json"))
    hvd.shutdown()
    assert (folder / "one.json").exists() or rank != 0
    os.environ["HOROVOD_TIMELINE"] = str(folder / "whole.%r.json")
    hvd.init()
    hvd.broadcast(torch.ones(2), 0, name="first")
    hvd.shutdown()
    assert "broadcast.first" in (folder / f"whole.{rank}.json").read_text()


@case
def tuned(rank: int, size: int) -> None:
    """HOROVOD_AUTOTUNE: results stay what they are, a log, and the next run knows the winner."""
    import tempfile
    from pathlib import Path

    folder = Path(tempfile.mkdtemp())
    cores = sorted(os.sched_getaffinity(0))
    os.environ.update(
        HOROVOD_AUTOTUNE="1",
        HOROVOD_AUTOTUNE_LOG=str(folder / "log.csv"),
        HOROVOD_AUTOTUNE_WARMUP_SAMPLES="1",
        HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE="2",
        HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES="4",
        HOROVOD_THREAD_AFFINITY=",".join(str(cores[r % len(cores)]) for r in range(size)),
        XDG_CACHE_HOME=str(folder),
    )
    gradients = [torch.arange(100.0) * (i + 1) + rank for i in range(20)]
    expected = [sum((torch.arange(100.0) * (i + 1) + r) for r in range(size)) for i in range(20)]

    def train(steps: int) -> None:
        for _ in range(steps):
            handles = [
                hvd.allreduce_async(one, name=f"g{i}", op=hvd.Sum)
                for i, one in enumerate(gradients)
            ]
            results = [hvd.synchronize(handle) for handle in handles]
            assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))

    hvd.init()
    assert _core_of("hr-named") == {cores[rank % len(cores)]}
    train(15)
    hvd.shutdown()
    winners = list((folder / "headrace" / "autotune").glob("*.json"))
    if rank == 0:
        lines = (folder / "log.csv").read_text().splitlines()
        assert lines[0].endswith("cycle_time_ms,tensor_fusion_threshold,score")
        assert 2 <= len(lines) - 1 <= 5, lines
        assert lines[-1] in lines[1:-1]  # the best one again
        assert len(winners) == 1
    else:
        assert not (folder / "log.csv").exists() and not winners
    hvd.init()
    train(6)
    hvd.shutdown()
    if rank == 0:
        assert len((folder / "log.csv").read_text().splitlines()) == 1  # no search


def _core_of(thread: str) -> set[int]:
    """Where the only thread of that name may run."""
    names = {int(task.name): (task / "comm").read_text().strip() for task in _tasks()}
    (one,) = (number for number, name in names.items() if name == thread)
    return set(os.sched_getaffinity(one))


def _tasks() -> list[Any]:
    from pathlib import Path

    return list(Path("/proc/self/task").iterdir())


@case
def part_of_the_world(rank: int, size: int) -> None:
    """init(comm=[...]): some ranks of the launcher are the world, the others do without."""
    others = [r for r in range(size) if r != 1]
    if rank == 1:
        raised(ValueError, lambda: hvd.init(comm=others))
        hvd.init(comm=[1])
        assert (hvd.size(), hvd.rank()) == (1, 0)
    else:
        hvd.init(comm=others)
        assert (hvd.size(), hvd.rank()) == (size - 1, others.index(rank))
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size - 1
    hvd.shutdown()
    hvd.init()
    assert (hvd.size(), hvd.rank()) == (size, rank)
    hvd.shutdown()


@case
def stalled(rank: int, size: int) -> str:
    """A rank that never comes: all are told after the time that is set, under either name."""
    os.environ["HEADRACE_STALL_CHECK_TIME_SECONDS"] = "much"
    raised(ValueError, hvd.init, "HEADRACE_STALL_CHECK_TIME_SECONDS", "'much'")
    assert not hvd.is_initialized()
    os.environ["HEADRACE_STALL_CHECK_TIME_SECONDS"] = "0.5"
    os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "1.5"
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if rank == 1:
        hvd.allreduce_async(torch.ones(1), name="layer2.weight")
        time.sleep(4)
        return ""
    text = raised(HorovodInternalError, lambda: hvd.allreduce(torch.ones(1), name="layer1.weight"))
    hvd.shutdown()
    return text
