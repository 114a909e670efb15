# SPDX-License-Identifier: Apache-2.0
"""What the engine of named operations takes from the environment, and which name counts most."""

from __future__ import annotations

import pytest

from headrace._settings import number, setting

NAMES = [
    ("FUSION_THRESHOLD", "HEADRACE_COMM_FUSION_BYTES"),
    ("CYCLE_TIME", "HEADRACE_COMM_CYCLE_MS"),
    ("STALL_CHECK_TIME_SECONDS", "HEADRACE_COMM_STALL_WARN_S"),
    ("STALL_SHUTDOWN_TIME_SECONDS", "HEADRACE_COMM_STALL_FAIL_S"),
]


@pytest.mark.parametrize(("name", "of_comm"), NAMES)
def test_the_setting_of_the_collectives_comes_between_the_other_names(
    monkeypatch: pytest.MonkeyPatch, name: str, of_comm: str
) -> None:
    assert setting(name) is None
    monkeypatch.setenv("HOROVOD_" + name, "1")
    assert number(name, 0.0) == 1.0
    monkeypatch.setenv(of_comm, "2")
    assert number(name, 0.0) == 2.0
    monkeypatch.setenv("HEADRACE_" + name, "3")
    assert number(name, 0.0) == 3.0


def test_an_error_names_all_that_may_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_COMM_CYCLE_MS", "soon")
    names = r"HEADRACE_CYCLE_TIME \(or HEADRACE_COMM_CYCLE_MS or HOROVOD_CYCLE_TIME\) is 'soon'"
    with pytest.raises(ValueError, match=names):
        number("CYCLE_TIME", 1.0)
