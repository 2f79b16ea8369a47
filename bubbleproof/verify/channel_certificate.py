"""Checks a certificate of freedom from deadlock: one order of all steps of which every queue is a projection.

It shares nothing with what finds the order. Of the program it takes for granted only that its transfers are of messages
that exist (V504 to V507). The argument is theorem 7 of docs/semantics.md.
"""

from collections.abc import Sequence

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import members
from bubbleproof.schedules.program import Channel, Program, Transfer

_TURNS = (("SEND_F", "RECV_F", "SEND_B", "RECV_B"), ("RECV_F", "SEND_F", "RECV_B", "SEND_B"))


def check(program: Program, instance: Instance, channel: Channel, steps: Sequence[Sequence[tuple[int, int]]]) -> str:
    """Why the steps, each the place of an action or of the send and the receive of a message, prove nothing; or ""."""
    at = {place: n for n, step in enumerate(steps) for place in step}
    actions = {(rank, p): action for rank, row in enumerate(program.rows) for p, action in enumerate(row)}
    if sorted(place for step in steps for place in step) != list(actions):
        return "the steps are not every action once"
    for step in steps:
        first, *rest = (actions[place] for place in step)
        pair = [first.other_end] if isinstance(first, Transfer) and channel != "eager" else []
        if rest != pair or (isinstance(first, Transfer) and pair and not first.sends):
            return f"the step of {first} is neither one action nor the send and the receive of a message"
    step_of: dict[object, int] = {action: at[place] for place, action in actions.items()}
    for rank, row in enumerate(program.rows):
        calls, number = [], 0  # each op, then the transfers up to the next one, in the order in which they are called
        for p, action in enumerate(row):
            number += not isinstance(action, Transfer)
            turn = _TURNS[rank % 2].index(action.kind) if channel == "even-odd" and isinstance(action, Transfer) else -1
            calls.append((number, turn, p))
        last: dict[object, int] = {}  # the last step of each queue
        group: dict[int, int] = {}  # the last step of each run of transfers
        run_of: dict[object, int] = {}
        closed = end = -1  # the last step of the run before, and of this one
        for number, _, p in sorted(calls):
            action, now = row[p], at[rank, p]
            queue: object = "ops"
            needs = [last.get("ops", -1)]
            if not isinstance(action, Transfer):
                for op in members(action):
                    receive = ("RECV_F" if op.kind == "F" else "RECV_B", op.stage, op.microbatch)
                    if op.kind != "W" and receive in run_of:
                        needs.append(group[run_of[receive]] if channel == "batched" else step_of[receive])
            elif channel not in ("rendezvous-rank", "even-odd"):
                peer = instance.rank_of(action.peer_stage, action.microbatch)
                queue = {"rendezvous-pair": peer, "per-direction": action.direction}.get(channel, (peer, action.sends))
                if number not in group:
                    closed = end
                end = group[number] = max(group.get(number, -1), now)
                run_of[action] = number
                needs += [closed] if channel == "batched" else []
                if channel == "eager" and not action.sends:
                    sent = step_of.get(action.other_end, now)
                    needs += [sent, last.get(("sent", peer), -1) - sent + now]  # the next one that was sent
                    last["sent", peer] = sent
            if max(*needs, last.get(queue, -1)) >= now:
                return f"{action} of rank {rank} comes before what it waits for"
            last[queue] = now
    return ""
