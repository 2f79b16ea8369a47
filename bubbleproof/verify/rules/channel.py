"""V6xx: the program runs to its end under the channel model; advice on time lost in queues.

Source: docs/semantics.md, section 9.
"""

from __future__ import annotations

from collections.abc import Iterator

from bubbleproof.schedules.program import Transfer
from bubbleproof.verify.case import Place
from bubbleproof.verify.exchange import ProgramCase
from bubbleproof.verify.queues import channel_makespan, held_up
from bubbleproof.verify.report import Violation
from bubbleproof.verify.rules.messages import idle_transfers
from bubbleproof.verify.rules.rule import Rule, rule
from bubbleproof.verify.wait_cycle import cycle_sentence, wait_cycle
from bubbleproof.verify.witness import grid

__all__ = ["ADVICE", "RULES"]


def _idle_deadlock(case: ProgramCase) -> str:
    reason = idle_transfers(case)
    if not reason and case.run.deadlock:
        return "The ops deadlock by themselves (V202), whatever the channel; waits for messages were not judged."
    return reason


@rule(
    "V601",
    "channel-deadlock",
    idle=_idle_deadlock,
    example="0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0BW0 … | 1RECV_F0 1F0 1BW0 1SEND_B0 1RECV_F1 … (rendezvous-pair)",
    seen=(
        "pytorch#172668, #127332 and PR #126419 (both ranks send first), nccl#479 (the same without a pipeline), "
        "pytorch PR #193903 and #195760 (one queue for separate batches)"
    ),
)
def channel_deadlock(case: ProgramCase) -> Iterator[Violation]:
    """No ranks wait for each other's messages in a circle under the channel model.

    Small messages may pass where large ones hang, since a library may buffer them; that it ran in a test is no
    evidence. The witness is a wait cycle with the fewest ranks. Judged for the messages whose both ends are there, as
    the lanes deliver them.

    Source: semantics, theorem 7.
    """
    graph, progress = case.graph, case.progress
    if not progress.stuck:
        return
    hops, exhaustive = wait_cycle(graph, progress)
    marked = {place for hop in hops for place in hop}
    first = hops[0].at
    channel = case.setting.channel
    waits = []
    for index, hop in enumerate(hops):
        waits.append(
            {
                "rank": hop.at.rank,
                "position": hop.at.position,
                "op": case.text(hop.at),
                "behind": case.text(hop.behind),
                "behind_position": hop.behind.position,
                "waits_for_rank": hops[(index + 1) % len(hops)].at.rank,
            }
        )
    yield Violation(
        "V601",
        first.rank,
        first.position,
        case.text(first),
        f"deadlock under {channel}: {cycle_sentence(hops, case.program)}",
        {
            "channel": channel,
            "waits": waits,
            "shortest": exhaustive,
            "picture": grid(case.schedule, marked, around_marked=True),
        },
    )


def _idle_advice(case: ProgramCase) -> str:
    reason = idle_transfers(case)
    if reason:
        return reason
    if not all(case.exact) or case.inverted or case.run.deadlock or case.progress.stuck:
        return "Time lost in queues was not judged: the program does not run to its end."
    return ""


@rule(
    "A901",
    "head-of-line",
    idle=_idle_advice,
    example="0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0BW0 … under rendezvous-pair: 0SEND_F1 waits behind 0RECV_B0",
    seen="pytorch#188833, pytorch#172668, sail-sg/zero-bubble-pipeline-parallelism#73",
)
def head_of_line(case: ProgramCase) -> Iterator[Violation]:
    """A receive that stands long before its data can exist holds up what is ready behind it in its queue.

    Not wrong, but slow. The time is the longest that one action held up was ready on its rank. The loss in all is the
    difference of the makespans of the program with and without the channel; where it is 0, nothing is advised.

    Source: semantics, Time under a channel.
    """
    lost = (channel_makespan(case) or 0) - (case.facts.makespan or 0)
    for found in sorted(held_up(case), key=lambda h: (-h.time, h.receive)):
        rank, position = found.receive
        name = case.text(found.receive)
        message = (
            f"{name} at position {position} of rank {rank} is posted {found.ops} ops before its data can exist; "
            f"{case.text(found.behind)} (position {found.behind.position}) waits behind it for {found.time}; "
            f"the channel costs the program {lost} in all"
        )
        yield Violation(
            "A901",
            rank,
            position,
            name,
            message,
            {"ops": found.ops, "time": found.time, "behind": case.text(found.behind), "lost_in_all": lost},
        )


@rule(
    "A902",
    "unlike-groups",
    idle=idle_transfers,
    example="0SEND_F0 0SEND_F1 in one group | 1RECV_F0 1F0 1RECV_F1 in two",
    seen="nccl#1279 and nccl#2130 (undefined), pytorch#174288 (more than 256 in one group are split)",
)
def unlike_groups(case: ProgramCase) -> Iterator[Violation]:
    """Messages that one rank groups together are not grouped together on the other; libraries leave the outcome open.

    A group is a run of transfers without an op between them. One advice for each pair of ranks, with the first message.

    Source: semantics, batched.
    """
    if case.setting.channel != "batched":
        return
    groups: dict[Place, int] = {}
    for rank, row in enumerate(case.program.rows):
        group = 0
        for position, action in enumerate(row):
            if isinstance(action, Transfer):
                groups[Place(rank, position)] = group
            else:
                group += 1
    seen: dict[tuple[int, int, int, int], tuple[int, int]] = {}
    told = set()
    for delivery in case.deliveries:
        here, there = delivery.send.rank, delivery.receive.rank
        pair = (groups[delivery.send], groups[delivery.receive])
        for key in ((here, there, 0, pair[0]), (here, there, 1, pair[1])):
            other = seen.setdefault(key, pair)
            if other != pair and (here, there) not in told:
                told.add((here, there))
                rank, position = delivery.send
                message = (
                    f"{delivery.sent} at position {position} of rank {rank} is grouped with another message to rank "
                    f"{there} on one side only"
                )
                yield Violation("A902", rank, position, str(delivery.sent), message, {"to_rank": there})


RULES: tuple[Rule[ProgramCase], ...] = (channel_deadlock,)
ADVICE: tuple[Rule[ProgramCase], ...] = (head_of_line, unlike_groups)
