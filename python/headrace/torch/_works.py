# SPDX-License-Identifier: Apache-2.0
"""Works of the backend "headrace": collectives on their way, as torch.distributed asks of them."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work as C10dWork

from headrace._errors import Error
from headrace._front import Waiter
from headrace.torch import _devices
from headrace.torch._errors import as_torch

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
        """Rank of the group whose message a recv took."""
        self.wait()
        return int(self._work.source())

    _source_rank = source_rank

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


class GpuWork(HeadraceWork):
    """A collective on a GPU: whoever waits for it holds up the current stream, not the caller."""

    def __init__(
        self,
        work: Any,
        waiter: Waiter,
        results: list[torch.Tensor],
        keep: Any,
        after: Callable[[], None] | None,
    ) -> None:
        super().__init__(work, waiter, results, keep, after)
        self._device = keep[0].device
        self._stream = _devices.current_stream(self._device)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        self._seen()
        stream = _devices.current_stream(self._device)
        try:
            _devices.hold_up(stream, self._work)
        except Error as error:
            raise as_torch(error) from None
        keep = self._keep
        self._finish()
        if stream != self._stream and not self._work.done():
            # Memory that is freed goes to the stream it is from, which does not wait.
            self._waiter.watch(self._work, lambda _, keep=keep: None)  # type: ignore[misc]
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Done at once; the streams of those that wait for it wait."""
        if self._future is None:
            begun: torch.futures.Future[None] = _devices.future_of(self._device)
            self._future = begun.then(self._outcome)
            begun.set_result(None)
        return self._future

    def _outcome(self, _: torch.futures.Future[None]) -> list[torch.Tensor]:
        self.wait()
        return self._results


class Several(HeadraceWork):
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
