"""Programs as Promela models, for the model checker SPIN.

Every queue of a rank is a process. Channels of capacity 0 are rendezvous, channels that hold every message are buffers
that never fill. A deadlock is an invalid end state; an assertion fails where an op begins without an input or uses a
tensor that is not its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.op import Op, members
from bubbleproof.schedules.program import Program, Transfer

AVAILABLE = all(map(shutil.which, ("spin", "gcc")))
ABSENT = 255
PARITY = (["SEND_F", "RECV_F", "SEND_B", "RECV_B"], ["RECV_F", "SEND_F", "RECV_B", "SEND_B"])


class Model:
    """The text of a model, process by process."""

    def __init__(self, program: Program, instance: Instance, channel: str) -> None:
        self.instance, self.channel = instance, channel
        self.bodies: dict[str, list[str]] = {}
        self.names: dict[str, str] = {}
        self.labels: dict[Transfer, int] = {}
        for _, _, transfer in program.transfers():
            self.labels.setdefault(transfer if transfer.sends else transfer.other_end, len(self.labels) + 1)
        self.made = {op for row in program.rows for action in row for op in members(action)}
        for rank, row in enumerate(program.rows):
            self._rank(rank, list(row))
        for op in self.made:
            self.names[_made(op)] = f"bool {_made(op)};"

    def text(self) -> str:
        counters = [f"byte n_{name};" for name in self.bodies]
        processes = [f"active proctype {name}() {{\n" + "\n".join(body) + "\n}" for name, body in self.bodies.items()]
        return "\n".join([*self.names.values(), *counters, *processes]) + "\n"

    def _rank(self, rank: int, row: list) -> None:
        blocking = self.channel in ("rendezvous-rank", "even-odd")
        if self.channel == "even-odd":
            row = _parity(rank, row)
        ops = f"r{rank}_all" if blocking else f"r{rank}_ops"
        self.bodies[ops] = []
        count: dict[str, int] = {ops: 0}
        posted: dict[Transfer, str] = {}  # what says that a receive of this rank has its message
        group, ended, began = 0, "true", False
        members_of_group: dict[str, int] = {}
        for action in row:
            if not isinstance(action, Transfer):
                if began:
                    ended = " && ".join(f"n_{queue} >= {number}" for queue, number in members_of_group.items())
                    began = False
                    for receive in [key for key, value in posted.items() if value == "group"]:
                        posted[receive] = ended
                count[ops] += 1
                self._op(rank, ops, action, {} if blocking else posted)
                continue
            if blocking:
                queue, guard = ops, "true"
            elif self.channel == "batched":
                if not began:
                    began, group, members_of_group = True, group + 1, {}
                queue = f"r{rank}_g{group}_{'s' if action.sends else 'r'}{self._peer(action)}"
                guard = f"n_{ops} >= {count[ops]} && {ended}"
            else:
                queue = f"r{rank}_{self._queue(action)}"
                guard = f"n_{ops} >= {count[ops]}"
            count[queue] = count.get(queue, 0) + 1
            members_of_group[queue] = count[queue]
            if not action.sends:
                posted[action] = "group" if self.channel == "batched" else f"n_{queue} >= {count[queue]}"
            self._transfer(rank, queue, guard, action)

    def _peer(self, transfer: Transfer) -> int:
        return self.instance.rank_of(transfer.peer_stage, transfer.microbatch)

    def _queue(self, transfer: Transfer) -> str:
        if self.channel == "rendezvous-pair":
            return f"with{self._peer(transfer)}"
        if self.channel == "per-direction":
            return f"dir{transfer.direction}"
        return f"{'to' if transfer.sends else 'from'}{self._peer(transfer)}"

    def _lane(self, rank: int, transfer: Transfer) -> str:
        ends = (rank, self._peer(transfer)) if transfer.sends else (self._peer(transfer), rank)
        apart = transfer.direction if self.channel in ("per-direction", "even-odd") else ""
        name = f"lane_{ends[0]}_{ends[1]}{apart}"
        capacity = 2 * len(self.labels) if self.channel == "eager" else 0
        self.names[name] = f"chan {name} = [{capacity}] of {{ byte }};"
        return name

    def _transfer(self, rank: int, queue: str, guard: str, transfer: Transfer) -> None:
        lane = self._lane(rank, transfer)
        body = self.bodies.setdefault(queue, [])
        body.append(f"  ({guard});")
        if transfer.sends:
            kinds = ("F",) if transfer.direction == "F" else ("B", "BW")
            makers = [Op(kind, transfer.stage, transfer.microbatch) for kind in kinds]
            there = " || ".join(_made(op) for op in makers if op in self.made) or "false"
            body.append(f"  {lane}!(({there}) -> {self.labels[transfer]} : 0);")
        else:
            self.names[_got(transfer)] = f"byte {_got(transfer)} = {ABSENT};"
            body.append(f"  {lane}?{_got(transfer)};")
        body.append(f"  n_{queue}++;")

    def _op(self, rank: int, queue: str, action: object, posted: dict[Transfer, str]) -> None:
        instance, last = self.instance, self.instance.stages - 1
        guards, checks = [], []
        for kind, s, j in members(action):
            local, receive = [], None
            if kind == "F" and s > 0:
                receive, maker = Transfer("RECV_F", s, j), [Op("F", s - 1, j)]
            elif kind == "W":
                local.append([Op("B", s, j)])
            elif kind != "F":
                local.append([Op("F", s, j)])
                if s < last:
                    receive, maker = Transfer("RECV_B", s, j), [Op("B", s + 1, j), Op("BW", s + 1, j)]
            if receive is not None and instance.rank_of(receive.peer_stage, j) == rank:
                local.append(maker)
                receive = None
            if receive is not None:
                guards.append(posted.get(receive, "true"))
                checks += [
                    f"{_got(receive)} != {ABSENT}",
                    f"{_got(receive)} == {self.labels.get(receive.other_end, 0)}",
                ]
                self.names.setdefault(_got(receive), f"byte {_got(receive)} = {ABSENT};")
            for makers in local:
                checks.append(" || ".join(_made(op) for op in makers if op in self.made) or "false")
        body = self.bodies[queue]
        body.append(f"  ({' && '.join(guards) or 'true'});")
        body += [f"  assert({check});" for check in checks]
        body.append("  atomic { " + " ".join(f"{_made(op)} = true;" for op in members(action)) + f" n_{queue}++ }};")


def _made(op: Op) -> str:
    return f"made_{op.kind}{op.stage}_{op.microbatch}"


def _got(receive: Transfer) -> str:
    return f"got_{receive.direction}{receive.stage}_{receive.microbatch}"


def _parity(rank: int, row: list) -> list:
    """Transfers that stand together, in Megatron's order."""
    found: list = []
    for action in row:
        found.append(action)
        at = len(found) - 1
        while isinstance(action, Transfer) and at and isinstance(found[at - 1], Transfer):
            order = PARITY[rank % 2]
            if order.index(found[at - 1].kind) <= order.index(action.kind):
                break
            found[at - 1], found[at] = found[at], found[at - 1]
            at -= 1
    return found


def check(model: str, folder: Path) -> str:
    """What SPIN finds first: ok, hang, wrong or crash."""

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
        return done.stdout + done.stderr

    (folder / "model.pml").write_text(model)
    said = run("spin", "-a", "model.pml") + run("gcc", "-w", "-O0", "-DSAFETY", "-DNOFAIR", "-o", "pan", "pan.c")
    assert (folder / "pan").exists(), said
    said = run("./pan", "-m100000")
    (folder / "pan").unlink()
    error = re.search(r"pan:1: (.*)", said)
    if error is None:
        assert "errors: 0" in said, said
        assert "max search depth too small" not in said, said
        return "ok"
    if "invalid end state" in error[1]:
        return "hang"
    assert "assertion violated" in error[1], said
    return "wrong" if "==" in error[1] else "crash"
