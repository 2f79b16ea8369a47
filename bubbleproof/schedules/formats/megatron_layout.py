"""Megatron-core: which layers each stage holds, as its pipeline layout string and as its split flags.

A layout is one word per stage, bars between them: ``E`` embedding, ``t`` decoder layer, ``m`` layer that predicts more
tokens, ``L`` loss; ``t*6`` and ``(t*6|)*2`` are repetitions and commas mean nothing. Stage i is chunk ⌊i/p⌋ of rank
i mod p. Source: ``PipelineParallelLayerLayout`` of Megatron-core 0.16.1, read and run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from bubbleproof.schedules.errors import FormatError

__all__ = ["MAX_LETTERS", "dumps", "gaps", "layers_of", "layout_of", "loads", "refuse", "split_flags"]

MAX_LETTERS = 100_000
"""Letters of an expanded layout that are accepted."""

_LETTERS = {"E": "embedding", "t": "decoder layer", "m": "multi-token prediction layer", "L": "loss"}
_GROUP = re.compile(r"\(([^)]+)\)\*([0-9]+)")
_SINGLE = re.compile(r"(.)\*([0-9]+)")


def loads(text: str, where: str = "layout") -> tuple[str, ...]:
    """The word of each stage, as Megatron expands the text: groups first, then single letters.

    Raises
    ------
    FormatError
        A letter that Megatron does not know, or an expansion beyond the limit.
    """
    plain = text.replace(",", "")
    for pattern in (_GROUP, _SINGLE):
        length = len(plain) + sum(len(found[1]) * int(found[2][:9]) for found in pattern.finditer(plain))
        if length > MAX_LETTERS:
            raise FormatError(f"{where}: more than {MAX_LETTERS} letters when expanded")
        plain = pattern.sub(lambda found: found[1] * int(found[2]), plain)
    words = tuple(plain.split("|"))
    for stage, word in enumerate(words):
        for letter in word:
            if letter not in _LETTERS:
                raise FormatError(f"{where}: {letter!r} in stage {stage}; there are E, t, m, L, |, and (…)*n or t*n")
    return words


def dumps(words: Sequence[str]) -> str:
    """The short text of a layout; `loads` reads the same words from it."""
    text = [_runs(words[0])]
    middle = [(word, len(list(same))) for word, same in groupby(words[1:-1])]
    joint = "|"
    for word, count in middle:
        short = _runs(word)
        # a group ends in a bar of its own, which is the one before what follows
        text.append(f"{joint}({short}|)*{count}" if count > 1 else f"{joint}{short}")
        joint = "" if count > 1 else "|"
    if len(words) > 1:
        text.append(joint + _runs(words[-1]))
    return "".join(text)


def _runs(word: str) -> str:
    runs = [(letter, len(list(same))) for letter, same in groupby(word)]
    return "".join(letter if count == 1 else f"{letter}*{count}" for letter, count in runs)


def layout_of(layers: Sequence[int]) -> tuple[str, ...]:
    """The words of stages with so many decoder layers: embedding in the first stage, loss in the last.

    Raises
    ------
    FormatError
        No stage, or a number below zero.
    """
    if not layers or min(layers) < 0:
        raise FormatError("a layout has at least one stage, and none has a negative number of layers")
    words = ["t" * count for count in layers]
    words[0] = "E" + words[0]
    words[-1] += "L"
    return tuple(words)


def layers_of(words: Sequence[str]) -> tuple[int, ...]:
    """Decoder layers of each stage."""
    return tuple(word.count("t") for word in words)


def refuse(words: Sequence[str], ranks: int, *, layers: int | None = None, extra: int | None = None) -> None:
    """Refuse what Megatron's own validation refuses.

    Parameters
    ----------
    layers, extra
        The model's number of decoder layers and of layers that predict more tokens; left out, not compared.

    Raises
    ------
    FormatError
        With Megatron's rule.
    """
    stages = len(words)
    if stages % ranks:
        raise FormatError(f"{stages} stages in the layout; Megatron wants a multiple of {ranks} ranks")
    flat = "".join(words)
    if not flat.startswith("E") or flat.count("E") != 1:
        raise FormatError("Megatron wants exactly one E, before all other letters of the layout")
    if not flat.endswith("L") or flat.count("L") != 1:
        raise FormatError("Megatron wants exactly one L, after all other letters of the layout")
    for letter, want in (("t", layers), ("m", extra)):
        if want is not None and flat.count(letter) != want:
            raise FormatError(f"{flat.count(letter)} × {letter} in the layout, but the model has {want}")
    holding = [stage for stage, word in enumerate(words) if "m" in word]
    if holding:
        if "t" in flat[flat.index("m") :]:
            raise FormatError("Megatron wants every t before the first m")
        if len(holding) > 1:
            raise FormatError(f"m in stages {holding}; Megatron wants all of them in one")
        if holding[0] < stages - ranks:
            raise FormatError(f"m in stage {holding[0]}; Megatron wants it in the last chunk of its rank")


def gaps(words: Sequence[str]) -> tuple[str, ...]:
    """What Megatron's validation accepts in this layout and should not, one sentence each.

    Megatron builds the embedding on the first stage and the loss on the last whatever the letters say, and looks only
    for their place among all letters.
    """
    found = []
    if "E" not in words[0]:
        found.append("E is not in the first stage, where Megatron builds the embedding all the same")
    if "L" not in words[-1]:
        found.append("L is not in the last stage, where Megatron builds the loss all the same")
    empty = [stage for stage, word in enumerate(words) if not word]
    if empty:
        found.append(f"stages {', '.join(map(str, empty[:8]))} hold nothing")
    return tuple(found)


def split_flags(layers: Sequence[int], ranks: int) -> list[str]:
    """The flags with which Megatron splits a model into stages with so many decoder layers; a layout if need be.

    Raises
    ------
    FormatError
        Not the same number of stages on each rank, or an inner stage without layers.
    """
    stages = len(layers)
    if stages % ranks:
        raise FormatError(f"{stages} stages on {ranks} ranks; Megatron has the same number on each")
    if 0 in layers[1:-1]:
        raise FormatError(f"stage {layers.index(0, 1)} holds nothing; Megatron builds it, and users report hangs")
    chunks = stages // ranks
    flags = ["--num-layers", str(sum(layers))]
    if chunks > 1:
        flags += ["--num-virtual-stages-per-pipeline-rank", str(chunks)]
    first, last, inner = layers[0], layers[-1], set(layers[1:-1])
    each = max(layers)
    if len(inner | {each}) == 1 and stages > 1 and first >= each - 1 and last >= each - 1:
        if first < each:
            flags.append("--account-for-embedding-in-pipeline-split")
        if last < each:
            flags.append("--account-for-loss-in-pipeline-split")
        return flags
    if chunks == 1 and len(inner) == 1:
        first_flag = ["--decoder-first-pipeline-num-layers", str(first)]
        return [*flags, *first_flag, "--decoder-last-pipeline-num-layers", str(last)]
    return ["--num-layers", str(sum(layers)), "--pipeline-model-parallel-layout", dumps(layout_of(layers))]
