# SPDX-License-Identifier: Apache-2.0
"""Collectives by name, for the fronts of all frameworks: one engine per process, sets, handles.

Nothing here knows a framework. A front gives addresses, types and shapes, and what must stay alive
until the operation is done.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import _joining
from headrace._errors import Error, InvalidArgument
from headrace._front import Op as Op
from headrace._front import comm
from headrace._settings import LOG, number, setting, switch, tell_unused
from headrace.common.exceptions import HorovodInternalError

if TYPE_CHECKING:
    from headrace._native.comm import Context, NamedSet, NamedWork, Place

Finish = Callable[[list["NamedWork"]], Any]

Average, Sum, Adasum, Min, Max, Product = range(6)
OPS = {Average: Op.average, Sum: Op.sum, Min: Op.min, Max: Op.max, Product: Op.product}
OP_NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


def internal(error: Error) -> HorovodInternalError:
    """What users of Horovod catch, with what headrace says."""
    raised = HorovodInternalError(str(error))
    raised.origin = error.origin
    return raised


class Scope:
    """A process set that this process is a member of: its engine and its automatic names."""

    __slots__ = ("_counts", "named", "rank", "ranks", "set_id", "size")

    def __init__(self, set_id: int, named: NamedSet) -> None:
        self.set_id = set_id
        self.named = named
        self.rank: int = named.rank
        self.size: int = named.size
        self.ranks: list[int] = list(named.world_ranks)
        self._counts: dict[str, itertools.count[int]] = {}

    def count(self, kind: str) -> int:
        """Number the calls of a kind that have no name; equal where the calls are."""
        return next(self._counts.setdefault(kind, itertools.count()))

    def wire_name(self, kind: str, name: str | None) -> str:
        """The name by which the ranks find each other's part of an operation."""
        return f"{kind}.noname.{self.count(kind)}" if name is None else f"{kind}.{name}"

    def root(self, root_rank: int) -> int:
        """Place in the set of a rank of the world.

        Raises:
            ValueError: it is none of the set.
        """
        if root_rank not in self.ranks:
            raise ValueError(
                f"broadcast from invalid root rank {root_rank}: "
                f"the process set has the ranks {self.ranks}"
            )
        return self.ranks.index(root_rank)

    def submit(self, kind: str, *arguments: Any, **options: Any) -> NamedWork:
        """`NamedSet.submit` with the exceptions of the fronts."""
        try:
            return self.named.submit(kind, *arguments, **options)
        except InvalidArgument:
            raise
        except Error as error:
            raise internal(error) from error

    def submit_group(self, kind: str, group: str, members: list[Any]) -> list[NamedWork]:
        """`NamedSet.submit_group` with the exceptions of the fronts."""
        try:
            return self.named.submit_group(kind, group, members)
        except InvalidArgument:
            raise
        except Error as error:
            raise internal(error) from error


class Handle:
    """An operation on its way. May be dropped: what it reads and writes stays until it is done."""

    __slots__ = ("__weakref__", "_finish", "_generation", "_keep", "_works")

    def __init__(self, works: list[NamedWork], keep: Any, finish: Finish) -> None:
        self._works: list[NamedWork] | None = works
        self._keep = keep
        self._finish: Finish | None = finish
        self._generation = _generation

    def done(self) -> bool:
        """Whether `synchronize` would return at once."""
        works = self._works
        if works is None or self._generation != _generation:
            return True
        return all(work.done() for work in works)

    def synchronize(self) -> Any:
        """Wait, free the handle and give the result; None where there is none any more.

        Raises:
            HorovodInternalError: the operation failed.
        """
        works, finish = self._works, self._finish
        if works is None or finish is None or self._generation != _generation:
            return None
        try:
            for work in works:
                work.wait()
            result = finish(works)
        except Error as error:
            self._free()
            raise internal(error) from error
        self._free()
        return result

    def _free(self) -> None:
        works, keep = self._works, self._keep
        self._works = self._keep = self._finish = None
        if works is not None:
            _keep_until_done(works, keep)

    def __del__(self) -> None:
        # After a fork the child has another generation and must not touch the parent's works.
        if self._works is not None and self._generation == _generation:
            self._free()


_ORPHANS_MIN = 64
_orphans: dict[int, tuple[list[NamedWork], Any]] = {}
_orphan_numbers = itertools.count()
_orphans_limit = _ORPHANS_MIN


def _keep_until_done(works: list[NamedWork], keep: Any) -> None:
    """Hold the memory of works that nobody waits for. Called by finalizers: may nest in itself."""
    global _orphans_limit
    if all(work.done() for work in works):
        return
    _orphans[next(_orphan_numbers)] = (works, keep)
    if len(_orphans) >= _orphans_limit:
        for number_, (pending, _) in list(_orphans.items()):
            if all(work.done() for work in pending):
                _orphans.pop(number_, None)
        _orphans_limit = max(_ORPHANS_MIN, 2 * len(_orphans))


