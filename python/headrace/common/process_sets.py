# SPDX-License-Identifier: Apache-2.0
"""Process sets: some of the ranks that have collectives of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace import _named
from headrace._named import Scope


class ProcessSet:
    """A sorted list of global ranks; usable once `init` or `add_process_set` has registered it."""

    process_set_id: int | None = None
    """None until it is registered, 0 for the global set."""
    ranks: list[int] | None = None
    """None for the global set before `init`."""
    mpi_comm: None = None
    """MPI is not used."""

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        self.ranks = _checked(ranks_or_comm)

    def _registered(self) -> tuple[list[int], Scope | None] | None:
        job = _named._job
        if job is None or self.process_set_id is None:
            return None
        return job.sets.get(self.process_set_id)

    def size(self) -> int | None:
        """Number of ranks; None where the set is not registered."""
        found = self._registered()
        return None if found is None else len(found[0])

    def rank(self) -> int | None:
        """Place of this process in the set; None where the set is not registered.

        Raises:
            ValueError: this process is not in the set.
        """
        found = self._registered()
        if found is None:
            return None
        if found[1] is None:
            raise ValueError(f"rank {_named.job().world.rank} is not part of provided process set")
        return found[1].rank

    def included(self) -> bool | None:
        """Whether this process is in the set; None where that is not known yet."""
        job = _named._job
        if job is None or self.ranks is None:
            return None
        return job.world.rank in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


class _GlobalProcessSet(ProcessSet):
    def __init__(self) -> None:
        self.process_set_id = 0
        self.ranks = None


def _checked(ranks: Any) -> list[int]:
    if not isinstance(ranks, Iterable) or isinstance(ranks, (str, bytes)):
        raise ValueError(
            f"ProcessSet takes a list of global ranks, not {type(ranks).__name__} (MPI is not used)"
        )
    found = list(ranks)
    for rank in found:
        if not hasattr(rank, "__index__") or isinstance(rank, bool):
            raise ValueError(f"ProcessSet takes global ranks as int; {rank!r} is none")
    return sorted({int(rank) for rank in found})


global_process_set = _GlobalProcessSet()
# Those that are registered, by id: `shutdown` takes their ids back.
_known: dict[int, ProcessSet] = {}


def check_new(sets: Sequence[ProcessSet], world_size: int | None = None) -> None:
    """Refuse sets that are given twice.

    Raises:
        ValueError: with the place in the list.
    """
    seen: list[list[int]] = [] if world_size is None else [list(range(world_size))]
    seen += [one.ranks for one in _known.values() if one.ranks is not None]
    for index, one in enumerate(sets):
        if one.ranks in seen:
            raise ValueError(
                f"process_sets[{index}] ({one}) is a duplicate: a process set with these ranks "
                "is there already"
            )
        if world_size is not None and one.ranks is not None:
            bad = [rank for rank in one.ranks if not 0 <= rank < world_size]
            if bad or not one.ranks:
                raise ValueError(
                    f"process_sets[{index}] ({one}) has the ranks {bad}, "
                    f"the world has 0 to {world_size - 1}"
                )
        seen.append(one.ranks if one.ranks is not None else [])


def register(process_set: ProcessSet, number: int) -> None:
    """Give a set the number that it has on all ranks."""
    process_set.process_set_id = number
    _known[number] = process_set


def _engine_changed(alive: bool) -> None:
    for one in _known.values():
        one.process_set_id = None
    _known.clear()
    global_process_set.ranks = _named.job().world.ranks if alive else None


_named.on_change(_engine_changed)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set; all ranks of the world call it, those that are not in the set too.

    Raises:
        ValueError: a set with these ranks is there already, or it has ranks that are not.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    job = _named.job()
    check_new([process_set], job.world.size)
    assert process_set.ranks is not None
    register(process_set, job.add_set(process_set.ranks))
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """End a set; all ranks of the world call it. False for the global set or an unregistered one.

    Operations that are still pending on it fail.
    """
    job = _named.job()
    number = process_set.process_set_id
    if number is None or number == 0 or number not in job.sets:
        return False
    job.remove_set(number)
    _known.pop(number, None)
    process_set.process_set_id = None
    return True


def process_sets_table() -> dict[int, list[int]]:
    """Ranks of all registered sets, by id."""
    return {number: list(ranks) for number, (ranks, _) in _named.job().sets.items()}


def scope_of(process_set: ProcessSet) -> Scope:
    """The set's engine.

    Raises:
        ValueError: there is no engine, the set is not registered, or this process is not in it.
    """
    job = _named._job
    if job is None:
        raise ValueError(_named.NOT_INITIALIZED)
    number = process_set.process_set_id
    if number == 0:
        return job.world
    found = None if number is None else job.sets.get(number)
    if found is None:
        raise ValueError(
            f"{process_set} is an unknown process set; give it to init(process_sets=...) or "
            "add_process_set() first"
        )
    if found[1] is None:
        raise ValueError(
            f"rank {job.world.rank} is not a member of the provided process set {process_set}"
        )
    return found[1]
