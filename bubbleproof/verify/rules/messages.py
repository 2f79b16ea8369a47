"""V5xx: every message is sent once and received once, at its time, by the right op.

Source: docs/semantics.md, section 8.
"""

from __future__ import annotations

from collections.abc import Iterator

from bubbleproof.schedules.program import Transfer
from bubbleproof.verify.exchange import Delivery, ProgramCase
from bubbleproof.verify.report import Violation
from bubbleproof.verify.rules.rule import Rule, rule

__all__ = ["RULES", "idle_transfers"]


def idle_transfers(case: ProgramCase) -> str:
    """Why nothing about messages is judged: no ranks to compare, or a runtime adds the transfers."""
    if not case.same_ranks:
        return "Only the number of ranks was checked; in orders for other ranks nothing means anything."
    if not case.setting.transfers:
        return "The transfers are left to the runtime, so messages were not judged."
    return ""


def _absent(case: ProgramCase, end: Transfer) -> bool:
    """Whether an end is nowhere; one on a wrong rank is not absent as well."""
    return end not in case.ends and all(stray != end for _, stray in case.faulty.get("rank", ()))


def _message(send: Transfer) -> str:
    what = "output" if send.direction == "F" else "gradient"
    return f"the {what} of microbatch {send.microbatch} from stage {send.stage} to stage {send.peer_stage}"


@rule(
    "V501",
    "missing-send",
    idle=idle_transfers,
    example="0F0 0RECV_B0 0BW0 | 1RECV_F0 1F0 1BW0 1SEND_B0",
    seen="torch 2.13 loads such a file and hangs until the process group times out",
)
def missing_send(case: ProgramCase) -> Iterator[Violation]:
    """Every edge between two ranks has a send of every microbatch, forwards and backwards.

    A receive without its send takes the next message of the same pair of ranks, or waits for ever.

    Source: semantics, Messages.
    """
    for send in case.crossing():
        if _absent(case, send):
            rank, other = _ranks(case, send)
            receives = case.ends.get(send.other_end)
            place = f"; rank {other} receives it at position {receives[0].position}" if receives else ""
            message = f"{send} is missing on rank {rank}: {_message(send)} is never sent{place}"
            yield Violation("V501", rank, None, str(send), message, {"to_rank": other})


@rule(
    "V502",
    "missing-receive",
    idle=idle_transfers,
    example="0F0 0SEND_F0 0RECV_B0 0BW0 | 1F0 1BW0 1SEND_B0",
    seen="torch 2.13 loads such a file and fails with an assertion on the receiving rank",
)
def missing_receive(case: ProgramCase) -> Iterator[Violation]:
    """Every edge between two ranks has a receive of every microbatch, forwards and backwards.

    Without it the op has no input; the send waits for ever or meets the receive of another message.

    Source: semantics, Messages.
    """
    for send in case.crossing():
        receive = send.other_end
        if _absent(case, receive):
            other, rank = _ranks(case, send)
            sends = case.ends.get(send)
            place = f"; rank {other} sends it at position {sends[0].position}" if sends else ""
            message = f"{receive} is missing on rank {rank}: {_message(send)} is never received{place}"
            yield Violation("V502", rank, None, str(receive), message, {"from_rank": other})


def _ranks(case: ProgramCase, send: Transfer) -> tuple[int, int]:
    """The rank that sends and the rank that receives."""
    home = case.instance.rank_of
    return home(send.stage, send.microbatch), home(send.peer_stage, send.microbatch)


@rule(
    "V503",
    "extra-transfer",
    idle=idle_transfers,
    example="0F0 0SEND_F0 0SEND_F0 0RECV_B0 0BW0 | 1RECV_F0 1F0 1BW0 1SEND_B0",
    seen="torch 2.13: a hang, a crash, or nothing if nobody takes the copy, depending on where it stands",
)
def extra_transfer(case: ProgramCase) -> Iterator[Violation]:
    """No message is sent twice and none is received twice.

    Lanes have no tags, so every later receive of the pair of ranks takes the message before the one that it is meant
    for. Copies on both sides cancel, and only cost time. What follows is judged as if the copies were not there.

    Source: semantics, Messages.
    """
    for end, places in case.ends.items():
        if len(places) > 1:
            copy, verb = places[1], "sent" if end.sends else "received"
            where = ", ".join(str(place.position) for place in places[:4]) + (", …" if len(places) > 4 else "")
            name = end if end.sends else end.other_end
            message = f"{_message(name)} is {verb} {len(places)} times: {end} at positions {where} of rank {copy.rank}"
            yield Violation(
                "V503", copy.rank, copy.position, str(end), message, {"positions": [place.position for place in places]}
            )


