# SPDX-License-Identifier: Apache-2.0
"""What is mixed into the class of an optimizer: few methods, so that all others stay its own."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from headrace import _named
from headrace._errors import Error
from headrace.common.process_sets import ProcessSet
from headrace.common.util import num_rank_is_power_2
from headrace.torch._reducer import Reducer, Slot, strict_zero_grad


class DistributedMixin:
    """Mixed into the class of the optimizer that is given; only these methods are others."""

    _reducer: Reducer | None
    _parameter_names: dict[torch.Tensor, str]
    param_groups: list[dict[str, Any]]
    process_set: ProcessSet
    _should_synchronize = True
    _synchronized = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Reduce gradients after so many backward passes, from now on."""
        check_passes(passes)
        if self._reducer is not None:
            self._reducer.set_passes(passes)

    def synchronize(self) -> None:
        """Wait for all gradients; the results are in the parameters' `grad`.

        Raises:
            HorovodInternalError: a reduction failed, on all ranks.
        """
        if self._reducer is not None:
            self._reducer.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For a `step` after `synchronize`: it does not reduce the gradients again."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduce the gradients, then make the step of the optimizer."""
        if not self._should_synchronize or self._reducer is None:
            self._synchronized = False
            return super().step(closure)  # type: ignore[misc]
        if closure is None:
            if self._synchronized and not self._reducer.touched:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). This can cause training slowdown: the gradients are "
                    "reduced twice.",
                    stacklevel=2,
                )
            self.synchronize()
            self._synchronized = False
            return super().step()  # type: ignore[misc]
        if self._reducer.touched:
            self.synchronize()

        def reduced() -> Any:
            loss = closure()
            self.synchronize()
            return loss

        with torch.enable_grad():
            result = super().step(reduced)  # type: ignore[misc]
        self._synchronized = False
        return result

    # So that torch does not wrap it: the step hooks run in the step of the base class.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, *arguments: Any, **options: Any) -> None:
        """Reset the gradients.

        Raises:
            AssertionError: between backward and step or synchronize, where they are being reduced;
                with HEADRACE_STRICT_ZERO_GRAD=0 it waits for them instead.
        """
        reducer = self._reducer
        if reducer is not None and reducer.touched:
            if strict_zero_grad():
                raise AssertionError(
                    "optimizer.zero_grad() was called after loss.backward() but before "
                    "optimizer.step() or optimizer.synchronize(). This is prohibited as it can "
                    "cause a race condition."
                )
            reducer.drain()
        self._synchronized = False
        super().zero_grad(*arguments, **options)  # type: ignore[misc]

    def load_state_dict(self, state_dict: Any) -> None:
        """Take the state over; what is under way ends first, and the passes count anew."""
        if self._reducer is not None:
            self._reducer.drain()
        self._synchronized = False
        super().load_state_dict(state_dict)  # type: ignore[misc]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters; their gradients are reduced from now on."""
        super().add_param_group(param_group)  # type: ignore[misc]
        reducer = getattr(self, "_reducer", None)
        number = len(self.param_groups) - 1
        for index, parameter in enumerate(self.param_groups[number]["params"]):
            name = f"allreduce.noname.{number}.{index}"
            self._parameter_names.setdefault(parameter, name)
            if reducer is not None and parameter.requires_grad:
                reducer.add(self._parameter_names[parameter], parameter)


def check_passes(passes: int) -> None:
    if passes <= 0:
        raise ValueError("backward_passes_per_step must be > 0")


class DeltaReducer(Reducer):
    """Reduces by Adasum what the optimizer's own step changes in a parameter."""

    _optimizer: Any = None

    def serve(self, optimizer: Any) -> None:
        """Make the steps of this optimizer."""
        self._optimizer = weakref.ref(optimizer)
        self._starts: dict[int, torch.Tensor] = {}
        size = self.scope().size
        if not num_rank_is_power_2(size):
            raise NotImplementedError(
                f"Adasum needs a number of ranks that is a power of 2, and there are {size}"
            )

    def start(self, slot: Slot) -> None:
        """Make the local step for one parameter, take it back and submit the difference."""
        parameter = slot.parameter
        begin = parameter.detach().clone(memory_format=torch.contiguous_format)
        self._step_alone(parameter)
        with torch.no_grad():
            delta = parameter.detach() - begin
            parameter.copy_(begin)
        self._starts[slot.index] = begin
        scope = self.scope()
        sent = self._compress(slot, delta)
        if slot.dtype is not sent.dtype or slot.elements != sent.numel():
            self._prepare(slot, slot.wire, 0)
        pointer = sent.data_ptr()
        try:
            slot.work = scope.named.start(slot.tensor, pointer, pointer)
        except Error as error:
            slot.clear()
            raise _named.internal(error) from error

    def _step_alone(self, parameter: torch.Tensor) -> None:
        optimizer = self._optimizer()
        groups = optimizer.param_groups
        all_of = [group["params"] for group in groups]
        for group in groups:
            group["params"] = [one for one in group["params"] if one is parameter]
        try:
            optimizer.local_step()
        finally:
            for group, parameters in zip(groups, all_of, strict=True):
                group["params"] = parameters

    def wait(self, slot: Slot, wanted: bool = True) -> None:
        """Apply the reduced difference."""
        try:
            if slot.work is None or slot.sent is None:
                return
            try:
                slot.work.wait()
            except Error as error:
                raise _named.internal(error) from error
            if not wanted:
                return
            delta = self.compression.decompress(slot.sent, slot.context)
            with torch.no_grad():
                slot.parameter.copy_(self._starts[slot.index] + delta)
        finally:
            self._starts.pop(slot.index, None)
            slot.clear()
            slot.remaining = self.passes

    def synchronize(self) -> None:
        """Make the steps that no backward pass has begun, and wait for all."""
        for slot in self.slots:
            if not slot.started:
                self.start(slot)
        self.drain()


class AdasumMixin(DistributedMixin):
    """The step of each parameter runs when its gradient is there; the changes are reduced."""

    def local_step(self) -> None:
        """The step of the optimizer's own class, without the hooks of a whole step."""
        step = super(DistributedMixin, self).step  # type: ignore[misc]
        function = getattr(step, "__func__", step)
        plain = getattr(function, "__wrapped__", None) if hasattr(function, "hooked") else None
        step() if plain is None else plain(self)

    def synchronize(self) -> None:
        """Do nothing: `step` waits."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[NoReturn]:
        """Raise: there are no reduced gradients to look at."""
        raise AssertionError(
            "Skipping synchronization is not supported when using Adasum optimizer."
        )
        yield

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Wait for the changes of all parameters and apply them."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._reducer is None:
            self.local_step()
        else:
            self._reducer.synchronize()
        return loss

    step.hooked = True  # type: ignore[attr-defined]
