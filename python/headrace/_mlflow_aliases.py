# SPDX-License-Identifier: Apache-2.0
"""Aliases in MLflow, compared three ways: as they stand here, there, and as we last set them.

What we last set is a tag of the registered model, `headrace.alias.NAME` = "VERSION REGISTRY". Where
MLflow still has that, ours wins; where it has something else, somebody changed it there: that is
told and stays, unless forced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace import registry
from headrace._errors import NotFound

MARK = "headrace.alias."


@dataclass
class Aliases:
    """What one registered model of MLflow should have, as far as one version of it tells."""

    name: str
    """In MLflow."""
    version: str
    """Number in MLflow."""
    wanted: set[str]
    """Aliases that stand on it here."""
    elsewhere: Callable[[str], bool]
    """Whether an alias stands on another version here, which then moves it."""
    registry: str
    """Its uuid: what another registry handed over is not ours to take away."""
    notes: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    """Those that were left as somebody else set them."""

    def hand_over(self, client: Any, force: bool) -> None:  # noqa: ANN401 - MLflow's client
        """Set and take away; what was changed there goes to `notes`."""
        model = client.get_registered_model(self.name)
        there = {alias: str(version) for alias, version in model.aliases.items()}
        handed: dict[str, str] = {}
        for tag, value in model.tags.items():
            version, _, owner = value.partition(" ")
            if tag.startswith(MARK) and owner == self.registry:
                handed[tag.removeprefix(MARK)] = version
        for alias in sorted(self.wanted):
            self._set(client, alias, there.get(alias), handed.get(alias), force)
        for alias in sorted(set(handed) - self.wanted):
            if not self.elsewhere(alias):
                self._take_away(client, alias, there.get(alias), handed[alias], force)

    def _set(
        self,
        client: Any,  # noqa: ANN401
        alias: str,
        there: str | None,
        handed: str | None,
        force: bool,
    ) -> None:
        if there not in (self.version, handed) and not force:
            self._tell(alias, there, handed)
            self.foreign.append(alias)
            return
        if there != self.version:
            client.set_registered_model_alias(self.name, alias, self.version)
        if handed != self.version:  # after the alias: cut off in between, the next push finds both
            client.set_registered_model_tag(
                self.name, MARK + alias, f"{self.version} {self.registry}"
            )

    def _take_away(
        self,
        client: Any,  # noqa: ANN401
        alias: str,
        there: str | None,
        handed: str,
        force: bool,
    ) -> None:
        if there is not None and (there == handed or force):
            client.delete_registered_model_alias(self.name, alias)
        elif there is not None:
            self._tell(alias, there, handed)
        client.delete_registered_model_tag(self.name, MARK + alias)

    def _tell(self, alias: str, there: str | None, handed: str | None) -> None:
        change = "removed" if there is None else "set" if handed is None else "moved"
        where = "" if there is None else f", to version {there}"
        self.notes.append(
            f"{alias} of {self.name} was {change} in MLflow{where}; it stays so "
            "(headrace models push --force puts ours in its place)"
        )


def stands_on_another(r: registry.Registry, model: str, run: str | None) -> Callable[[str], bool]:
    """Whether an alias of `model` is set at all; of a set of items, on an item of another run."""

    def single(alias: str) -> bool:
        try:
            r.get(f"{model}@{alias}")
        except NotFound:
            return False
        return True

    def items(alias: str) -> bool:
        return any(v.lineage["run"] != run for v in r.list(f"{model}/*", alias=alias))

    return single if run is None else items