def _engine_options() -> dict[str, Any]:
    """What the environment says of the engine, as `Context.named` takes it.

    Raises:
        ValueError: a variable is no number, or less than 0.
    """
    stall_warn = 0.0 if switch("STALL_CHECK_DISABLE") else number("STALL_CHECK_TIME_SECONDS", 60)
    return {
        "cycle_time": number("CYCLE_TIME", 1.0) / 1e3,
        "fusion_bytes": int(number("FUSION_THRESHOLD", 128 << 20)),
        "cache_capacity": int(number("CACHE_CAPACITY", 1024)),
        "group_fusion": not switch("DISABLE_GROUP_FUSION"),
        "stall_warn": stall_warn,
        "stall_fail": number("STALL_SHUTDOWN_TIME_SECONDS", 0) if stall_warn else 0.0,
        "join_active": (setting("JOIN_AVERAGE") or "").lower() == "active",
        "autotune": _autotune() if switch("AUTOTUNE") else None,
    }


def _autotune() -> tuple[str, str, int, int, int, bool, bool]:
    """log, folder of winners, warm-up samples, steps a sample, samples, what the user has fixed."""
    noise = number("AUTOTUNE_GAUSSIAN_PROCESS_NOISE", 0.8)
    if noise > 1:
        raise ValueError(f"headrace: HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE is {noise:g}, above 1")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return (
        setting("AUTOTUNE_LOG") or "",
        os.path.join(cache, "headrace", "autotune") if os.path.isabs(cache) else "",
        int(number("AUTOTUNE_WARMUP_SAMPLES", 3)),
        int(number("AUTOTUNE_STEPS_PER_SAMPLE", 10, 1)),
        int(number("AUTOTUNE_BAYES_OPT_MAX_SAMPLES", 20, 1)),
        bool((setting("FUSION_THRESHOLD") or "").strip()),
        bool((setting("CYCLE_TIME") or "").strip()),
    )


def _engine_core(local_rank: int) -> int:
    """The core that HOROVOD_THREAD_AFFINITY gives the engine of this rank; -1: any."""
    text = setting("THREAD_AFFINITY")
    if not text:
        return -1
    cores = text.split(",")
    try:
        return int(cores[local_rank])
    except (IndexError, ValueError):
        LOG.error(
            "headrace: HOROVOD_THREAD_AFFINITY is %r, which names no core for local rank %d; "
            "the engine's thread stays where it is",
            text,
            local_rank,
        )
        return -1


class Job:
    """One life of the engine, from `init` to `shutdown`."""

    def __init__(self, context: Context, place: Place, options: dict[str, Any]) -> None:
        self.context = context
        named = context.named(**options, core=_engine_core(place.local_rank))
        self.world = Scope(0, named)
        self.sets: dict[int, tuple[list[int], Scope | None]] = {0: (self.world.ranks, self.world)}
        self._next_set = 1
        self._timeline: Any = None
        self.place = place

    def agree(
        self, sets: Sequence[Sequence[int]], check: Callable[[int], None] | None = None
    ) -> None:
        """Make the process sets of `init`, of which all ranks must have the same.

        Raises:
            HorovodInternalError: ranks have other process sets; on all of them.
        """
        mine = json.dumps([sorted(one) for one in sets])
        said = [json.loads(line) for line in self._gather_lines("init.process_sets", mine)]
        for rank, one in enumerate(said):
            if one != said[0]:
                raise HorovodInternalError(
                    "headrace: init(process_sets=...) differs between ranks: rank 0 has "
                    f"{said[0]}, rank {rank} has {one}; give all ranks the same "
                    "sets in the same order"
                )
        if check is not None:
            check(self.world.size)
        for one in sets:
            self.add_set(sorted(one))

    def _gather_lines(self, name: str, line: str) -> list[str]:
        text = bytearray(line.encode() + b"\n")
        address, keep = address_of(text)
        work = self.world.submit("allgather", name, "uint8", [len(text)], address, 0)
        try:
            work.wait()
        except Error as error:
            raise internal(error) from error
        del keep
        output: Any = work.output
        return bytes(memoryview(output)).decode().splitlines()

    def add_set(self, ranks: list[int]) -> int:
        """Make a process set, together with all ranks; its number."""
        work = self.world.named.add_set(ranks)
        try:
            work.wait()
        except Error as error:
            raise internal(error) from error
        number_ = self._next_set
        self._next_set += 1
        named: Any = work.take_new_set()
        self.sets[number_] = (ranks, None if named is None else Scope(number_, named))
        if named is not None and self._timeline is not None:
            named.set_timeline(self._timeline)
        return number_

    def remove_set(self, number_: int) -> None:
        """End a process set, together with all ranks."""
        ranks, scope = self.sets[number_]
        work = self.world.named.remove_set(ranks)
        try:
            work.wait()
        except Error as error:
            raise internal(error) from error
        del self.sets[number_]
        if scope is not None:
            scope.named.close()

    def start_timeline(self, path: str, mark_cycles: bool) -> None:
        """Record from now on, into another file than before; rank 0's, or one for each `%r`."""
        rank = self.world.rank
        timeline = None
        if rank == 0 or "%r" in path:
            megabytes = int(number("TIMELINE_MAX_MB", 256))
            timeline = comm.Timeline(path, rank, mark_cycles, megabytes << 20)
        self._timeline = timeline
        for _, scope in self.sets.values():
            if scope is not None:
                scope.named.set_timeline(timeline)

    def stop_timeline(self) -> None:
        """Record no longer."""
        self._timeline = None
        for _, scope in self.sets.values():
            if scope is not None:
                scope.named.set_timeline(None)

    def close(self, reason: str) -> None:
        """End the engine on all ranks; what is pending fails. Takes some seconds at most."""
        scopes = [scope for _, scope in reversed(self.sets.values()) if scope is not None]
        end = time.monotonic() + CLOSE_SECONDS
        for scope in (self.world, *scopes):
            scope.named.shutdown(reason, max(end - time.monotonic(), 0.01))
        for scope in scopes:
            scope.named.close()


