# SPDX-License-Identifier: Apache-2.0
"""Environment variables of the collectives: HEADRACE_X, else HOROVOD_X."""

from __future__ import annotations

import logging
import math
import os

_NATIVE = "HEADRACE_"
_ACCEPTED = "HOROVOD_"
LOG = logging.getLogger("headrace")

# Horovod's variables that mean nothing here; each is told once.
_WITHOUT_EFFECT = frozenset(
    [
        "TORUS_ALLREDUCE",
        "BATCH_D2D_MEMCOPIES",
        "NUM_NCCL_STREAMS",
        "ENABLE_ASYNC_COMPLETION",
        "DISABLE_NVTX_RANGES",
        "ENABLE_XLA_OPS",
        "CCL_CACHE",
        "MPI_THREADS_DISABLE",
        "ADASUM_MPI_CHUNK_SIZE",
        "CONTROLLER",
        "CPU_OPERATIONS",
        "GLOO_RENDEZVOUS_ADDR",
        "GLOO_RENDEZVOUS_PORT",
        "DYNAMIC_PROCESS_SETS",
    ]
)
# Those that have one, in the engine, the launcher or the fronts.
_KNOWN = frozenset(
    [
        "FUSION_THRESHOLD",
        "CYCLE_TIME",
        "CACHE_CAPACITY",
        "DISABLE_GROUP_FUSION",
        "HIERARCHICAL_ALLREDUCE",
        "HIERARCHICAL_ALLGATHER",
        "TIMELINE",
        "TIMELINE_MARK_CYCLES",
        "AUTOTUNE",
        "AUTOTUNE_LOG",
        "AUTOTUNE_WARMUP_SAMPLES",
        "AUTOTUNE_STEPS_PER_SAMPLE",
        "AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        "AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        "STALL_CHECK_DISABLE",
        "STALL_CHECK_TIME_SECONDS",
        "STALL_SHUTDOWN_TIME_SECONDS",
        "ELASTIC",
        "ELASTIC_TIMEOUT",
        "START_TIMEOUT",
        "SPARK_START_TIMEOUT",
        "GLOO_TIMEOUT_SECONDS",
        "GLOO_IFACE",
        "SECRET_KEY",
        "RANK",
        "SIZE",
        "LOCAL_RANK",
        "LOCAL_SIZE",
        "CROSS_RANK",
        "CROSS_SIZE",
        "HOSTNAME",
        "LOG_LEVEL",
        "LOG_HIDE_TIME",
        "THREAD_AFFINITY",
        "JOIN_AVERAGE",
        "STRICT_ZERO_GRAD",
        "DETERMINISTIC",
    ]
)
# Those that are settings of the collectives too, in the same units.
_OF_COMM = {
    "FUSION_THRESHOLD": "COMM_FUSION_BYTES",
    "CYCLE_TIME": "COMM_CYCLE_MS",
    "STALL_CHECK_TIME_SECONDS": "COMM_STALL_WARN_S",
    "STALL_SHUTDOWN_TIME_SECONDS": "COMM_STALL_FAIL_S",
}
_told: set[str] = set()


def setting(name: str) -> str | None:
    """The value of HEADRACE_`name`, else of its other names; None where none is set."""
    for one in _names(name):
        if one in os.environ:
            return os.environ[one]
    return None


def _names(name: str) -> list[str]:
    """Variables that say it, first what counts most."""
    of_comm = [_NATIVE + _OF_COMM[name]] if name in _OF_COMM else []
    return [_NATIVE + name, *of_comm, _ACCEPTED + name]


def number(name: str, default: float, least: float = 0.0) -> float:
    """The number in a variable.

    Raises:
        ValueError: it is no number, or less than `least`.
    """
    text = setting(name)
    if text is None or not text.strip():
        return default
    first, *others = _names(name)
    where = f"headrace: {first} (or {' or '.join(others)}) is {text!r}"
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{where}, which is no number") from None
    if not math.isfinite(value) or value < least:
        raise ValueError(f"{where}; it takes a number of at least {least:g}")
    return value


def switch(name: str, default: bool = False) -> bool:
    """Whether a variable is set to something else than 0, false, off, no."""
    text = setting(name)
    if text is None or not text.strip():
        return default
    return text.strip().lower() not in ("0", "false", "off", "no")


def tell_unused() -> None:
    """Log once each variable of Horovod that is set and has no effect, or that nobody knows."""
    for name in sorted(os.environ):
        if name.startswith(_ACCEPTED) and name not in _told:
            _told.add(name)
            short = name.removeprefix(_ACCEPTED)
            if short in _WITHOUT_EFFECT:
                LOG.info("headrace: %s is accepted and has no effect", name)
            elif short not in _KNOWN:
                LOG.info("headrace: there is no variable %s; is it a typing error?", name)
