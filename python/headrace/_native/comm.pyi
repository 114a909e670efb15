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
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def node_rank(self) -> int: ...
    @property
    def nodes(self) -> int: ...

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
