# SPDX-License-Identifier: Apache-2.0
"""The yardstick of flow_engine.py: no-op items over socket pairs to two processes forked before.

Nothing is recorded, retried, scheduled or logged. Prints one JSON object.
Usage: flow_pipe_worker.py ITEMS
"""

import json
import os
import resource
import selectors
import socket
import sys
import time

WORKERS = 2
CALL = b"c" * 96
REPLY = b"r" * 64


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, or fewer at the end."""
    data = connection.recv(size)
    while data and len(data) < size:
        data += connection.recv(size - len(data))
    return data


def echo(connection: socket.socket) -> None:
    """Answer every call until the other end closes."""
    while len(receive(connection, len(CALL))) == len(CALL):
        connection.sendall(REPLY)
    os._exit(0)


def main() -> int:
    """Hand each item to whoever is free."""
    items = int(sys.argv[1])
    selector = selectors.EpollSelector()
    ends = []
    for _ in range(WORKERS):
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            for end in ends:
                end.close()
            echo(theirs)
        theirs.close()
        ends.append(ours)
        selector.register(ours, selectors.EVENT_READ)

    def rounds(count: int) -> None:
        sent = done = 0
        for end in ends:
            end.sendall(CALL)
            sent += 1
        while done < count:
            for key, _ in selector.select():
                receive(key.fileobj, len(REPLY))
                done += 1
                if sent < count:
                    key.fileobj.sendall(CALL)
                    sent += 1

    def cpu() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(use.ru_utime + use.ru_stime for use in used)

    rounds(200)
    wall_began, cpu_began = time.perf_counter(), cpu()
    rounds(items)
    wall = time.perf_counter() - wall_began
    for end in ends:
        end.close()
    for _ in range(WORKERS):
        os.wait()
    figures = {"wall_us": wall / items * 1e6, "cpu_us": (cpu() - cpu_began) / items * 1e6}
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