CLOSE_SECONDS = 5.0  # all sets together

_lock = threading.RLock()
_job: Job | None = None
_generation = 0
_joins = 0
_ordinals: dict[str, itertools.count[int]] = {}
_listeners: list[Callable[[bool], None]] = []
_exit_listeners: list[Callable[[], None]] = []
# Of the parent of a fork: never freed, since nothing of it may run in the child.
_of_parent: list[Any] = []


def address_of(buffer: bytearray) -> tuple[int, Any]:
    """Address of the bytes, and what must live as long as it is used."""
    import ctypes

    view = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    return ctypes.addressof(view), view


def on_change(listener: Callable[[bool], None]) -> None:
    """Call `listener(True)` at the end of each `init` and `listener(False)` at each `shutdown`."""
    _listeners.append(listener)


def ordinal(what: str) -> int:
    """Number things that all ranks make in the same order (optimizers, layers), since `init`."""
    return next(_ordinals.setdefault(what, itertools.count()))


def init(
    ranks: Sequence[int] | None = None,
    sets: Iterable[Sequence[int]] = (),
    check: Callable[[int], None] | None = None,
) -> Job:
    """Start the engine and meet the other ranks; nothing where it runs already.

    `check` is called with the size of the world once all have agreed on the sets.
    """
    global _job, _generation
    with _lock:
        if _job is not None:
            return _job
        tell_unused()
        options = _engine_options()
        _generation += 1
        try:
            made = Job(*_joining.join(ranks), options)
        except InvalidArgument:
            raise
        except Error as error:
            raise internal(error) from error
        try:
            made.agree(list(sets), check)
        except BaseException as error:
            made.close(f"init failed: {error}")
            raise
        path = setting("TIMELINE")
        if path and path.upper() != "DYNAMIC":
            made.start_timeline(path, switch("TIMELINE_MARK_CYCLES"))
        _job = made
        _ordinals.clear()
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
        for listener in _listeners:
            listener(True)
        return made


def shutdown(reason: str = "") -> None:
    """End the engine here and on all ranks; idempotent, bounded."""
    global _job
    with _lock:
        ended, _job = _job, None
        if ended is None:
            return
        for listener in _listeners:
            listener(False)
        ended.close(reason)


def job() -> Job:
    """The running engine.

    Raises:
        ValueError: there is none.
    """
    if _job is None:
        raise ValueError(NOT_INITIALIZED)
    return _job


def is_initialized() -> bool:
    """Whether the engine runs in this process."""
    return _job is not None


def generation() -> int:
    """How often `init` has started an engine; names and handles belong to one of them."""
    return _generation


def on_exit(listener: Callable[[], None]) -> None:
    """Call `listener` when the interpreter ends."""
    _exit_listeners.append(listener)


def count_join() -> None:
    """All ranks have come back from a `join`."""
    global _joins
    _joins += 1


def joins() -> int:
    """How often all ranks have joined: what they agreed on before may be news to one of them."""
    return _joins


def _at_exit() -> None:
    if _job is not None:
        reason = _reason_of_exit()
        if reason:
            _tell_launcher(reason)
        shutdown(reason or "its program has ended")
    for listener in _exit_listeners:
        listener()


def _tell_launcher(reason: str) -> None:
    """Before the other ranks hear of it, and perhaps end sooner than this one."""
    is_consequence = isinstance(getattr(sys, "last_value", None), (HorovodInternalError, Error))
    if os.environ.get("HEADRACE_STORE") and not is_consequence:
        with contextlib.suppress(Exception):  # it is about to end anyway, with a better text
            comm.JobStore.open(1.0).tell_failure(int(os.environ["HEADRACE_RANK"]), reason)


def _reason_of_exit() -> str:
    """What ended the interpreter, if it was an exception that nobody caught."""
    error = getattr(sys, "last_value", None)
    if error is None:
        return ""
    last = traceback.format_exception_only(type(error), error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"an exception ended the process {os.getpid()} on {socket.gethostname()}: {last}{where}"


def _in_child_of_fork() -> None:
    global _job, _generation, _lock
    _lock = threading.RLock()
    if _job is None:
        return
    _of_parent.append((_job, _orphans.copy()))
    atexit.unregister(_at_exit)
    _job = None
    _generation += 1
    _orphans.clear()
    for listener in _listeners:
        listener(False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child_of_fork)
