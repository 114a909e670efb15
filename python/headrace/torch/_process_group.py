# SPDX-License-Identifier: Apache-2.0
"""The backend "headrace" of torch.distributed; the only file that touches c10d.

Collectives take and return CPU tensors. A tensor that is not contiguous goes through a contiguous
copy. Works keep their tensors alive until they are done.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch._C._distributed_c10d import Work as C10dWork

from headrace._errors import Error, InvalidArgument, Unsupported
from headrace._front import Memory, Op, Waiter, comm
from headrace.torch._errors import as_torch

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

# C++ may hold a work whose part in Python is gone, and a wait for it would never end: DDP.join does
# that with one number, torch 2.4 with all works that C++ asks for. So the last ones stay that
# nobody has waited for.
_DROPPED_NUMBERS: collections.deque[HeadraceWork] = collections.deque(maxlen=1024)
_DROPPED: collections.deque[HeadraceWork] = collections.deque(maxlen=16)


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
        self._waited = False
        self._stays = False
        self._lock = threading.Lock()
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def _finish(self) -> None:
        with self._lock:
            after, self._after = self._after, None
            self._keep = None
            if after is not None:
                after()

    def __del__(self) -> None:
        """Who drops a work still wants its result, and it is still written to the tensors."""
        after, keep = self._after, self._keep
        if keep is not None or after is not None:

            def let_go(error: Exception | None) -> None:
                nonlocal keep
                if error is None and after is not None:
                    after()
                keep = None

            self._waiter.watch(self._work, let_go)
        if not self._waited:
            number = len(self._results) == 1 and self._results[0].numel() == 1
            self._stays = not number
            (_DROPPED_NUMBERS if number else _DROPPED).append(self)

    def _seen(self) -> None:
        """Whoever has it waits, or has its future."""
        self._waited = True
        if self._stays:
            self._stays = False
            with contextlib.suppress(ValueError):  # pushed out meanwhile
                _DROPPED.remove(self)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds() if timeout else 0.0
        self._seen()
        try:
            self._work.wait(seconds if seconds > 0 else None)
        except Error as error:
            raise as_torch(error) from None
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
        error = self._work.error()
        return None if error is None else as_torch(error)

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._results

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        raise Unsupported("headrace: receiving from any source is not there yet")

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        self._seen()
        if self._future is None:
            ended: torch.futures.Future[None] = torch.futures.Future()
            # An exception set on a future is a value to readers in C++ (DDP takes it for a list of
            # tensors and crashes); one that a callback raises is an error to everybody.
            self._future = ended.then(self._outcome)
            if self._waiter.here():  # a callback (PowerSGD) may wait for it, and none would come
                with contextlib.suppress(Error):
                    self._work.wait()
            if self._work.done():
                ended.set_result(None)
            else:
                self._waiter.watch(self._work, lambda _: ended.set_result(None))
        return self._future

    def _outcome(self, _: torch.futures.Future[None]) -> list[torch.Tensor]:
        error = self._work.error()
        if error is not None:
            raise as_torch(error)
        self._finish()
        return self._results


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


_OPTIONS = {
    getattr(c10d, name)
    for name in (
        "AllreduceOptions", "AllreduceCoalescedOptions", "ReduceOptions", "BroadcastOptions",
        "AllgatherOptions", "ReduceScatterOptions", "AllToAllOptions", "GatherOptions",
        "ScatterOptions", "BarrierOptions",
    )
}  # fmt: skip


def _options(
    kind: Any, given: Any, timeout: Any = None, op: Any = None, root: int | None = None
) -> Any:
    """Options of a call; torch's own groups take `op`, `root` and `timeout` in their place too."""
    if type(given) in _OPTIONS:
        return given
    options = kind()
    if isinstance(given, timedelta):
        timeout = given
    elif isinstance(given, int):
        root = given
    elif given is not None:
        op = given
    if op is not None:
        options.reduceOp = op
    if root is not None:
        options.rootRank = root
    if timeout is not None:
        options.timeout = timeout
    return options


def _check_reducible(tensor: torch.Tensor, op: Any) -> None:
    if tensor.dtype in _COMPLEX and op not in (Op.sum, Op.average):
        raise Unsupported(f"headrace: {tensor.dtype} can be summed and averaged only")


