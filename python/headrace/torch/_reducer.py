# SPDX-License-Identifier: Apache-2.0
"""Gradients on their way: a hook on each parameter, what is pending, and the results."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from headrace import _named
from headrace._errors import Error, InvalidArgument
from headrace._named import OPS, Max, Scope
from headrace._settings import switch
from headrace.common.process_sets import ProcessSet, scope_of
from headrace.torch import _async, _tensors
from headrace.torch.compression import Compressor, NoneCompressor

if TYPE_CHECKING:
    from headrace._native.comm import NamedWork


STRIDED = torch.strided


class Slot:
    """One parameter of the optimizer."""

    __slots__ = (
        "context", "dtype", "elements", "grad", "group", "index", "name", "parameter", "remaining",
        "sent", "sparse", "started", "tensor", "wait_sparse", "wire", "work",
    )  # fmt: skip

    def __init__(self, index: int, name: str, wire: str, parameter: torch.Tensor) -> None:
        self.index = index
        self.name = name
        self.wire = wire  # with the kind of operation and the optimizer's ordinal
        self.parameter = parameter
        self.group: Group | None = None
        self.sparse = False  # a sparse gradient was seen, here or on another rank
        self.remaining = 1  # backward passes until the reduction starts
        self.tensor: Any = None  # NamedTensor, prepared for `elements` of `dtype`
        self.dtype: torch.dtype | None = None
        self.elements = -1
        self.clear()

    def clear(self) -> None:
        """Forget what was under way."""
        self.started = False
        self.work: NamedWork | None = None
        self.grad: Any = None  # the tensor where the result goes
        self.sent: Any = None  # the tensor that the engine changes, at times the same
        self.context: Any = None  # of the compression
        self.wait_sparse: Callable[[], torch.Tensor] | None = None


class Group:
    """Parameters whose gradients are reduced as one unit."""

    def __init__(self, slots: list[Slot]) -> None:
        self.slots = slots
        self.arrived = 0
        for slot in slots:
            slot.group = self


class Reducer:
    """All gradients of one optimizer, over the ranks of one process set."""

    def __init__(
        self,
        compression: type[Compressor],
        passes: int,
        op: int,
        predivide: float,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self.slots: list[Slot] = []
        self.by_parameter: dict[torch.Tensor, Slot] = {}
        self.groups: list[Group] = []
        self.compression = compression
        self.passes = passes
        self.op = op
        self.factors = (1.0 / predivide, predivide) if predivide != 1.0 else (1.0, 1.0)
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self.touched = False  # a pass has begun that no step has ended
        self._plain = compression is NoneCompressor
        self._op = OPS.get(op)
        self._kind = "allreduce" if op in OPS else "adasum"
        self._named_start: Callable[..., NamedWork]
        _reducers.add(self)
        number = _named.ordinal("optimizer")
        self._prefix = f"optimizer.{number + 1}." if number else ""
        self._removers: list[Any] = []
        self._generation = -1
        self._scope: Scope | None = None
        self._sparse_agreed = -1  # at so many joins

    # Parameters.

    def add(self, name: str, parameter: torch.Tensor) -> None:
        """Catch the gradients of one more parameter."""
        wire = f"allreduce.{self._prefix}{name}"
        slot = Slot(len(self.slots), name, wire, parameter)
        slot.remaining = self.passes
        self.slots.append(slot)
        self.by_parameter[parameter] = slot
        self._removers.append(_hook(parameter, _arrival(self, slot)))

    def set_groups(self, groups: Iterable[Sequence[torch.Tensor]]) -> None:
        """Reduce these parameters together; those that are in no group stay alone."""
        for group in groups:
            slots = [self.by_parameter[p] for p in group if p in self.by_parameter]
            if slots:
                self.groups.append(Group(slots))

    def set_passes(self, passes: int) -> None:
        """Reduce after so many backward passes from now on."""
        self.passes = passes
        for slot in self.slots:
            slot.remaining = passes

    def scope(self) -> Scope:
        """The engine of the process set, after another `init` too."""
        if self._scope is None or self._generation != _named._generation:
            self._scope = scope_of(self.process_set)
            self._generation = _named._generation
            self._sparse_agreed = -1
            self._named_start = self._scope.named.start
            for slot in self.slots:
                slot.dtype = None
        return self._scope

    # From backward to the wire.

    def arrived(self, slot: Slot) -> None:
        """Take note of a pass's gradient; the last pass starts the reduction."""
        self.touched = True
        remaining = slot.remaining - 1
        if slot.started or remaining < 0:
            self._refuse(slot)
            remaining = slot.remaining - 1
        slot.remaining = remaining
        if remaining == 0:
            group = slot.group
            if group is None:
                self.start(slot)
            else:
                group.arrived += 1
                if group.arrived == len(group.slots):
                    self.start_group(group)

    def _refuse(self, slot: Slot) -> None:
        if strict_zero_grad():
            raise AssertionError(
                f"Gradients of the parameter {slot.name} were computed more than "
                f"backward_passes_per_step ({self.passes}) times before call to step(). "
                "Increase backward_passes_per_step to accumulate gradients locally."
            )
        self._restart(slot)

    def _restart(self, slot: Slot) -> None:
        """Wait for what a gradient was that the user has thrown away."""
        members = [slot] if slot.group is None else slot.group.slots
        for one in members:
            if one.started:
                self.wait(one, wanted=False)
                one.remaining = self.passes
        if slot.group is not None:
            slot.group.arrived = 0
        slot.remaining = max(slot.remaining, 1)

    def start(self, slot: Slot) -> None:
        """Submit one gradient."""
        if self._generation != _named._generation:
            self.scope()
        grad = slot.parameter.grad
        if grad is None or slot.sparse or grad.layout is not STRIDED:
            if self._start_sparse(slot, grad):
                return
            grad = slot.parameter.grad
        # A microsecond counts here: 1000 gradients are 1 ms of each step.
        if self._plain and grad.is_contiguous() and grad.is_cpu:
            slot.started = True
            slot.grad = slot.sent = grad
        else:
            self._compress(slot, grad)
        sent = slot.sent
        if slot.dtype is not sent.dtype or slot.elements != sent.numel():
            self._prepare(slot, slot.wire, 0)
        pointer = sent.data_ptr()
        try:
            slot.work = self._named_start(slot.tensor, pointer, pointer)
        except Error as error:
            slot.clear()
            if isinstance(error, InvalidArgument):
                raise
            raise _named.internal(error) from error

    def start_group(self, group: Group) -> None:
        """Submit the gradients of a group."""
        scope = self.scope()
        first, total = group.slots[0], len(group.slots)
        members = []
        for number, slot in enumerate(group.slots, start=1):
            grad = slot.parameter.grad
            if grad is None:
                grad = slot.parameter.grad = torch.zeros_like(slot.parameter)
            elif grad.layout is not STRIDED:
                if not self.sparse_as_dense:
                    raise ValueError(
                        f"the parameter {slot.name} has a sparse gradient and is in a group; "
                        "leave it out of groups or set sparse_as_dense=True"
                    )
                slot.sparse = True
                grad = grad.to_dense()
            sent = self._compress(slot, grad)
            if slot.dtype is not sent.dtype or slot.elements != sent.numel():
                self._prepare(slot, f"{first.wire}_{number}of{total}", total, first.wire)
            pointer = sent.data_ptr()
            members.append((slot.tensor, pointer, pointer))
        try:
            works = scope.named.start_all(members)
        except Error as error:
            for slot in group.slots:
                slot.clear()
            if isinstance(error, InvalidArgument):
                raise
            raise _named.internal(error) from error
        for slot, work in zip(group.slots, works, strict=True):
            slot.work = work

    def _compress(self, slot: Slot, grad: torch.Tensor) -> torch.Tensor:
        """The tensor that the engine changes: the gradient itself where that is possible."""
        slot.started = True
        slot.grad = grad
        sent = grad
        if not self._plain:
            sent, slot.context = self.compression.compress(grad)
        if not (sent.is_cpu and sent.is_contiguous()):
            sent = _tensors.staged(sent).contiguous()
        slot.sent = sent
        return sent

    def _prepare(self, slot: Slot, wire: str, group_size: int, group: str = "") -> None:
        """Tell the engine what it will be given again and again."""
        sent = slot.sent
        assert sent is not None
        numbers = _tensors.to_reduce(sent, "allreduce", self.op)
        name = _tensors.dtype_name(numbers, "allreduce")
        slot.tensor = self.scope().named.prepare(
            self._kind, wire, name, list(numbers.shape), self._op, *self.factors, 0, [], group,
            group_size,
        )  # fmt: skip
        slot.dtype, slot.elements = sent.dtype, sent.numel()

    def _start_sparse(self, slot: Slot, grad: torch.Tensor | None) -> bool:
        """Submit a gradient that is sparse or not there; False: it is a dense one now."""
        parameter = slot.parameter
        sparse = grad is not None and grad.layout is not STRIDED
        slot.sparse = slot.sparse or sparse
        if self.sparse_as_dense or not slot.sparse:
            if grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif sparse:
                parameter.grad = grad.to_dense()
            return False
        if grad is None:
            grad = torch.sparse_coo_tensor(
                torch.empty((1, 0), dtype=torch.int64),
                parameter.new_empty((0, *parameter.shape[1:])),
                parameter.shape,
                check_invariants=False,
            )
        elif not sparse:
            grad = grad.to_sparse(1)
        slot.started = True
        name = f"{self._prefix}{slot.name}"
        slot.wait_sparse = _async.sparse_allreduce_async(grad, name, self.op, self.process_set)
        return True

    # From the wire to the optimizer.

    def wait(self, slot: Slot, wanted: bool = True) -> None:
        """Put the result where the gradient was, if it is still wanted."""
        try:
            if slot.wait_sparse is not None:
                every = slot.wait_sparse()
                if wanted:
                    slot.parameter.grad = every
                return
            work, grad, sent = slot.work, slot.grad, slot.sent
            if work is None or grad is None or sent is None:
                return
            try:
                work.wait()
            except Error as error:
                raise _named.internal(error) from error
            if not wanted:
                return
            if sent is not grad or not self._plain:
                result = self.compression.decompress(sent, slot.context)
                if result is not grad:
                    grad = _put(grad, result)
            if slot.sparse and self.sparse_as_dense:
                slot.parameter.grad = grad.to_sparse(1)
            elif slot.parameter.grad is not slot.grad or grad is not slot.grad:
                slot.parameter.grad = grad
        finally:
            slot.clear()
            slot.remaining = self.passes

    def synchronize(self) -> None:
        """Submit what no backward pass of this rank has reached, then wait for all."""
        self._agree_on_sparse()
        for group in self.groups:
            if not group.slots[0].started:
                self.start_group(group)
            group.arrived = 0
        for slot in self.slots:
            if not slot.started:
                self.start(slot)
        self.drain()

    def drain(self) -> None:
        """Wait for what is under way; the first error is raised after the last one has ended."""
        failed: BaseException | None = None
        passes = self.passes
        for slot in self.slots:
            if slot.started:
                work, grad = slot.work, slot.grad
                try:
                    # The usual case, in few steps: the engine has changed the gradient itself.
                    if (
                        work is not None
                        and self._plain
                        and slot.sent is grad
                        and not slot.sparse
                        and slot.parameter.grad is grad
                    ):
                        work.wait()
                        slot.started = False
                        slot.work = slot.grad = slot.sent = None
                    else:
                        self.wait(slot)
                except Error as error:
                    slot.clear()
                    failed = failed or _named.internal(error)
                except (RuntimeError, ValueError) as error:
                    failed = failed or error
            slot.remaining = passes
        for group in self.groups:
            group.arrived = 0
        self.touched = False
        if failed is not None:
            raise failed

    def _agree_on_sparse(self) -> None:
        """Tell each other which gradients are sparse: some ranks may not have had them.

        Once, and again after a join: a rank may have had no batches until then.
        """
        self.scope()
        if self._sparse_agreed == _named.joins():
            return
        for slot in self.slots:
            grad = slot.parameter.grad
            slot.sparse = slot.sparse or (grad is not None and grad.layout is not STRIDED)
        flags = torch.tensor([slot.sparse for slot in self.slots], dtype=torch.uint8)
        name = f"{self._prefix}optimizer.sparse"
        _async.allreduce_async_(flags, None, name, Max, process_set=self.process_set).synchronize()
        for slot, flag in zip(self.slots, flags.tolist(), strict=True):
            slot.sparse = bool(flag)
        self._sparse_agreed = _named.joins()

    def remove_hooks(self) -> None:
        """Let go of the parameters."""
        for remover in self._removers:
            remover.remove()
        self._removers.clear()

    def __del__(self) -> None:
        self.remove_hooks()
        if self._generation == _named._generation:
            for slot in self.slots:
                if slot.work is not None:
                    _named._keep_until_done([slot.work], slot.sent)


