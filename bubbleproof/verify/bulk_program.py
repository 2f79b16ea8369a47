"""Large programs: the same judgement on arrays, without a Python object for any action.

Source: docs/large.md.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.program import Collective, Program
from bubbleproof.schedules.table import CODES, Table
from bubbleproof.verify import program_judge
from bubbleproof.verify.bulk import Places, durations, figures
from bubbleproof.verify.bulk_channels import CHANNELS, Messages, makespan, match
from bubbleproof.verify.exchange import ProgramCase, Setting
from bubbleproof.verify.report import ChannelFacts, Facts, Report, Verdict
from bubbleproof.verify.rules import buffers, gradients
from bubbleproof.verify.rules.catalogue import PROGRAM_RULES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WITHOUT_ADVICE", "proof_of_program", "prove_program", "verify_program_table"]

WITHOUT_ADVICE = (
    "The program is large: no advice was looked for, and the order of its messages that proves it free of deadlock was "
    "found but not written down."
)
"""What the report of a large program lacks."""

_OPS, _REDUCE = CODES["SEND_F"], CODES["REDUCE_GRAD"]


def verify_program_table(
    table: Table, instance: Instance, setting: Setting | None = None, *, listed_per_rule: int = 10
) -> Report:
    """Judge a program that is given as arrays.

    Returns
    -------
    Report
        That of `verify_program`, without advice and certificate, if every rule holds; found in time and memory linear
        in the number of actions. Otherwise, and for the channels ``batched`` and ``even-odd`` and for the memory of
        messages under a cap, `verify_program` itself makes it, which takes some gigabytes for a million actions.
    """
    setting = setting or Setting()
    report = proof_of_program(table, instance, setting, listed_per_rule=listed_per_rule)
    if report is None:
        options: dict[str, Any] = {field.name: getattr(setting, field.name) for field in fields(setting)}
        return program_judge.verify_program(table.program(), instance, **options, listed_per_rule=listed_per_rule)
    return report


def proof_of_program(table: Table, instance: Instance, setting: Setting, *, listed_per_rule: int = 10) -> Report | None:
    """As `verify_program_table`; None where the judge of single actions would have to look."""
    proved = prove_program(table, instance, setting)
    if proved is None:
        return None
    facts, channel = proved
    # whether a rule is idle depends on what was asked, and on whether anything is reduced
    rows: list[list[Collective]] = [[] for _ in range(instance.ranks)]
    rank, stage = _due(instance)[0]
    if ((table.kind == _REDUCE) & (table.rank == rank) & (table.stage == stage)).any():
        rows[rank].append(Collective("REDUCE_GRAD", stage))
    alike = ProgramCase(Program.of(rows), instance, setting)
    rules = (*PROGRAM_RULES, *gradients.TARGET_RULES) if setting.target else PROGRAM_RULES
    idle = {rule.id: rule.idle(alike) for rule in rules}
    assumed = [*program_judge.assumed(setting), *filter(None, idle.values()), WITHOUT_ADVICE]
    return Report(
        verdict=Verdict.PROVED,
        violations=(),
        counts={},
        rules=tuple(identity for identity, reason in idle.items() if not reason),
        assumptions=tuple(dict.fromkeys(assumed)),
        facts=facts,
        listed_per_rule=listed_per_rule,
        channel=channel,
    )


def prove_program(table: Table, instance: Instance, setting: Setting) -> tuple[Facts, ChannelFacts | None] | None:
    """The figures of a program that breaks no rule; None if it breaks one, or if arrays cannot tell."""
    if setting.transfers and setting.channel not in CHANNELS:
        return None
    if setting.message_memory is not None and instance.memory.cap is not None:
        return None
    if setting.inputs is not None and setting.outputs is not None:
        case = ProgramCase(Program.of([()] * instance.ranks), instance, setting)
        if any(True for rule in buffers.RULES if rule.id == "V802" for _ in rule.check(case)):
            return None
    ops = table.ops()
    places = Places.of(ops, instance)
    facts = None if places is None else figures(ops, instance, places, setting.target)
    if places is None or facts is None or not _gradients_hold(table, instance, setting):
        return None
    if not setting.transfers:
        return facts, None
    entry = np.flatnonzero(table.kind < _OPS)
    messages = match(table, instance, np.where(places.entries < 0, -1, entry[places.entries]), setting.channel)
    if messages is None:
        return None
    kind = table.kind[~(table.joined | ((table.kind >= _OPS) & (table.kind < _OPS + 4)))]
    lasts = np.zeros(len(kind), np.int64)  # collectives take no time
    lasts[kind < _OPS] = durations(ops, instance, places)
    whole = makespan(table, instance, messages, lasts, setting.channel)
    if whole is None:
        return None
    stops = (None,) * table.ranks
    return facts, ChannelFacts(setting.channel, 2 * len(messages.send), whole, stops, _posted(table, messages))


def _gradients_hold(table: Table, instance: Instance, setting: Setting) -> bool:
    """Whether V701 to V704 and V706 hold."""
    stages = instance.stages
    if setting.fused_stages:
        halves = (table.kind == CODES["B"]) | (table.kind == CODES["W"])
        if np.isin(table.stage[halves], list(setting.fused_stages)).any():
            return False
    collective = np.flatnonzero(table.kind >= _OPS + 4)
    key = table.rank[collective].astype(np.int64) * stages + table.stage[collective]
    held = [rank * stages + stage for rank, mine in enumerate(instance.placement.stages_of_rank) for stage in mine]
    if ((table.stage[collective] < 0) | (table.stage[collective] >= stages)).any() or not np.isin(key, held).all():
        return False
    due = np.array([rank * stages + stage for rank, stage in _due(instance)], np.int64)
    reduces = (table.kind[collective] == _REDUCE) & np.isin(key, due)
    if not reduces.any():
        return setting.target is None or not setting.scale_grads or instance.microbatches == 1
    if not np.array_equal(np.sort(key[reduces]), due):
        return False
    adds = np.flatnonzero((table.kind == CODES["W"]) | (table.kind == CODES["BW"]))
    last = np.full(len(due), -1, np.int64)
    of = np.searchsorted(due, table.rank[adds].astype(np.int64) * stages + table.stage[adds])
    last[of] = adds  # of equal ones the last stays
    return bool((collective[reduces] > last[np.searchsorted(due, key[reduces])]).all())


def _due(instance: Instance) -> list[tuple[int, int]]:
    """Every rank with each stage of which it runs a microbatch, ascending."""
    routes = instance.placement.routes
    return sorted({(r, s) for route in set(instance.route_of_microbatch) for s, r in enumerate(routes[route])})


def _posted(table: Table, messages: Messages) -> tuple[int, ...]:
    """For each rank the most receives that are posted and not used at one time, by the order of its row."""
    change: NDArray[np.int64] = np.zeros(len(table), np.int64)
    change[messages.receive] = 1
    change[messages.consumer] = -1
    held = np.cumsum(change)  # 0 at the end of each rank, since every receive has been used
    peaks = np.zeros(table.ranks, np.int64)
    np.maximum.at(peaks, table.rank[messages.receive], held[messages.receive])
    return tuple(peaks.tolist())
