"""What ran on each runtime, kept in tests/data/runtimes; docs/runtimes.md is made from it (tests/runtimes/evidence.py).

A record is only written from a run. Each entry names the test that made it; entries are replaced one by one, so that
the tests of one target, or some of them, can be run alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.placement import loop, vee
from bubbleproof.schedules.schedule import Schedule

FOLDER = Path(__file__).parents[1] / "data" / "runtimes"

CONSTRUCTED, ACCEPTED, ON_CPU, ON_GPU = LEVELS = ("constructed", "accepted", "executed on CPU", "executed on GPU")
"""Constructed: the file or object exists and reads back. Accepted: the runtime's own parser or passes take it.
Executed: it trained, and gradients and losses equal those of an unpipelined model."""

FEATURES = ("fused", "split", "pairs", "vee", "loop", "other placement", "uneven", "m < p", "m mod p ≠ 0", "messages")

TOLERANCE = 1e-6


def features_of(schedule: Schedule, instance: Instance) -> list[str]:
    """Which features a schedule needs of a runtime, as far as schedule and instance tell."""
    ranks, m = instance.ranks, instance.microbatches
    kinds, placement = schedule.kinds, instance.placement
    slots = sum(len(order) for order in schedule.orders)
    chunks = instance.stages // ranks
    found = {
        "fused": "BW" in kinds,
        "split": "W" in kinds,
        "pairs": slots < sum(1 for _ in schedule.ops()),
        "m < p": m < ranks,
        "m mod p ≠ 0": m % ranks != 0,
    }
    if not placement.one_chunk:
        where = placement.routes
        shape = "vee" if where == vee(ranks).routes else "loop" if where == loop(ranks, chunks).routes else ""
        found[shape or "other placement"] = True
    return [name for name in FEATURES if found.get(name)]


class Evidence:
    """All that the tests of a session saw."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, dict[str, Any]]] = {}

    def of_test(self, test: str) -> Recorder:
        """Where one test puts what it saw."""
        return Recorder(self, test)

    def write(self) -> None:
        """Replace the entries that were seen again."""
        FOLDER.mkdir(exist_ok=True)
        for target, kinds in self.found.items():
            record = load(target)
            for kind, entries in kinds.items():
                record.setdefault(kind, {}).update(entries)
            text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False)
            (FOLDER / f"{target}.json").write_text(text + "\n", encoding="utf-8")


def load(target: str) -> dict[str, dict[str, Any]]:
    """The record of a target; empty if there is none."""
    path = FOLDER / f"{target}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


class Recorder:
    """What one test saw."""

    def __init__(self, evidence: Evidence, test: str) -> None:
        self.evidence = evidence
        self.test = test

    def _add(self, target: str, kind: str, what: str, versions: Mapping[str, str], **more: Any) -> None:
        entry = {"test": self.test, "versions": dict(versions), **more}
        self.evidence.found.setdefault(target, {}).setdefault(kind, {})[what] = entry

    def trained(
        self,
        target: str,
        what: str,
        schedule: Schedule,
        instance: Instance,
        seen: Mapping[str, Any],
        versions: Mapping[str, str],
        also: Iterable[str] = (),
        level: str = ON_CPU,
    ) -> None:
        """A schedule trained; fails unless gradients and losses equal the reference's.

        Parameters
        ----------
        seen
            The executor's answer: ``outcome``, ``gradient_error``, ``loss_error``.
        also
            Features that schedule and instance do not tell: ``uneven`` (stages of different size), ``messages`` (sends
            and receives placed by bubbleproof).
        """
        assert level in (ON_CPU, ON_GPU)
        assert seen["outcome"] == "ok", seen
        assert seen["gradient_error"] <= TOLERANCE, seen
        assert seen["loss_error"] <= TOLERANCE, seen
        self._add(
            target,
            "trained",
            what,
            versions,
            level=level,
            features=_features(schedule, instance, also),
            gradient_error=f"{seen['gradient_error']:.1e}",
            loss_error=f"{seen['loss_error']:.1e}",
        )

    def accepted(
        self,
        target: str,
        what: str,
        schedule: Schedule,
        instance: Instance,
        versions: Mapping[str, str],
        by: str,
        also: Iterable[str] = (),
        level: str = ACCEPTED,
    ) -> None:
        """The runtime's own parser or passes took a schedule; `by` names the function that was called.

        With level ``constructed`` nothing of the runtime was called; `by` then says what was done instead.
        """
        assert level in (CONSTRUCTED, ACCEPTED)
        self._add(target, "accepted", what, versions, level=level, features=_features(schedule, instance, also), by=by)

    def compared(
        self,
        target: str,
        what: str,
        agreed: Mapping[str, int],
        disagreed: int,
        versions: Mapping[str, str],
        undecided: int = 0,
    ) -> None:
        """Mutated schedules: how often the consumer model said what the runtime did, by outcome.

        `undecided` counts runs whose end depends on when a message arrives, where the model does not decide.
        """
        self._add(
            target,
            "mutants",
            what,
            versions,
            agreed=dict(sorted(agreed.items())),
            disagreed=disagreed,
            undecided=undecided,
        )

    def fault(self, target: str, what: str, versions: Mapping[str, str], **seen: Any) -> None:
        """A fault of the runtime that docs/findings.md tells, as it showed."""
        self._add(target, "faults", what, versions, **seen)


def _features(schedule: Schedule, instance: Instance, also: Iterable[str]) -> list[str]:
    found = {*features_of(schedule, instance), *also}
    assert found <= set(FEATURES), found
    return [name for name in FEATURES if name in found]
