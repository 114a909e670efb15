# SPDX-License-Identifier: Apache-2.0
"""The backend "headrace" of torch.distributed; only this file and `_works.py` touch c10d.

Collectives take and return tensors on the CPU, or on a GPU (through NCCL). A tensor that is not
contiguous goes through a contiguous copy. Works keep their tensors alive until they are done.
"""

from __future__ import annotations

import contextlib
import math
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup

from headrace._errors import Error, InvalidArgument, Unsupported
from headrace._front import Op, Waiter, comm
from headrace.torch import _devices, _works
from headrace.torch._devices import COMPLEX as _COMPLEX
from headrace.torch._devices import memory as _memory
from headrace.torch._devices import raw as _bytes
from headrace.torch._devices import real as _real
from headrace.torch._errors import as_torch
from headrace.torch._works import GpuWork, HeadraceWork, Several

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
    """torch.distributed's process group over headrace's collectives."""

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, members: Sequence[int] = ()
    ) -> None:
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
                # torch may give different groups one name when only some ranks make one.
                "headrace" + "".join(f".{member}" for member in members),
                0,
                seconds,
                seconds,
                lambda key, value: store.set(key, value),
                store_get,
                gpu_folders=_devices.library_folders(),
            )
        except Error as error:
            raise as_torch(error) from None
        self._limit: float | None = None
        self._coalescing: list[HeadraceWork] | None = None
        self._set = self._context.world
        self._devices = _devices.types()
        self._waiter = Waiter()
        weakref.finalize(self, self._waiter.close)  # torch 2.4 shuts nothing down
        _tell_of_exceptions(self)

    def _how(self, options: Any, tensor: torch.Tensor | None = None) -> dict[str, Any]:
        """Keywords of every collective. A call that torch waits for at once runs on this thread."""
        seconds = options.timeout.total_seconds()
        on_gpu = tensor is not None and _devices.on_gpu(tensor)
        return {
            "blocking": not on_gpu and not getattr(options, "asyncOp", True),
            "timeout": seconds if seconds > 0 else self._limit,
        }

    # What torch asks a process group for.

    @property
    def _device_types(self) -> list[torch.device]:
        return self._devices  # checkpoint.async_save looks for it

    def _get_backend(self, device: torch.device) -> HeadraceProcessGroup:
        if torch.device(device).type not in ("cpu", "cuda"):
            raise Unsupported(f"headrace: no backend for {device}; there are the CPU and cuda")
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
        kind = GpuWork if keep is not None and _devices.on_gpu(keep[0]) else HeadraceWork
        ended = kind(work, self._waiter, results, keep, after)
        if self._coalescing is not None:
            self._coalescing.append(ended)
        if work.done() and work.error() is None:
            ended._finish()
        return ended

    @contextlib.contextmanager
    def _together(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        """Collectives on a GPU that begin together, as one operation of NCCL."""
        on_gpu = len(tensors) > 0 and _devices.on_gpu(tensors[0])
        if on_gpu:
            self._set.begin_group()
        try:
            yield
        finally:
            if on_gpu:
                self._set.end_group()

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
            lambda memory, op: self._set.all_reduce(
                memory, memory, op, **self._how(options, tensor)
            ),
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
            shape = (int(entries.sum()), *part.shape[1:])
            rows = torch.empty(shape, dtype=part.dtype, device=part.device)
            width = math.prod(part.shape[1:])
            counts = [int(n) * width * part.element_size() for n in entries]
            self._set.all_gather_v(_bytes(part), counts, _bytes(rows), **how).wait()
            return tuple(torch.split(rows, entries.tolist()))

        try:
            work.wait()
            places, values = everywhere(ours.indices().t()), everywhere(ours.values())
        except Error as error:
            raise as_torch(error) from None
        total = torch.sparse_coo_tensor(places[0].t(), values[0], tensor.shape)
        for place, value in zip(places[1:], values[1:], strict=True):
            total = total + torch.sparse_coo_tensor(place.t(), value, tensor.shape)
        if op == Op.average:
            total = total / self._size
        tensor.copy_(total.coalesce())
        return self._done(work, [tensor], None, None)

    def allreduce_coalesced(
        self, tensors: Sequence[torch.Tensor], opts: Any = None
    ) -> HeadraceWork:
        options = _options(c10d.AllreduceCoalescedOptions, opts)
        with self._together(tensors):
            works = [self.allreduce([tensor], options) for tensor in tensors]
        return Several(works, list(tensors))

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None, *, root: int = 0
    ) -> HeadraceWork:
        options = _options(c10d.ReduceOptions, opts, timeout, op, root)
        tensor = _one(tensors, "reduce")
        return self._reduce_like(
            tensor,
            options,
            lambda memory, kind: self._set.reduce(
                memory, memory, options.rootRank, kind, **self._how(options, tensor)
            ),
        )

    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: Any = None, *, root: int | None = None
    ) -> HeadraceWork:
        options = _options(c10d.BroadcastOptions, opts, timeout, root=root)
        tensor = _one(tensors, "broadcast")
        flat = tensor.contiguous()
        work = self._set.broadcast(_bytes(flat), options.rootRank, **self._how(options, flat))
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
        source = tensor.contiguous()
        flat = torch.empty(sum(counts), dtype=torch.uint8, device=source.device)
        how = self._how(options, source)
        work = self._set.all_gather_v(_bytes(source), counts, _bytes(flat), **how)

        def after() -> None:
            for one, part in zip(out, flat.split(counts), strict=True):
                one.copy_(part.view(one.dtype).view(one.shape))

        return self._done(work, list(out), (source, flat), after)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> HeadraceWork:
        with self._together(inputs):
            works = [self.allgather(o, [i], opts) for o, i in zip(outputs, inputs, strict=True)]
        return Several(works, [one for part in outputs for one in part])

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> HeadraceWork:
        options = opts if opts is not None else c10d.AllgatherOptions()
        source = input.contiguous()
        flat = output if output.is_contiguous() else torch.empty_like(output.contiguous())
        work = self._set.all_gather(_bytes(source), _bytes(flat), **self._how(options, source))
        after = None if flat is output else lambda: output.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    _allgather_base = all_gather_single

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> HeadraceWork:
        with self._together(inputs):
            pairs = zip(outputs, inputs, strict=True)
            works = [self.all_gather_single(o, i, opts) for o, i in pairs]
        return Several(works, list(outputs))

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
            **self._how(options, source),
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
        how = self._how(options, source)
        work = self._set.reduce_scatter(_memory(source), _memory(flat), op, **how)
        after = None if flat is real else lambda: real.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> HeadraceWork:
        with self._together(inputs):
            pairs = zip(outputs, inputs, strict=True)
            works = [self.reduce_scatter_single(o, i, opts) for o, i in pairs]
        return Several(works, list(outputs))

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
            **self._how(options, source),
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
        flat = torch.empty(sum(receive), dtype=torch.uint8, device=source.device)
        work = self._set.all_to_all_v(
            _bytes(source), send, _bytes(flat), receive, **self._how(options, source)
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
        size = source.numel() * source.element_size() * len(out)
        flat = torch.empty(size, dtype=torch.uint8, device=source.device)
        work = self._set.gather(
            _bytes(source), _bytes(flat), options.rootRank, **self._how(options, source)
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
            else torch.empty(0, dtype=torch.uint8, device=output.device)
        )
        work = self._set.scatter(
            _bytes(source), _bytes(flat), options.rootRank, **self._how(options, source)
        )
        after = None if flat is output else lambda: output.copy_(flat)
        return self._done(work, [output], (source, flat), after)

    def barrier(self, opts: Any = None, *, timeout: Any = None) -> HeadraceWork:
        options = _options(c10d.BarrierOptions, opts, timeout)
        device = getattr(options, "device", None)
        if device is not None and device.type == "cuda":
            # The caller waits, as with torch's own groups, and not its stream alone.
            how = self._how(options) | {"blocking": True}
            work = self._set.barrier_on_gpu(device.index, _devices.current_stream(device), **how)
        else:
            work = self._set.barrier(**self._how(options))
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
        """Those on the CPU run as they come, and only their works are gathered."""
        self._coalescing = []
        if device is not None and torch.device(device).type == "cuda":
            self._set.begin_group()

    def _end_coalescing(self, device: Any = None) -> HeadraceWork:
        works, self._coalescing = self._coalescing or [], None
        if device is not None and torch.device(device).type == "cuda":
            self._set.end_group()
        return Several(works, [])


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


_skipped_by_dynamo(HeadraceProcessGroup, HeadraceWork, GpuWork, Several, Waiter)
_skipped_by_dynamo(_devices, _works, sys.modules[__name__])


def _create(options: Any, _: Any) -> HeadraceProcessGroup:
    return HeadraceProcessGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.global_ranks_in_group,
    )


if "headrace" not in dist.Backend.backend_list:
    dist.Backend.register_backend("headrace", _create, extended_api=True, devices=["cpu", "cuda"])
