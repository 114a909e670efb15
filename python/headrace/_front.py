# SPDX-License-Identifier: Apache-2.0
"""What the fronts of all frameworks share: names of types, works and who waits for them."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace._core import native

if TYPE_CHECKING:
    from headrace._native.comm import Work

comm = native.comm
Op = comm.Op
Memory = comm.Memory

Then = Callable[[Exception | None], None]


class Waiter:
    """One thread that hears of the ends of works and calls back with the GIL, in batches.

    The thread starts with the first call of `watch` and lives until `close`; it sleeps while
    nothing ends.
    """

    def __init__(self) -> None:
        self._completions = comm.Completions()
        self._pid = os.getpid()
        # Reentrant: the garbage collector may end a work, which watches it, in any line here.
        self._lock = threading.RLock()
        self._callbacks: dict[int, Then] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def watch(self, work: Work, then: Then) -> None:
        """Call `then` on the waiter's thread, with the error of `work` or None, once it ended."""
        if os.getpid() != self._pid:  # a forked child has no such thread, and maybe taken locks
            return
        number = next(self._numbers)
        self._callbacks[number] = then
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-waiter", daemon=True
                )
                self._thread.start()
                atexit.register(self.close)
        work.notify(self._completions, number)

    def here(self) -> bool:
        """This is the thread itself: nothing that it waits for is told by a callback."""
        return self._thread is threading.current_thread()

    def close(self) -> None:
        """End the thread; works that end later call nobody."""
        if os.getpid() != self._pid:
            return
        atexit.unregister(self.close)
        self._completions.close()
        if self._thread is not None and not self.here():
            self._thread.join(5.0)

    def _run(self) -> None:
        while True:
            ended = self._completions.take(3600.0)
            for number, error in ended:
                self._callbacks.pop(number)(error)
            if not ended and self._completions.closed():
                return