_TOLD: weakref.WeakSet[HeadraceProcessGroup] = weakref.WeakSet()


def _tell_of_exceptions(group: HeadraceProcessGroup) -> None:
    """An exception that ends this process is told to the others as the reason."""
    if not _TOLD:
        before = sys.excepthook

        def tell(kind: type[BaseException], error: BaseException, trace: Any) -> None:
            before(kind, error, trace)
            for one in list(_TOLD):
                one._abort(f"{kind.__name__}: {error}")
            _TOLD.clear()

        sys.excepthook = tell
    _TOLD.add(group)


class HeadraceProcessGroup(ProcessGroup):  # type: ignore[misc]
    """torch.distributed's process group over headrace's shared-memory collectives."""

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

        try:
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
        except Error as error:
            raise as_torch(error) from None
        self._limit: float | None = None
        self._coalescing: list[HeadraceWork] | None = None
        self._set = self._context.world
        self._waiter = Waiter()
        _tell_of_exceptions(self)

    def _how(self, options: Any) -> dict[str, Any]:
        """Keywords of every collective. A call that torch waits for at once runs on this thread."""
        seconds = options.timeout.total_seconds()
        return {
            "blocking": not getattr(options, "asyncOp", True),
            "timeout": seconds if seconds > 0 else self._limit,
        }

    # What torch asks a process group for.

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]  # checkpoint.async_save looks for it

    def _get_backend(self, device: torch.device) -> HeadraceProcessGroup:
        if torch.device(device).type != "cpu":
            raise Unsupported(f"headrace: no backend for {device}; only the CPU is there so far")
        return self

    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False

    def set_timeout(self, timeout: timedelta) -> None:
        """The bound of each later operation whose call gives none."""
        self._limit = timeout.total_seconds()

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

    def _abort(self, reason: str) -> None:
        if self._set is not None:
            self._set.abort(reason)

    def abort(self) -> None:
        self._abort("torch.distributed asked for it")

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
        if self._coalescing is not None:
            self._coalescing.append(ended)
        if work.done() and work.error() is None:
            ended._finish()
        return ended

    def allreduce(
        self, tensors: Any, opts: Any = None, timeout: Any = None, *, op: Any = None
    ) -> HeadraceWork:
        options = _options(c10d.AllreduceOptions, opts, timeout, op)
        tensor = _one(tensors, "allreduce")
        if tensor.is_sparse:
            return self._allreduce_sparse(tensor, options)
        return self._reduce_like(
            tensor,
            options,
            lambda memory, op: self._set.all_reduce(memory, memory, op, **self._how(options)),
        )

    def _allreduce_sparse(self, tensor: torch.Tensor, options: Any) -> HeadraceWork:
        """Sum or average of sparse tensors, added in the order of ranks. Done when it returns."""
        op = _op(options.reduceOp)
        if op not in (Op.sum, Op.average):
            raise Unsupported("headrace: sparse tensors can be summed and averaged only")
        how = self._how(options) | {"blocking": True}
        ours = tensor.coalesce()
        entries = torch.zeros(self._size, dtype=torch.int64)
        mine = torch.tensor([ours._nnz()])
        work = self._set.all_gather(_memory(mine), _memory(entries), **how)

        def everywhere(part: torch.Tensor) -> tuple[torch.Tensor, ...]:
            """The rows of all ranks, by rank."""
            part = part.contiguous()
            rows = torch.empty((int(entries.sum()), *part.shape[1:]), dtype=part.dtype)
            width = part[:0].numel() or int(torch.tensor(part.shape[1:]).prod())
            counts = [int(n) * width * part.element_size() for n in entries]
            self._set.all_gather_v(_bytes(part), counts, _bytes(rows), **how).wait()
            return rows.split(entries.tolist())

        try:
            work.wait()
            total = None
            places, values = everywhere(ours.indices().t()), everywhere(ours.values())
        except Error as error:
            raise as_torch(error) from None
        for place, value in zip(places, values, strict=True):
            one = torch.sparse_coo_tensor(place.t(), value, tensor.shape)
            total = one if total is None else total + one
        if op == Op.average:
            total = total / self._size
        tensor.copy_(total.coalesce())
        return self._done(work, [tensor], None, None)

    def allreduce_coalesced(
        self, tensors: Sequence[torch.Tensor], opts: Any = None
    ) -> HeadraceWork:
        options = _options(c10d.AllreduceCoalescedOptions, opts)
        works = [self.allreduce([tensor], options) for tensor in tensors]
        return _Several(works, list(tensors))

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None, *, root: int = 0
    ) -> HeadraceWork:
        options = _options(c10d.ReduceOptions, opts, timeout, op, root)
        return self._reduce_like(
            _one(tensors, "reduce"),
            options,
            lambda memory, kind: self._set.reduce(
                memory, memory, options.rootRank, kind, **self._how(options)
            ),
        )

    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: Any = None, *, root: int | None = None
    ) -> HeadraceWork:
        options = _options(c10d.BroadcastOptions, opts, timeout, root=root)
        tensor = _one(tensors, "broadcast")
        flat = tensor.contiguous()
        work = self._set.broadcast(_bytes(flat), options.rootRank, **self._how(options))
        after = None if flat.data_ptr() == tensor.data_ptr() else lambda: tensor.copy_(flat)
        return self._done(work, [tensor], (tensor, flat), after)

    def allgather(
        self, outputs: Any, inputs: Any, opts: Any = None, *, timeout: Any = None
    ) -> HeadraceWork:
        out = outputs[0] if isinstance(outputs[0], (list, tuple)) else outputs
        tensor = _one(inputs, "allgather")
        options = _options(c10d.AllgatherOptions, opts, timeout)
        if len(out) != self._size:
            raise InvalidArgument(f"headrace: allgather: {len(out)} outputs for {self._size} ranks")
        counts = [one.numel() * one.element_size() for one in out]
        flat = torch.empty(sum(counts), dtype=torch.uint8)
        source = tensor.contiguous()
        work = self._set.all_gather_v(_bytes(source), counts, _bytes(flat), **self._how(options))

        def after() -> None:
            for one, part in zip(out, flat.split(counts), strict=True):
                one.copy_(part.view(one.dtype).view(one.shape))

        return self._done(work, list(out), (source, flat), after)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> HeadraceWork:
        works = [self.allgather(o, [i], opts) for o, i in zip(outputs, inputs, strict=True)]
        return _Several(works, [one for part in outputs for one in part])

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> HeadraceWork:
        options = opts if opts is not None else c10d.AllgatherOptions()
        source = input.contiguous()
        flat = output if output.is_contiguous() else torch.empty_like(output.contiguous())
        work = self._set.all_gather(_bytes(source), _bytes(flat), **self._how(options))
        after = None if flat is output else lambda: output.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    _allgather_base = all_gather_single

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> HeadraceWork:
        works = [self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)]
        return _Several(works, list(outputs))

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, *, op: Any = None
    ) -> HeadraceWork:
        options = _options(c10d.ReduceScatterOptions, opts, timeout, op)
        parts = inputs[0] if isinstance(inputs[0], (list, tuple)) else inputs
        output = _one(outputs, "reduce_scatter")
        if len(parts) != self._size:
            raise InvalidArgument(
                f"headrace: reduce_scatter: {len(parts)} inputs for {self._size} ranks"
            )
        kind = _op(options.reduceOp)
        _check_reducible(output, kind)
        real = [_real(part).reshape(-1) for part in parts]
        source = torch.cat(real)
        flat = torch.empty_like(_real(output).contiguous())
        work = self._set.reduce_scatter_v(
            _memory(source),
            [part.numel() for part in real],
            _memory(flat),
            kind,
            **self._how(options),
        )
        return self._done(work, [output], (source, flat), lambda: _real(output).copy_(flat))

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> HeadraceWork:
        options = opts if opts is not None else c10d.ReduceScatterOptions()
        op = _op(options.reduceOp)
        _check_reducible(input, op)
        source = _real(input).contiguous()
        real = _real(output)
        flat = real if real.is_contiguous() else torch.empty_like(real.contiguous())
        work = self._set.reduce_scatter(_memory(source), _memory(flat), op, **self._how(options))
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
        *,
        timeout: Any = None,
    ) -> HeadraceWork:
        options = _options(c10d.AllToAllOptions, opts, timeout)
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
            **self._how(options),
        )
        after = None if flat is output else lambda: output.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    all_to_all_single = alltoall_base

    def alltoall(
        self, outputs: Any, inputs: Any, opts: Any = None, *, timeout: Any = None
    ) -> HeadraceWork:
        options = _options(c10d.AllToAllOptions, opts, timeout)
        send = [one.numel() * one.element_size() for one in inputs]
        receive = [one.numel() * one.element_size() for one in outputs]
        source = torch.cat([one.contiguous().view(-1).view(torch.uint8) for one in inputs])
        flat = torch.empty(sum(receive), dtype=torch.uint8)
        work = self._set.all_to_all_v(
            _bytes(source), send, _bytes(flat), receive, **self._how(options)
        )

        def after() -> None:
            for one, part in zip(outputs, flat.split(receive), strict=True):
                one.copy_(part.view(one.dtype).view(one.shape))

        return self._done(work, list(outputs), (source, flat), after)

    def gather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, *, root: int = 0
    ) -> HeadraceWork:
        options = _options(c10d.GatherOptions, opts, timeout, root=root)
        tensor = _one(inputs, "gather")
        source = tensor.contiguous()
        out = outputs if self._rank == options.rootRank else []
        if len(out) and isinstance(out[0], (list, tuple)):
            out = out[0]
        flat = torch.empty(source.numel() * source.element_size() * len(out), dtype=torch.uint8)
        work = self._set.gather(
            _bytes(source), _bytes(flat), options.rootRank, **self._how(options)
        )

        def after() -> None:
            for one, part in zip(out, flat.chunk(len(out)), strict=True):
                one.copy_(part.view(one.dtype).view(one.shape))

        return self._done(
            work, list(out), (source, flat), after if len(out) and flat.numel() else None
        )

    def scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, *, root: int = 0
    ) -> HeadraceWork:
        options = _options(c10d.ScatterOptions, opts, timeout, root=root)
        output = _one(outputs, "scatter")
        flat = output if output.is_contiguous() else torch.empty_like(output.contiguous())
        parts = inputs if self._rank == options.rootRank else []
        if len(parts) and isinstance(parts[0], (list, tuple)):
            parts = parts[0]
        source = (
            torch.cat([one.contiguous().view(-1).view(torch.uint8) for one in parts])
            if len(parts)
            else torch.empty(0, dtype=torch.uint8)
        )
        work = self._set.scatter(
            _bytes(source), _bytes(flat), options.rootRank, **self._how(options)
        )
        after = None if flat is output else lambda: output.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    def barrier(self, opts: Any = None, *, timeout: Any = None) -> HeadraceWork:
        work = self._set.barrier(**self._how(_options(c10d.BarrierOptions, opts, timeout)))
        return self._done(work, [], None, None)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> HeadraceWork:
        raise Unsupported("headrace: send and recv are not there yet; use a collective")

    def recv(self, tensors: Any, src: int, tag: int = 0) -> HeadraceWork:
        raise Unsupported("headrace: send and recv are not there yet; use a collective")

    def recv_anysource(self, tensors: Any, tag: int = 0) -> HeadraceWork:
        raise Unsupported("headrace: send and recv are not there yet; use a collective")

    def _start_coalescing(self, device: Any = None) -> None:
        """Operations run as they come; only their works are gathered."""
        self._coalescing = []

    def _end_coalescing(self, device: Any = None) -> HeadraceWork:
        works, self._coalescing = self._coalescing or [], None
        return _Several(works, [])


class _Several(HeadraceWork):
    """Works that end together."""

    _after = _keep = None
    _waited = True

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


def _skip_code(code: types.CodeType) -> None:
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "skip_code"):  # torch 2.4
        frames.skip_code(code)
    elif hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))


def _skipped_by_dynamo(*owners: Any) -> None:
    """torch.compile must not look into what follows: it is what a graph breaks at."""
    codes = [
        member.__code__ for owner in owners for member in vars(owner).values()
        if isinstance(member, types.FunctionType)
    ]  # fmt: skip
    while codes:
        code = codes.pop()
        _skip_code(code)
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]


_skipped_by_dynamo(HeadraceProcessGroup, HeadraceWork, _Several, Waiter, sys.modules[__name__])


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> HeadraceProcessGroup:
    return HeadraceProcessGroup(store, rank, size, timeout)


if "headrace" not in dist.Backend.backend_list:
    dist.Backend.register_backend("headrace", _create, extended_api=False, devices=["cpu"])
