# SPDX-License-Identifier: Apache-2.0
"""Call a function on the ranks of a job: what `headrace.run` does.

The launcher is the binary, as a process of its own. The function goes to the ranks through the
job's store, whose clients have proved that they know the job's secret, and so do the results.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from headrace import _cli
from headrace._errors import Error, Unsupported

T = TypeVar("T")

_PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
# The launcher ends its ranks within 5 s and waits at most 15 s more for what hangs in the kernel.
_STOP_SECONDS = 30.0


class RemoteError(RuntimeError):
    """What a rank raised, as text: the cause of the error that `run` raises."""

    def __init__(self, rank: int, kind: str, text: str) -> None:
        """Hold the rank, the exception's class and its traceback."""
        super().__init__(f"rank {rank} raised {kind}\n{text}")
        self.rank = rank
        self.kind = kind
        self.traceback = text


def _dumps(value: object) -> bytes:
    """By value where cloudpickle is installed: lambdas, closures, functions of a notebook."""
    try:
        import cloudpickle
    except ImportError:
        function = value.get("function") if isinstance(value, dict) else None
        if getattr(function, "__module__", None) == "__main__":  # pickle sends its name alone
            raise TypeError(
                f"headrace.run cannot send the function {getattr(function, '__qualname__', '')} of "
                "this script; `pip install cloudpickle`, or put it in a module of its own that the "
                "ranks can import"
            ) from None
        try:
            return pickle.dumps(value)
        except Exception as error:
            raise TypeError(
                f"headrace.run cannot send this function: {error}; "
                "`pip install cloudpickle`, which sends closures and functions of a notebook"
            ) from error
    dumped: bytes = cloudpickle.dumps(value)
    return dumped