@rule(
    "V504",
    "unknown-message",
    idle=idle_transfers,
    example="0F0 0SEND_F1 0RECV_B0 0BW0 | 1RECV_F0 1F0 1BW0 1SEND_B0 (one microbatch)",
    seen="torch 2.13 raises a bare KeyError in the step",
)
def unknown_message(case: ProgramCase) -> Iterator[Violation]:
    """Every transfer is of a stage and a microbatch that exist.

    Source: semantics, Messages.
    """
    for (rank, position), transfer in case.faulty.get("unknown", ()):
        message = (
            f"{transfer} at position {position} of rank {rank}: there are stages 0 … {case.instance.stages - 1} and "
            f"microbatches 0 … {case.instance.microbatches - 1}"
        )
        yield Violation("V504", rank, position, str(transfer), message)


@rule(
    "V505",
    "beyond-the-ends",
    idle=idle_transfers,
    example="0RECV_F0 0F0 0BW0 (a single stage)",
    seen="torch 2.13 skips such transfers, so a send in the wrong direction is lost without a word",
)
def beyond_the_ends(case: ProgramCase) -> Iterator[Violation]:
    """The first stage receives no output and sends no gradient, the last sends no output and receives no gradient.

    A runtime that skips such a transfer runs well; but often it stands in place of one that is then missing.

    Source: semantics, Messages.
    """
    for (rank, position), transfer in case.faulty.get("ends", ()):
        end = "first" if transfer.peer_stage < 0 else "last"
        message = f"{transfer} at position {position} of rank {rank}: stage {transfer.stage} is the {end} one"
        yield Violation("V505", rank, position, str(transfer), message)


@rule(
    "V506",
    "inside-a-rank",
    idle=idle_transfers,
    example="0F0 0SEND_F0 1RECV_F0 1F0 1BW0 0BW0 (both stages on rank 0)",
    seen="torch 2.13 fails in the send: gloo has no pair of a rank with itself",
)
def inside_a_rank(case: ProgramCase) -> Iterator[Violation]:
    """No transfer is between two stages of one rank.

    A rank hands such a tensor over without a message; a send to itself waits for a receive that comes after it.

    Source: semantics, Messages.
    """
    for (rank, position), transfer in case.faulty.get("inside", ()):
        verb = "sends to" if transfer.sends else "receives from"
        message = (
            f"{transfer} at position {position} of rank {rank}: stage {transfer.stage} {verb} stage "
            f"{transfer.peer_stage}, which is on the same rank {case.peer(transfer)}"
        )
        yield Violation("V506", rank, position, str(transfer), message)


@rule(
    "V507",
    "transfer-on-wrong-rank",
    idle=idle_transfers,
    example="0F0 0RECV_B0 0BW0 | 0SEND_F0 1RECV_F0 1F0 1BW0 1SEND_B0",
)
def transfer_on_wrong_rank(case: ProgramCase) -> Iterator[Violation]:
    """Every transfer stands on the rank that holds its stage on the route of its microbatch.

    A transfer on the wrong rank is not also called missing, and takes part in nothing else.

    Source: semantics, Messages.
    """
    for (rank, position), transfer in case.faulty.get("rank", ()):
        home = case.instance.rank_of(transfer.stage, transfer.microbatch)
        message = (
            f"{transfer} stands on rank {rank} (position {position}), but stage {transfer.stage} is on rank {home}"
        )
        yield Violation("V507", rank, position, str(transfer), message, {"belongs_on": home})


@rule(
    "V508",
    "send-before-producer",
    idle=idle_transfers,
    example="0SEND_F0 0F0 0RECV_B0 0BW0 | 1RECV_F0 1F0 1BW0 1SEND_B0",
    seen="torch 2.13 raises a bare KeyError in the send",
)
def send_before_producer(case: ProgramCase) -> Iterator[Violation]:
    """Every send stands after the op that makes what it sends.

    Source: semantics, Messages.
    """
    for send, places in case.ends.items():
        if not send.sends:
            continue
        made = case.partners(send)
        if not made:
            continue
        first, producer = made[0]
        for rank, position in places:
            if position < first.position:
                message = (
                    f"{send} at position {position} of rank {rank} sends what {producer} makes only at position "
                    f"{first.position}"
                )
                yield Violation("V508", rank, position, str(send), message, {"producer": str(producer)})


