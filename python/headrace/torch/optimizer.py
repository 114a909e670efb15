# SPDX-License-Identifier: Apache-2.0
"""Optimizers that reduce gradients over the ranks before they use them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from headrace._named import Adasum, Average, Sum
from headrace._settings import switch
from headrace.common.basics import size
from headrace.common.process_sets import ProcessSet, global_process_set
from headrace.common.util import split_list
from headrace.torch._mixins import AdasumMixin, DeltaReducer, DistributedMixin, check_passes
from headrace.torch._reducer import Reducer
from headrace.torch.compression import Compression, Compressor
from headrace.torch.functions import broadcast_object

Named = list[tuple[str, torch.Tensor]]


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _checked_names(optimizer: torch.optim.Optimizer, named_parameters: Any) -> Named:
    if named_parameters is None:
        return [
            (f"allreduce.noname.{number}.{index}", parameter)
            for number, group in enumerate(optimizer.param_groups)
            for index, parameter in enumerate(group["params"])
        ]
    named = list(named_parameters)
    if any(not isinstance(one, tuple) or len(one) != 2 for one in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced "
            "by model.named_parameters()."
        )
    seen: set[str] = set()
    twice = sorted({name for name, _ in named if name in seen or seen.add(name)})  # type: ignore[func-returns-value]
    if twice:
        raise ValueError(
            "Parameter names in named_parameters must be unique. Found duplicates: "
            + ", ".join(twice)
        )
    known = {parameter for _, parameter in named}
    missing = [
        f"group {number} index {index} {tuple(parameter.shape)}"
        for number, group in enumerate(optimizer.param_groups)
        for index, parameter in enumerate(group["params"])
        if parameter not in known
    ]
    if missing:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named: "
            + "; ".join(missing)
        )
    return named


def _checked_groups(groups: Any, num_groups: int) -> Any:
    if num_groups:
        warnings.warn(
            "Parameter `num_groups` is deprecated; use groups=<int>.",
            DeprecationWarning,
            stacklevel=4,
        )
        if groups is None:
            groups = num_groups
    if groups is None:
        return None
    if isinstance(groups, int) and not isinstance(groups, bool):
        if groups <= 0:
            raise ValueError(f"groups={groups}: a positive number, or lists of parameters")
        return groups
    if not isinstance(groups, (list, tuple)) or any(
        not isinstance(group, (list, tuple)) for group in groups
    ):
        raise ValueError("groups should be a non-negative integer or a list of list of parameters")
    seen: set[torch.Tensor] = set()
    for group in groups:
        for parameter in group:
            if not isinstance(parameter, torch.Tensor):
                raise ValueError("groups must consist of torch.Tensor (the model's parameters)")
            if parameter in seen:
                raise ValueError("A parameter can only appear once in groups")
            seen.add(parameter)
    return groups


def _rebuilt(optimizer: torch.optim.Optimizer, mixin: type) -> Any:
    """The optimizer as an object of a class that has the methods of `mixin` too.

    State, groups and options stay the same objects: schedulers made before go on working.
    """
    base = type(optimizer)
    made_class: Any = type(base.__name__, (mixin, base), {"__module__": base.__module__})
    made = made_class.__new__(made_class)
    for name, value in vars(optimizer).items():
        # A method that is an attribute was put there for the old object, as schedulers do.
        if not (callable(value) and hasattr(base, name)):
            made.__dict__[name] = value
    # Schedulers made before watch the old object, which makes no steps any more.
    optimizer._opt_called = True
    return made


def _sparse_of(model: torch.nn.Module | None) -> set[torch.Tensor]:
    if model is None:
        return set()
    return {
        module.weight
        for module in model.modules()
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse
    }


def _grouped(reducer: Reducer, groups: Any, process_set: ProcessSet) -> None:
    if groups is None:
        return
    if not isinstance(groups, int):
        reducer.set_groups(groups)
        return
    # In rank 0's order: others may have built their model in another one.
    names = broadcast_object(
        [slot.name for slot in reducer.slots if not slot.sparse],
        root_rank=(process_set.ranks or [0])[0],
        process_set=process_set,
    )
    found = {slot.name: slot.parameter for slot in reducer.slots}
    reducer.set_groups(
        [found[name] for name in part]
        for part in split_list([name for name in names if name in found], groups)
    )


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    model: torch.nn.Module | None = None,
) -> Any:
    """An optimizer of the same class that reduces gradients over the ranks while they come.

    Args:
        optimizer: any optimizer of torch; use the answer in its place.
        named_parameters: `model.named_parameters()`; None: parameters are named by their place.
        compression: what gradients are made into before they are sent.
        backward_passes_per_step: passes whose gradients are added up before they are sent.
        op: Average, Sum or Adasum.
        gradient_predivide_factor: for Average: divide by so much before the sum, by the rest after.
        num_groups: old spelling of an integer in `groups`.
        groups: lists of parameters that are reduced as one unit, or a number of such groups.
        sparse_as_dense: make sparse gradients dense before they are sent.
        process_set: whose ranks take part; elsewhere the optimizer is a plain one.
        model: tells which embeddings are sparse, before their first gradient.

    Raises:
        ValueError: an argument is wrong.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if op not in (Average, Sum, Adasum):
        raise ValueError("DistributedOptimizer: op is one of hvd.Average, hvd.Sum, hvd.Adasum")
    check_passes(backward_passes_per_step)
    groups = _checked_groups(groups, num_groups)
    named = _checked_names(optimizer, named_parameters)
    adasum = op == Adasum
    if adasum and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    made = _rebuilt(optimizer, AdasumMixin if adasum else DistributedMixin)
    made.process_set = process_set
    names = {parameter: name for name, parameter in named}
    made._parameter_names = names
    made._reducer = None
    if process_set.included() is False or (size() == 1 and not switch("ELASTIC")):
        return made
    reducer = (DeltaReducer if adasum else Reducer)(
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
    )
    reducer.scope()  # says so here, and not in a backward pass, if the set is not registered
    if isinstance(reducer, DeltaReducer):
        reducer.serve(made)
    sparse = _sparse_of(model)
    for parameter in _parameters(optimizer):
        if parameter.requires_grad:
            reducer.add(names[parameter], parameter)
            reducer.slots[-1].sparse = parameter in sparse
    made._reducer = reducer
    if not adasum:
        _grouped(reducer, groups, process_set)
    return made