def _deprecated(name: str, old: T | None, instead: str, new: T) -> T:
    if old is None:
        return new
    warnings.warn(f"{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=3)
    return old


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    if _PACKAGE_FOLDER.name not in ("site-packages", "dist-packages"):  # a checkout
        paths = [str(_PACKAGE_FOLDER), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    environment.setdefault("HEADRACE_PYTHON", sys.executable)
    return environment


def _relay(source: IO[bytes], target: Callable[[], Any]) -> None:
    """Pass lines on to sys.stdout or sys.stderr as they are now: a notebook has its own."""
    for line in source:
        with contextlib.suppress(ValueError, OSError):  # closed: the reader has gone
            stream = target()
            stream.write(line.decode(errors="replace"))
            stream.flush()
    source.close()


@contextlib.contextmanager
def _owner() -> Iterator[int]:
    """A descriptor at whose end the launcher stops, so that it does not outlive this process."""
    ours, theirs = os.pipe()
    try:
        yield ours
    finally:
        os.close(ours)
        os.close(theirs)


def _launch(arguments: Sequence[str]) -> int:
    """Run the launcher to its end, with its output on our streams; the exit code."""
    binary = str(_cli.binary())
    with _owner() as owner:
        process = subprocess.Popen(
            [binary, "run", "--owner-fd", str(owner), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            pass_fds=[owner],
        )
        assert process.stdout is not None
        assert process.stderr is not None
        relays = [
            threading.Thread(target=_relay, args=(process.stdout, lambda: sys.stdout), daemon=True),
            threading.Thread(target=_relay, args=(process.stderr, lambda: sys.stderr), daemon=True),
        ]
        for relay in relays:
            relay.start()
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise
        for relay in relays:
            relay.join(_STOP_SECONDS)
        return code


def _flags(given: Mapping[str, Any]) -> list[str]:
    """Command-line options of the values that are given."""
    flags: list[str] = []
    for name, value in given.items():
        if value is None or value is False:
            continue
        flags.append(f"--{name}")
        if value is not True:
            flags.append(str(value))
    return flags


def _results(folder: Path, ranks: int) -> list[Any]:
    return [pickle.loads((folder / str(rank)).read_bytes())["value"] for rank in range(ranks)]


def _remote_cause(folder: Path, message: str) -> BaseException | None:
    """The exception of the rank that the launcher blames, else of the first that raised one."""
    causes = {}
    for path in folder.iterdir():
        if path.name.isdigit():
            with contextlib.suppress(Exception):
                result = pickle.loads(path.read_bytes())
                if "error" in result:
                    causes[int(path.name)] = RemoteError(int(path.name), *result["error"])
    blamed = [rank for rank in causes if f"\nProcess name: {rank}\n" in message]
    return causes[min(blamed or causes)] if causes else None


def run(
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: bool | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[T]:
    """Call `func(*args, **kwargs)` on the ranks of a new job; their results by rank.

    The arguments are those of Horovod's function of this name; Output
    of the ranks comes to our streams, a line with its rank in front. `RuntimeError` when a rank
    fails: its cause is the exception of that rank, with its traceback as text. ValueError for
    arguments that contradict one another.
    """
    num_proc = _deprecated("np", np, "num_proc", num_proc)
    min_num_proc = _deprecated("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _deprecated("max_np", max_np, "max_num_proc", max_num_proc)
    network_interfaces = _deprecated(
        "network_interface", network_interface, "network_interfaces", network_interfaces
    )
    if hosts is not None and hostfile is not None:
        raise ValueError("hosts and hostfile are both given; give one")
    if use_gloo and use_mpi:
        raise ValueError("use_gloo and use_mpi are both given; give one")
    elastic = (min_num_proc, max_num_proc, slots, reset_limit, cooldown_range)
    if host_discovery_script is not None or any(value is not None for value in elastic):
        raise Unsupported(
            "this version has no elastic jobs yet; call headrace.run with num_proc alone"
        )
    flags = _flags(
        {
            "hosts": hosts,
            "hostfile": hostfile,
            "start-timeout": start_timeout,
            "ssh-port": ssh_port,
            "ssh-identity-file": ssh_identity_file,
            "disable-cache": disable_cache,
            "output-filename": output_filename,
            "verbose": bool(verbose),
            "gloo": use_gloo,
            "mpi": use_mpi,
            "mpi-args": mpi_args,
            "network-interfaces": network_interfaces,
        }
    )
    call = {"function": func, "args": tuple(args), "kwargs": dict(kwargs or {})}
    return _call(call, num_proc, flags, executable or sys.executable)


def _call(call: dict[str, Any], ranks: int, flags: list[str], interpreter: str) -> list[Any]:
    """Launch the ranks and gather what came of them."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as name:
        folder = Path(name)
        function = folder / "function"
        function.write_bytes(pickle.dumps({"path": sys.path, "call": _dumps(call)}))
        files = _flags({"function-file": function, "results-folder": folder})
        command = [interpreter, "-m", "headrace._rank"]
        code = _launch(["--num-proc", str(ranks), *flags, *files, *command])
        if code == 0:
            return _results(folder, ranks)
        message_file = folder / "message"
        message = message_file.read_text() if message_file.exists() else ""
        raise RuntimeError(
            message.rstrip("\n") or f"headrace run ended with exit code {code}; see its output"
        ) from _remote_cause(folder, message)


# ---- on the ranks ----


class _Store(Protocol):
    def set(self, key: str, value: bytes) -> None:
        """Set a key."""

    def get(self, key: str) -> bytes:
        """Wait for a key and give its value."""
        ...


def _put(store: _Store, key: str, value: bytes) -> None:
    piece = 4 << 20
    pieces = [value[at : at + piece] for at in range(0, len(value), piece)]
    for number, one in enumerate(pieces):
        store.set(f"{key}/{number}", one)
    store.set(f"{key}/count", str(len(pieces)).encode())


def _take(store: _Store, key: str) -> bytes:
    count = int(store.get(f"{key}/count"))
    return b"".join(store.get(f"{key}/{number}") for number in range(count))


def call_on_rank() -> int:
    """Take the function from the store, call it, put what came of it; the exit code."""
    from headrace import _native

    key = f"run/result/{os.environ['HEADRACE_RANK']}"
    store = _native.comm.JobStore.open()
    try:
        sent = pickle.loads(_take(store, "run/function"))
        sys.path.extend(path for path in sent["path"] if path not in sys.path)
        call = pickle.loads(sent["call"])
        result = _dumps({"value": call["function"](*call["args"], **call["kwargs"])})
    except SystemExit:
        raise
    except BaseException as error:
        text = traceback.format_exc()
        _put(store, key, pickle.dumps({"error": (type(error).__name__, text)}))
        sys.last_value = error  # nobody catches it: the engine tells the other ranks at exit
        print(text, file=sys.stderr, end="", flush=True)
        return 1
    try:
        _put(store, key, result)
    except Error as error:
        print(f"headrace.run: the result of this rank: {error}", file=sys.stderr, flush=True)
        return 1
    return 0
