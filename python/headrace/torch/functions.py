# SPDX-License-Identifier: Apache-2.0
"""Give all ranks the parameters, the optimizer's state or any object of one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from headrace._collective import allgather_object, broadcast_object
from headrace.common.process_sets import ProcessSet, global_process_set, scope_of
from headrace.torch._async import broadcast_async_

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


def _named_tensors(params: Any) -> list[tuple[str, Any]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, (str, bytes, torch.Tensor)) or not isinstance(params, Iterable):
        raise ValueError(f"invalid params of type: {type(params)}")
    listed = list(params)
    if all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in listed):
        return listed
    if all(one is None or isinstance(one, torch.Tensor) for one in listed):
        return [(str(index), one) for index, one in enumerate(listed)]
    raise ValueError(
        f"invalid params of type: {type(params)}; a dict, or tensors or pairs (name, tensor)"
    )


def _send_tensor(
    tensor: torch.Tensor, root_rank: int, name: str, process_set: ProcessSet
) -> Callable[[], Any]:
    """Start to broadcast in place, whatever the tensor's layout; call the answer to wait."""
    plain = tensor.detach()
    if plain.is_contiguous():
        return broadcast_async_(plain, root_rank, name, process_set).synchronize
    flat = plain.contiguous()
    handle = broadcast_async_(flat, root_rank, name, process_set)

    def wait() -> None:
        handle.synchronize()
        plain.copy_(flat)

    return wait


def broadcast_parameters(
    params: Any, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Give all ranks the tensors of the rank `root_rank`, in place.

    Args:
        params: a dict (`model.state_dict()`), or an iterable of tensors or of (name, tensor)
            (`model.named_parameters()`). Values that are no tensors are sent as objects; in a dict
            they are replaced.
        root_rank: a rank of the world.
        process_set: whose ranks take part.

    Raises:
        ValueError: `params` is none of these.
    """
    waits = []
    sent: set[tuple[int, torch.Size, Any]] = set()
    for name, value in _named_tensors(params):
        if value is None:
            continue
        if not isinstance(value, torch.Tensor):
            received = broadcast_object(value, root_rank, f"broadcast.{name}", process_set)
            if isinstance(params, dict):
                params[name] = received
            continue
        place = (value.data_ptr(), value.shape, value.stride())
        if value.numel() and place in sent:
            continue
        sent.add(place)
        waits.append(_send_tensor(value, root_rank, name, process_set))
    for wait in waits:
        wait()


class _Place(NamedTuple):
    """Where a tensor stood in a nested structure, and what it was like."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    on_host: bool


def _structure(value: Any, tensors: list[torch.Tensor]) -> Any:
    """A copy with a `_Place` for each tensor; the tensors are appended in order."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Place(value.dtype, tuple(value.shape), value.device.type == "cpu")
    if isinstance(value, dict):
        return {key: _structure(one, tensors) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_structure(one, tensors) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_structure(one, tensors) for one in value)
    return value


def _filled(structure: Any, mine: Any, device: torch.device, tensors: list[torch.Tensor]) -> Any:
    """The structure with tensors: those of `mine` that fit, new ones elsewhere."""
    if isinstance(structure, _Place):
        if (
            not isinstance(mine, torch.Tensor)
            or mine.dtype != structure.dtype
            or tuple(mine.shape) != structure.shape
        ):
            place = torch.device("cpu") if structure.on_host else device
            mine = torch.zeros(structure.shape, dtype=structure.dtype, device=place)
        tensors.append(mine)
        return mine
    if isinstance(structure, dict):
        known = mine if isinstance(mine, dict) else {}
        return {
            key: _filled(one, known.get(key), device, tensors) for key, one in structure.items()
        }
    if isinstance(structure, (list, tuple)):
        own = list(mine) if isinstance(mine, (list, tuple)) else []
        own += [None] * len(structure)
        parts = [_filled(one, own[i], device, tensors) for i, one in enumerate(structure)]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    return structure


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give all ranks the state and the options of the optimizer of the rank `root_rank`.

    The structure goes first and the tensors after it: ranks whose optimizer is fresh get the state
    of one that was restored, and no step is made for it. Values keep their types.

    Args:
        optimizer: with the same parameters on all ranks; one of `DistributedOptimizer` too.
        root_rank: a rank of the world.
        model: accepted; sparse embeddings need no mark here.
        process_set: whose ranks take part.

    Raises:
        ValueError: it is an optimizer without state of its own, or the groups differ.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(
            f"broadcast_optimizer_state: a torch.optim.Optimizer, not {type(optimizer).__name__}"
        )
    scope = scope_of(process_set)
    is_root = scope.root(root_rank) == scope.rank
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    tensors: list[torch.Tensor] = []
    told: Any = None
    if is_root:
        # By place: the parameters of the ranks are other objects, in the same order.
        options = [
            {key: value for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        states = [dict(optimizer.state[p]) if p in optimizer.state else None for p in parameters]
        told = {
            "options": _structure(options, tensors),
            "states": _structure(states, tensors),
        }
    base = f"broadcast_optimizer_state.{scope.count('broadcast_optimizer_state')}"
    counts = [len(group["params"]) for group in optimizer.param_groups]
    every = allgather_object(counts, f"{base}.counts", process_set)
    for place, other in enumerate(every):
        if other != every[0]:
            raise ValueError(
                "broadcast_optimizer_state: the optimizers differ: that of rank "
                f"{scope.ranks[0]} has groups of {every[0]} parameters, that of rank "
                f"{scope.ranks[place]} of {other}"
            )
    told = broadcast_object(told, root_rank, base, process_set)
    if not is_root:
        _take_over(optimizer, parameters, told, tensors)
    waits = [
        _send_tensor(tensor, root_rank, f"{base}.{index}", process_set)
        for index, tensor in enumerate(tensors)
    ]
    for wait in waits:
        wait()


def _take_over(
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.Tensor],
    told: Any,
    tensors: list[torch.Tensor],
) -> None:
    host = torch.device("cpu")
    for group, options in zip(optimizer.param_groups, told["options"], strict=True):
        device = group["params"][0].device if group["params"] else host
        group.update(_filled(options, group, device, tensors))
    for parameter, state in zip(parameters, told["states"], strict=True):
        if state is None:
            optimizer.state.pop(parameter, None)
            continue
        mine = optimizer.state.get(parameter, {})
        optimizer.state[parameter] = _filled(state, mine, parameter.device, tensors)
