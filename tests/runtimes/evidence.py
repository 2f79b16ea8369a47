"""Makes docs/runtimes.md from the records: ``python -m tests.runtimes.evidence``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.runtimes.records import FEATURES, LEVELS, load

DOCUMENT = Path(__file__).parents[2] / "docs" / "runtimes.md"

TARGETS = {
    "torch": "PyTorch",
    "torchtitan": "torchtitan",
    "deepspeed": "DeepSpeed",
    "megatron": "Megatron-core",
    "colossalai": "ColossalAI",
    "sailsg": "sail-sg zero-bubble",
    "primus": "Primus",
    "spectrax": "spectrax",
    "jaxpp": "JaxPP",
}
"""Names of records and of runtimes."""

MARKS = dict(zip(LEVELS, ("c", "A", "E", "G"), strict=True))

HEAD = """\
# What was shown on which runtime

Made by `python -m tests.runtimes.evidence` from the records in `tests/data/runtimes`, which the tests with the marker
`runtime` write; do not edit. A level is only what a record of a run says:

* **c** constructed: the file or object exists and reads back; nothing of the runtime was called.
* **A** accepted: the runtime's own parser or passes took it; nothing was trained.
* **E** executed on the CPU: it trained, with several processes or devices, and every gradient and loss equals that of
  an unpipelined model within 1e-6 relative, in float64 as far as the runtime keeps it.
* **G** executed on a GPU, with the same comparison.
* – : no record.

CPU runs (gloo, or virtual devices of one process) show order, matching, buffers and gradients. They do not show NCCL,
streams, memory or speed. What was found wrong in the runtimes themselves is in [findings.md](findings.md).
"""

LEGEND = """\
*fused*: backward in one op. *split*: input and weight gradients as ops of their own (B, W). *pairs*: a forward and a
backward as one overlapped slot. *vee*, *loop*, *other placement*: several stages per rank. *uneven*: stages of
different size. *messages*: sends and receives placed by bubbleproof, not by the runtime.
"""


def document() -> str:
    """The whole text of docs/runtimes.md."""
    records = {target: load(target) for target in TARGETS}
    parts = [HEAD, "## Features\n", table(records), LEGEND, "## Figures\n", figures(records)]
    without = [TARGETS[target] for target, record in records.items() if not record]
    if without:
        parts.append(f"No record: {', '.join(without)}. Nothing was shown for them, and nothing is claimed.\n")
    parts.append("## Runs\n")
    for target, record in records.items():
        if record:
            parts.append(f"### {TARGETS[target]}\n\n" + "\n".join(runs(record)) + "\n")
    return "\n".join(parts)


def entries(record: dict[str, Any], *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what, entry) of some kinds of a record, in their order."""
    for kind in kinds:
        yield from record.get(kind, {}).items()


def table(records: dict[str, dict[str, Any]]) -> str:
    """Target × feature: the highest level that a record shows."""
    rows = [["runtime", *FEATURES], ["---"] * (1 + len(FEATURES))]
    for target, record in records.items():
        highest: dict[str, int] = {}
        for _, entry in entries(record, "trained", "accepted"):
            for feature in entry["features"]:
                highest[feature] = max(highest.get(feature, -1), LEVELS.index(entry["level"]))
        marks = [MARKS[LEVELS[highest[feature]]] if feature in highest else "–" for feature in FEATURES]
        rows.append([TARGETS[target], *marks])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def figures(records: dict[str, dict[str, Any]]) -> str:
    """Target × level, versions, counts, and the greatest errors."""
    rows = [
        ["runtime", "versions", "level", "trained", "worst gradient", "worst loss", "mutants: model agrees", "of them"],
        ["---"] * 8,
    ]
    for target, record in records.items():
        trained = [entry for _, entry in entries(record, "trained")]
        mutants = [entry for _, entry in entries(record, "mutants")]
        found = [entry["level"] for _, entry in entries(record, "trained", "accepted")]
        level = max(found, key=LEVELS.index, default="–")
        rows.append(
            [
                TARGETS[target],
                versions(entry for _, entry in entries(record, "trained", "accepted", "mutants")),
                level,
                str(len(trained)) if trained else "–",
                max((entry["gradient_error"] for entry in trained), key=float, default="–"),
                max((entry["loss_error"] for entry in trained), key=float, default="–"),
                *compared(mutants),
            ]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def versions(found: Iterable[dict[str, Any]]) -> str:
    """All versions that ran."""
    seen: dict[str, set[str]] = {}
    for entry in found:
        for name, version in entry["versions"].items():
            seen.setdefault(name, set()).add(version)
    return "; ".join(f"{name} {', '.join(sorted(those))}" for name, those in sorted(seen.items())) or "–"


def compared(mutants: list[dict[str, Any]]) -> tuple[str, str]:
    """How often model and runtime agreed, and on what."""
    if not mutants:
        return "–", "–"
    by: dict[str, int] = {}
    for entry in mutants:
        for outcome, count in entry["agreed"].items():
            by[outcome] = by.get(outcome, 0) + count
    agreed, disagreed = sum(by.values()), sum(entry["disagreed"] for entry in mutants)
    undecided = sum(entry["undecided"] for entry in mutants)
    text = f"{agreed} of {agreed + disagreed}" + (f"; {undecided} more depend on timing" if undecided else "")
    return text, ", ".join(f"{count} {outcome}" for outcome, count in sorted(by.items()))


def runs(record: dict[str, Any]) -> Iterator[str]:
    """One line for each entry of a record."""
    for what, entry in entries(record, "trained"):
        errors = f"gradients {entry['gradient_error']}, losses {entry['loss_error']}"
        yield f"* {what} ({', '.join(entry['features'])}): {entry['level']}; {errors}"
    for what, entry in entries(record, "accepted"):
        yield f"* {what} ({', '.join(entry['features'])}): {entry['level']}, by {entry['by']}"
    for what, entry in entries(record, "mutants"):
        yield f"* mutated {what}: {'; '.join(compared([entry]))}"


def main() -> None:
    """Write the document."""
    DOCUMENT.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
