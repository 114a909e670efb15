# SPDX-License-Identifier: Apache-2.0
"""The backend "headrace" of torch.distributed; the only file that touches c10d.

Collectives take and return CPU tensors. A tensor that is not contiguous goes through a contiguous
copy. Works keep their tensors alive until they are done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch._C._distributed_c10d import Work as C10dWork

from headrace._errors import InvalidArgument, Unsupported
from headrace._front import Memory, Op, Waiter, comm

_DTYPES = {
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bool: "bool",
}
# Pairs of reals: they add and average as such.
_COMPLEX = {torch.complex64: torch.float32, torch.complex128: torch.float64}

_OPS = {
    dist.ReduceOp.SUM: Op.sum,
    dist.ReduceOp.AVG: Op.average,
    dist.ReduceOp.MIN: Op.min,
    dist.ReduceOp.MAX: Op.max,
    dist.ReduceOp.PRODUCT: Op.product,
    dist.ReduceOp.BAND: Op.band,
    dist.ReduceOp.BOR: Op.bor,
    dist.ReduceOp.BXOR: Op.bxor,
}
_OPS_BY_NUMBER = {int(kind): op for kind, op in _OPS.items()}


class HeadraceWork(C10dWork):  # type: ignore[misc]
    """A collective on its way; `after` puts results where they belong, once, when it is done."""

    def __init__(
        self,
        work: Any,
        waiter: Waiter,
        results: list[torch.Tensor],
        keep: Any,
        after: Callable[[], None] | None,
    ) -> None:
        super().__init__()
        self._waiter = waiter
        self._work = work
        self._results = results
        self._keep = keep
        self._after = after
        self._lock = threading.Lock()
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def _finish(self) -> None:
        with self._lock:
            after, self._after = self._after, None
            self._keep = None
            if after is not None:
                after()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds() if timeout else 0.0
        self._work.wait(seconds if seconds > 0 else None)
        self._finish()
        return True

    def is_completed(self) -> bool:
        if not self._work.done():
            return False
        if self._work.error() is None:
            self._finish()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self._work.error() is None

    def exception(self) -> Any:
        return self._work.error()

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._results

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        """Rank of the group whose message a recv took."""
        self.wait()
        return int(self._work.source())

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        if self._future is None:
            self._future = torch.futures.Future()
            if self._work.done():
                self._end_future(self._work.error())
            else:
                self._waiter.watch(self._work, self._end_future)
        return self._future

    def _end_future(self, error: Exception | None) -> None:
        assert self._future is not None
        if error is None:
            self._finish()
            self._future.set_result(self._results)
        else:
            self._future.set_exception(error)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.dtype in _COMPLEX else tensor


def _memory(tensor: torch.Tensor) -> Any:
    if tensor.device.type != "cpu":
        raise Unsupported(
            f"headrace: the tensor is on {tensor.device}; only CPU tensors are supported so far"
        )
    name = _DTYPES.get(tensor.dtype)
    if name is None:
        raise Unsupported(f"headrace: no collectives for {tensor.dtype} yet")
    return Memory(tensor.data_ptr(), tensor.numel(), name)


def _bytes(tensor: torch.Tensor) -> Any:
    """A tensor of any type, to be moved and not computed with."""
    if tensor.device.type != "cpu":
        return _memory(tensor)
    return Memory(tensor.data_ptr(), tensor.numel() * tensor.element_size(), "uint8")


def _op(reduce_op: Any) -> Any:
    number = int(getattr(reduce_op, "op", reduce_op))
    op = _OPS_BY_NUMBER.get(number)
    if op is None:
        raise Unsupported(f"headrace: reduction {reduce_op} is not supported")
    return op


def _one(tensors: Any, what: str) -> torch.Tensor:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise InvalidArgument(f"headrace: {what}: one tensor per rank, not {len(tensors)}")
    return tensors[0]


def _seconds(options: Any) -> float | None:
    timeout = getattr(options, "timeout", None)
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    return seconds if seconds > 0 else None


def _how(options: Any) -> dict[str, Any]:
    """Keywords of every collective. A call that torch waits for at once runs on this thread."""
    return {"blocking": not getattr(options, "asyncOp", True), "timeout": _seconds(options)}


def _check_reducible(tensor: torch.Tensor, op: Any) -> None:
    if tensor.dtype in _COMPLEX and op not in (Op.sum, Op.average):
        raise Unsupported(f"headrace: {tensor.dtype} can be summed and averaged only")


class HeadraceProcessGroup(ProcessGroup):  # type: ignore[misc]
    """torch.distributed's process group over headrace's collectives."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank = rank
        self._size = size
        self._name = ""
        self._desc = ""
        seconds = timeout.total_seconds()

        def store_get(key: str, limit: float) -> str | None:
            try:
                store.wait([key], timedelta(seconds=max(limit, 0.001)))
            except (RuntimeError, TimeoutError):  # torch's store has no class of its own for it
                return None
            return bytes(store.get(key)).decode()

        self._context = comm.init(
            rank,
            size,
            "headrace",
            0,
            seconds,
            seconds,
            lambda key, value: store.set(key, value),
            store_get,
        )
        self._set = self._context.world
        self._waiter = Waiter()

    # What torch asks a process group for.

    def getBackendName(self) -> str:
        return "headrace"

    def name(self) -> str:
        return "headrace"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    getRank = rank
    getSize = size

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, desc: str) -> None:
        self._desc = desc

    def getGroupDesc(self) -> str:
        return self._desc

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._desc

    def abort(self) -> None:
        self._set.abort("torch.distributed asked for it")

    def shutdown(self) -> None:
        self._set = self._context = None  # works under way end with an error
        self._waiter.close()

    # Collectives.

    def _reduce_like(
        self, tensor: torch.Tensor, options: Any, start: Callable[[Any, Any], Any]
    ) -> HeadraceWork:
        """In-place reductions: `start(memory, op)`."""
        op = _op(options.reduceOp)
        _check_reducible(tensor, op)
        flat = _real(tensor).contiguous()
        work = start(_memory(flat), op)
        after = None
        if flat.data_ptr() != tensor.data_ptr():
            after = lambda: _real(tensor).copy_(flat)  # noqa: E731
        return self._done(work, [tensor], (tensor, flat), after)

    def _done(
        self, work: Any, results: list[torch.Tensor], keep: Any, after: Callable[[], Any] | None
    ) -> HeadraceWork:
        ended = HeadraceWork(work, self._waiter, results, keep, after)
        if work.done() and work.error() is None:
            ended._finish()
        return ended

    def allreduce(self, tensors: Any, opts: Any = None) -> HeadraceWork:
        options = opts if opts is not None else dist.AllreduceOptions()
        return self._reduce_like(
            _one(tensors, "allreduce"),
            options,
            lambda memory, op: self._set.all_reduce(memory, memory, op, **_how(options)),
        )

    def allreduce_coalesced(
        self, tensors: Sequence[torch.Tensor], opts: Any = None
    ) -> HeadraceWork:
        options = opts if opts is not None else dist.AllreduceCoalescedOptions()
        works = [self.allreduce([tensor], options) for tensor in tensors]
        return _Several(works, list(tensors))

    def reduce(self, tensors: Any, opts: Any) -> HeadraceWork:
        return self._reduce_like(
            _one(tensors, "reduce"),
            opts,
            lambda memory, op: self._set.reduce(memory, memory, opts.rootRank, op, **_how(opts)),
        )

    def broadcast(self, tensors: Any, opts: Any = None) -> HeadraceWork:
        options = opts if opts is not None else dist.BroadcastOptions()
        tensor = _one(tensors, "broadcast")
        flat = tensor.contiguous()
        work = self._set.broadcast(_bytes(flat), options.rootRank, **_how(options))
        after = None if flat.data_ptr() == tensor.data_ptr() else lambda: tensor.copy_(flat)
        return self._done(work, [tensor], (tensor, flat), after)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> HeadraceWork:
        out = outputs[0] if isinstance(outputs[0], (list, tuple)) else outputs
        tensor = _one(inputs, "allgather")
        options = opts if opts is not None else dist.AllgatherOptions()
        if len(out) != self._size:
            raise InvalidArgument(f"headrace: allgather: {len(out)} outputs for {self._size} ranks")
        counts = [one.numel() * one.element_size() for one in out]
        flat = torch.empty(sum(counts), dtype=torch.uint8)
        source = tensor.contiguous()
        work = self._set.all_gather_v(_bytes(source), counts, _bytes(flat), **_how(options))

        def after() -> None:
            for one, part in zip(out, flat.split(counts), strict=True):
                one.copy_(part.view(one.dtype).view(one.shape))

        return self._done(work, list(out), (source, flat), after)

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> HeadraceWork:
        options = opts if opts is not None else dist.AllgatherOptions()
        source = input.contiguous()
        flat = output if output.is_contiguous() else torch.empty_like(output.contiguous())
        work = self._set.all_gather(_bytes(source), _bytes(flat), **_how(options))
        after = None if flat is output else lambda: output.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    _allgather_base = all_gather_single

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> HeadraceWork:
        works = [self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)]
        return _Several(works, list(outputs))

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> HeadraceWork:
        parts = inputs[0] if isinstance(inputs[0], (list, tuple)) else inputs
        output = _one(outputs, "reduce_scatter")
        options = opts if opts is not None else dist.ReduceScatterOptions()
        if len(parts) != self._size:
            raise InvalidArgument(
                f"headrace: reduce_scatter: {len(parts)} inputs for {self._size} ranks"
            )
        op = _op(options.reduceOp)
        _check_reducible(output, op)
        real = [_real(part).reshape(-1) for part in parts]
        source = torch.cat(real)
        flat = torch.empty_like(_real(output).contiguous())
        work = self._set.reduce_scatter_v(
            _memory(source), [part.numel() for part in real], _memory(flat), op, **_how(options)
        )
        return self._done(work, [output], (source, flat), lambda: _real(output).copy_(flat))

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> HeadraceWork:
        options = opts if opts is not None else dist.ReduceScatterOptions()
        op = _op(options.reduceOp)
        _check_reducible(input, op)
        source = _real(input).contiguous()
        real = _real(output)
        flat = real if real.is_contiguous() else torch.empty_like(real.contiguous())
        work = self._set.reduce_scatter(_memory(source), _memory(flat), op, **_how(options))
        after = None if flat is real else lambda: real.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> HeadraceWork:
        works = [
            self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)
        ]
        return _Several(works, list(outputs))

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> HeadraceWork:
        options = opts if opts is not None else dist.AllToAllOptions()
        source = input.contiguous()
        flat = output if output.is_contiguous() else torch.empty_like(output.contiguous())

        def counts(tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
            total = tensor.numel() * tensor.element_size()
            rows = tensor.size(0) if tensor.dim() > 0 else 1
            if not splits:
                if rows % self._size != 0:
                    raise InvalidArgument(
                        f"headrace: all_to_all: {rows} rows are not {self._size} equal parts"
                    )
                return [total // self._size] * self._size
            if len(splits) != self._size or sum(splits) != rows:
                raise InvalidArgument(
                    f"headrace: all_to_all: splits {list(splits)} for {rows} rows, "
                    f"{self._size} ranks"
                )
            return [split * (total // rows if rows else 0) for split in splits]

        work = self._set.all_to_all_v(
            _bytes(source),
            counts(source, input_split_sizes),
            _bytes(flat),
            counts(flat, output_split_sizes),
            **_how(options),
        )
        after = None if flat is output else lambda: output.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> HeadraceWork:
        options = opts if opts is not None else dist.AllToAllOptions()
        send = [one.numel() * one.element_size() for one in inputs]
        receive = [one.numel() * one.element_size() for one in outputs]
        source = torch.cat([one.contiguous().view(-1).view(torch.uint8) for one in inputs])
        flat = torch.empty(sum(receive), dtype=torch.uint8)
        work = self._set.all_to_all_v(_bytes(source), send, _bytes(flat), receive, **_how(options))

        def after() -> None:
            for one, part in zip(outputs, flat.split(receive), strict=True):
                one.copy_(part.view(one.dtype).view(one.shape))

        return self._done(work, list(outputs), (source, flat), after)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> HeadraceWork:
        tensor = _one(inputs, "gather")
        source = tensor.contiguous()
        out = outputs[0] if self._rank == opts.rootRank else []
        flat = torch.empty(source.numel() * source.element_size() * len(out), dtype=torch.uint8)
        work = self._set.gather(_bytes(source), _bytes(flat), opts.rootRank, **_how(opts))

        def after() -> None:
            for one, part in zip(out, flat.chunk(len(out)), strict=True):
                one.copy_(part.view(one.dtype).view(one.shape))

        return self._done(
            work, list(out), (source, flat), after if len(out) and flat.numel() else None
        )

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> HeadraceWork:
        output = _one(outputs, "scatter")
        flat = output if output.is_contiguous() else torch.empty_like(output.contiguous())
        parts = inputs[0] if self._rank == opts.rootRank else []
        source = (
            torch.cat([one.contiguous().view(-1).view(torch.uint8) for one in parts])
            if len(parts)
            else torch.empty(0, dtype=torch.uint8)
        )
        work = self._set.scatter(_bytes(source), _bytes(flat), opts.rootRank, **_how(opts))
        after = None if flat is output else lambda: output.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    def barrier(self, opts: Any = None) -> HeadraceWork:
        work = self._set.barrier(**_how(opts))
        return self._done(work, [], None, None)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> HeadraceWork:
        tensor = _one(tensors, "send")
        source = tensor.contiguous()
        work = self._set.send(_bytes(source), dst, tag, blocking=False)
        return self._done(work, [tensor], (tensor, source), None)

    def _receive(self, tensor: torch.Tensor, src: int | None, tag: int) -> HeadraceWork:
        flat = tensor if tensor.is_contiguous() else torch.empty_like(tensor.contiguous())
        work = self._set.recv(_bytes(flat), src, tag, blocking=False)
        after = None if flat is tensor else lambda: tensor.copy_(flat)
        return self._done(work, [tensor], (tensor, flat), after)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> HeadraceWork:
        return self._receive(_one(tensors, "recv"), src, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> HeadraceWork:
        return self._receive(_one(tensors, "recv_anysource"), None, tag)

    def _start_coalescing(self, device: Any = None) -> None:
        """Operations run as they come; nothing is held back."""

    def _end_coalescing(self, device: Any = None) -> HeadraceWork:
        return _Several([], [])


class _Several(HeadraceWork):
    """Works that end together."""

    def __init__(self, works: list[HeadraceWork], results: list[torch.Tensor]) -> None:
        C10dWork.__init__(self)
        self._works = works
        self._results = results
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return all([work.wait(timeout) for work in self._works])

    def is_completed(self) -> bool:
        return all([work.is_completed() for work in self._works])

    def is_success(self) -> bool:
        return all([work.is_success() for work in self._works])

    def exception(self) -> Any:
        return next((work.exception() for work in self._works if work.exception()), None)

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        if self._future is None:
            all_of = torch.futures.collect_all([work.get_future() for work in self._works])
            self._future = all_of.then(
                lambda done: [f.wait() for f in done.wait()] and self._results
            )
        return self._future

    def _results_of(self, all_of: torch.futures.Future[list[Any]]) -> list[torch.Tensor]:
        for one in all_of.wait():
            one.wait()  # raises its error
        return self._results


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> HeadraceProcessGroup:
    return HeadraceProcessGroup(store, rank, size, timeout)


if "headrace" not in dist.Backend.backend_list:
    dist.Backend.register_backend("headrace", _create, extended_api=False, devices=["cpu"])