@rule(
    "V509",
    "receive-after-use",
    idle=idle_transfers,
    example="0F0 0SEND_F0 0RECV_B0 0BW0 | 1F0 1RECV_F0 1BW0 1SEND_B0",
    seen="torch 2.13 fails with an assertion; a runtime with preallocated buffers computes on what was there before",
)
def receive_after_use(case: ProgramCase) -> Iterator[Violation]:
    """Every receive stands before the op that uses what it takes.

    Source: semantics, Messages.
    """
    for receive, places in case.ends.items():
        if receive.sends:
            continue
        used = case.partners(receive)
        if not used:
            continue
        last, consumer = used[-1]
        rank, position = places[0]
        if position > last.position:
            message = (
                f"{consumer} at position {last.position} of rank {rank} needs what {receive} takes only at "
                f"position {position}"
            )
            yield Violation("V509", rank, position, str(receive), message, {"consumer": str(consumer)})


@rule(
    "V510",
    "crossed-messages",
    idle=idle_transfers,
    example="0F0 0SEND_F0 0F1 0SEND_F1 … | 1RECV_F1 1RECV_F0 …",
    seen=(
        "torch 2.13 with defer_pp_recv=True, an option of pytorch PR #178815: ZBVZeroBubble (2 ranks, 3 microbatches), "
        "InterleavedZeroBubble (2, 3) and DualPipeV (3, 6) finish with gradients whose relative error is 60 to 250; "
        "pytorch#125079 on NCCL, which has no tags"
    ),
)
def crossed_messages(case: ProgramCase) -> Iterator[Violation]:
    """On each lane, receives stand in the order of the sends that they are meant for.

    A lane has no tags: the k-th receive takes the k-th send whatever its name. If the shapes are equal, this is silent
    wrong data: the run finishes without an error and its gradients are wrong. One violation for each lane, with the
    first exchange; copies and messages without both ends are left out of the count.

    Source: semantics, Lanes and theorem 6.
    """
    wrong: dict[object, list[Delivery]] = {}
    for delivery in case.deliveries:
        if delivery.sent.other_end != delivery.received:
            wrong.setdefault(delivery.lane, []).append(delivery)
    for deliveries in wrong.values():
        first = deliveries[0]
        source, target = first.send.rank, first.receive.rank
        message = (
            f"{_consequence(case, deliveries)}: of the messages from rank {source} to rank {target}, number "
            f"{first.number} is sent as {first.sent} (position {first.send.position}) and received as {first.received} "
            f"(position {first.receive.position})" + _more(len(deliveries) - 1)
        )
        yield Violation(
            "V510",
            target,
            first.receive.position,
            str(first.received),
            message,
            {
                "from_rank": source,
                "wrong": [
                    {
                        "number": d.number,
                        "sent": str(d.sent),
                        "send_position": d.send.position,
                        "received": str(d.received),
                        "receive_position": d.receive.position,
                    }
                    for d in deliveries
                ],
            },
        )


def _more(count: int) -> str:
    return f"; {count} more meet{'s' if count == 1 else ''} another than its own" if count else ""


def _consequence(case: ProgramCase, deliveries: list[Delivery]) -> str:
    """What crossed messages do, by their shapes as far as they are known."""
    pairs = [(case.shape(d.sent), case.shape(d.received)) for d in deliveries]
    if any(a is None or b is None for a, b in pairs):
        return "silent wrong data if shapes are equal"
    if all(a == b for a, b in pairs):
        return "silent wrong data, all shapes are equal"
    return "messages of different shapes are exchanged, an error or truncated data"


RULES: tuple[Rule[ProgramCase], ...] = (
    missing_send,
    missing_receive,
    extra_transfer,
    unknown_message,
    beyond_the_ends,
    inside_a_rank,
    transfer_on_wrong_rank,
    send_before_producer,
    receive_after_use,
    crossed_messages,
)
