# SPDX-License-Identifier: Apache-2.0
# Made by tools/stub.py from the built module.
# mypy: disable-error-code="type-arg,valid-type"

"""Collectives; the fronts document them."""

import enum
from collections.abc import Callable, Sequence

class Op(enum.Enum):
    sum = 0

    average = 1

    min = 2

    max = 3

    product = 4

    band = 5

    bor = 6

    bxor = 7

class Memory:
    """Address, elements and type (numpy's name) of a buffer."""

    def __init__(self, address: int, count: int, dtype: str) -> None: ...

class Completions:
    """Ends of works, for one thread to take."""

    def __init__(self) -> None: ...
    def close(self) -> None: ...
    def closed(self) -> bool: ...
    def take(self, limit: float) -> list: ...

class Work:
    """A collective on its way."""

    def done(self) -> bool: ...
    def wait(self, limit: float | None = ...) -> None: ...
    def error(self) -> object: ...
    def sequence(self) -> int: ...
    def source(self) -> int: ...
    def notify(self, completions: Completions, number: int) -> None: ...

class ProcessSet:
    """Collectives over an ordered subset of the ranks."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def world_ranks(self) -> list[int]: ...
    def abort(self, reason: str) -> None: ...
    def all_reduce(
        self,
        input: Memory,
        output: Memory,
        op: Op,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
        prescale: float = ...,
        postscale: float = ...,
    ) -> Work: ...
    def reduce_scatter(
        self,
        input: Memory,
        output: Memory,
        op: Op,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
        prescale: float = ...,
        postscale: float = ...,
    ) -> Work: ...
    def reduce_scatter_v(
        self,
        input: Memory,
        counts: Sequence[int],
        output: Memory,
        op: Op,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
        prescale: float = ...,
        postscale: float = ...,
    ) -> Work: ...
    def reduce(
        self,
        input: Memory,
        output: Memory,
        root: int,
        op: Op,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
        prescale: float = ...,
        postscale: float = ...,
    ) -> Work: ...
    def broadcast(
        self,
        inout: Memory,
        root: int,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
    ) -> Work: ...
    def all_gather(
        self,
        input: Memory,
        output: Memory,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
    ) -> Work: ...
    def all_gather_v(
        self,
        input: Memory,
        counts: Sequence[int],
        output: Memory,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
    ) -> Work: ...
    def all_to_all(
        self,
        input: Memory,
        output: Memory,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
    ) -> Work: ...
    def all_to_all_v(
        self,
        input: Memory,
        send: Sequence[int],
        output: Memory,
        recv: Sequence[int],
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
    ) -> Work: ...
    def gather(
        self,
        input: Memory,
        output: Memory,
        root: int,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
    ) -> Work: ...
    def scatter(
        self,
        input: Memory,
        output: Memory,
        root: int,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
    ) -> Work: ...
    def barrier(
        self, name: str = ..., blocking: bool = ..., timeout: float | None = ...
    ) -> Work: ...
    def send(
        self,
        input: Memory,
        dst: int,
        tag: int,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
    ) -> Work: ...
    def recv(
        self,
        output: Memory,
        src: int | None,
        tag: int,
        name: str = ...,
        blocking: bool = ...,
        timeout: float | None = ...,
    ) -> Work: ...

class Context:
    """This process as one of the ranks of a job."""

    @property
    def world(self) -> ProcessSet: ...
    def split(self, parent: ProcessSet, color: int, key: int) -> ProcessSet: ...
    def flush_metrics(self) -> None: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def node_rank(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    def named(
        self,
        cycle_time: float = ...,
        fusion_bytes: int = ...,
        cache_capacity: int = ...,
        group_fusion: bool = ...,
        stall_warn: float = ...,
        stall_fail: float = ...,
        join_active: bool = ...,
        core: int = ...,
        autotune: tuple[str, str, int, int, int, bool, bool] | None = ...,
    ) -> NamedSet:
        """
        All ranks call it at the same place: a set of all ranks whose operations have names.
        """

class NamedWork:
    """An operation of a NamedSet on its way."""

    def done(self) -> bool: ...
    def wait(self, limit: float | None = ...) -> None:
        """Wait until it is done and raise its error, if it has one."""

    def error(self) -> object: ...
    @property
    def output(self) -> object:
        """Memory that the operation made for its output, or None."""

    @property
    def rows(self) -> int: ...
    @property
    def received_splits(self) -> list[int]: ...
    @property
    def last_joined(self) -> int: ...
    def take_new_set(self) -> object: ...

class Timeline:
    """A file of Chrome trace events."""

    def __init__(
        self, path: str, rank: int, mark_cycles: bool = ..., max_bytes: int = ...
    ) -> None: ...

class NamedTensor:
    """What NamedSet.prepare() made."""

class NamedSet:
    """Ranks whose operations are paired by name."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def world_ranks(self) -> list[int]: ...
    def submit(
        self,
        kind: str,
        name: str,
        dtype: str,
        shape: Sequence[int],
        input: int,
        output: int,
        op: Op | None = ...,
        prescale: float = ...,
        postscale: float = ...,
        root: int = ...,
        splits: Sequence[int] = ...,
    ) -> NamedWork: ...
    def submit_group(
        self,
        kind: str,
        group: str,
        members: Sequence[
            tuple[str, str, Sequence[int], int, int, Op | None, float, float, int, Sequence[int]]
        ],
    ) -> list[NamedWork]:
        """
        Members are tuples of what submit() takes after kind; done together, or none.
        """

    def prepare(
        self,
        kind: str,
        name: str,
        dtype: str,
        shape: Sequence[int],
        op: Op | None = ...,
        prescale: float = ...,
        postscale: float = ...,
        root: int = ...,
        splits: Sequence[int] = ...,
        group: str = ...,
        group_size: int = ...,
    ) -> NamedTensor:
        """For tensors that are submitted again and again: see start()."""

    def start(self, tensor: NamedTensor, input: int, output: int) -> NamedWork:
        """submit() of what prepare() made."""

    def start_all(self, tensors: Sequence[tuple[NamedTensor, int, int]]) -> list[NamedWork]:
        """
        Tuples of what start() takes; all of them, or none when a name is pending.
        """

    def barrier(self, name: str) -> NamedWork: ...
    def join(self) -> NamedWork: ...
    def add_set(self, ranks: Sequence[int]) -> NamedWork:
        """All ranks of the set call it with the same world ranks."""

    def remove_set(self, ranks: Sequence[int]) -> NamedWork: ...
    def shutdown(self, reason: str = ..., limit: float = ...) -> None: ...
    def set_timeline(self, timeline: Timeline | None) -> None:
        """Record what is done from now on; None: no longer."""

    def close(self) -> None: ...

def init(
    rank: int,
    world_size: int,
    job: str,
    generation: int,
    timeout: float,
    init_timeout: float,
    store_set: Callable,
    store_get: Callable,
    transport: str = ...,
    node: str = ...,
) -> Context: ...

class Place:
    """Where this process is among the ranks of its job."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def cross_rank(self) -> int: ...
    @property
    def cross_size(self) -> int: ...
    @property
    def is_homogeneous(self) -> bool: ...

class JobStore:
    """The store of the launcher that started this process."""

    @staticmethod
    def open(timeout: float = ...) -> JobStore: ...
    def tell_failure(self, rank: int, reason: str) -> None:
        """
        Say that this rank is ending because of an exception; bounded, only the first counts.
        """

    def set(self, key: str, value: bytes, timeout: float = ...) -> None: ...
    def get(self, key: str, timeout: float = ...) -> bytes: ...

def process_metrics() -> str:
    """What the board of this process says, as JSON."""

def flight_records() -> list[str]:
    """
    What the process sets of each membership of this process did last, as JSON.
    """

def join(
    ranks: Sequence[int] = [], timeout: float = 1800.0, start_timeout: float | None = None
) -> tuple[Context, Place]:
    """Become a rank of the job that the environment names."""
