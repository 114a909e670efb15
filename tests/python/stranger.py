# SPDX-License-Identifier: Apache-2.0
"""Whatever strangers may do to open ports. Usage: stranger.py HOST:PORT...

Prints "all are here" once it has connections of every kind to every port, and ends when its input
does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading

LONG = 60.0
# As it stands in docs/formats/wire.md, without the end: for each service.
HELLOS = [
    struct.pack("<6sHBBHI16sQ", b"HRWIRE", 1, 1, service, 8, 0, os.urandom(16), 0) + b"head"
    for service in range(1, 6)
]


def reach(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), timeout=LONG)


class Strangers:
    """All that come to one port."""

    def __init__(self, host: str, port: int) -> None:
        self.place = (host, port)
        self.stay: list[socket.socket] = []

    def come(self) -> None:
        for _ in range(500):  # a scan
            reach(*self.place).close()
        for _ in range(3):
            with reach(*self.place) as one, contextlib.suppress(OSError):
                one.sendall(os.urandom(1 << 20))
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0" * 64):
            self.stay.append(reach(*self.place))
            with contextlib.suppress(OSError):
                self.stay[-1].sendall(words)
        for hello in HELLOS:
            self.stay.append(reach(*self.place))
            self.stay[-1].sendall(hello)
        self.stay += [reach(*self.place) for _ in range(50)]

    def drip(self, end: threading.Event) -> None:
        """Byte by byte on each, for as long as the job goes on."""
        text = HELLOS[0] + b"\0" * 100
        for byte in text:
            if end.wait(0.1):
                return
            for one in self.stay:
                with contextlib.suppress(OSError):
                    one.send(bytes([byte]))


def main() -> None:
    end = threading.Event()
    ports = []
    for word in sys.argv[1:]:
        host, port = word.rsplit(":", 1)
        ports.append(Strangers(host, int(port)))
    threads = [threading.Thread(target=one.come) for one in ports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("all are here", flush=True)
    for one in ports:
        threading.Thread(target=one.drip, args=(end,)).start()
    sys.stdin.read()
    end.set()


if __name__ == "__main__":
    main()