_reducers: weakref.WeakSet[Reducer] = weakref.WeakSet()


def _end_hooks() -> None:
    # Parameters are freed after Python's modules; their hooks would keep objects of the engine.
    for reducer in list(_reducers):
        reducer.remove_hooks()
        for slot in reducer.slots:
            slot.clear()
            slot.tensor = None


_named.on_exit(_end_hooks)


def strict_zero_grad() -> bool:
    """Whether gradients that are thrown away while they are reduced are an error."""
    return switch("STRICT_ZERO_GRAD", True)


def _put(grad: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    if grad.shape == result.shape and grad.dtype == result.dtype:
        with torch.no_grad():
            return grad.copy_(result)
    return result


def _arrival(reducer: Reducer, slot: Slot) -> Callable[..., None]:
    # The parameters outlive the optimizer, and must not keep it.
    alive = weakref.ref(reducer)

    def hook(*_: Any) -> None:
        found = alive()
        if found is not None:
            found.arrived(slot)

    return hook


class _OldHook:
    """The hook of a torch that has none after the accumulation of a gradient."""

    def __init__(self, parameter: torch.Tensor, hook: Callable[..., None]) -> None:
        expanded = parameter.expand_as(parameter)
        self._node = expanded.grad_fn.next_functions[0][0]  # else it is freed with its hook
        self._handle = self._node.register_hook(hook)

    def remove(self) -> None:
        self._handle.remove()


def _hook(parameter: torch.Tensor, hook: Callable[..., None]) -> Any:
    register = getattr(parameter, "register_post_accumulate_grad_hook", None)
    return _OldHook(parameter, hook) if register is None else register(hook)
