"""Published schedule families: each a pure function from an instance to a schedule.

`FAMILIES` names them all; `build` makes a schedule by name. Orders do not depend on the costs of the instance: families
that the literature builds from times (ZB-V, V-Half, V-Min) are built for unit times, as their docstrings say.
"""

from __future__ import annotations

from bubbleproof.schedules.errors import FamilyError
from bubbleproof.schedules.families.dualpipe import DUALPIPE, DUALPIPEV
from bubbleproof.schedules.families.family import Family
from bubbleproof.schedules.families.gpipe import GPIPE
from bubbleproof.schedules.families.interleaved import INTERLEAVED_ONE_F_ONE_B, INTERLEAVED_ZB
from bubbleproof.schedules.families.looped_bfs import LOOPED_BFS
from bubbleproof.schedules.families.naive import NAIVE
from bubbleproof.schedules.families.one_f_one_b import EAGER_ONE_F_ONE_B, ONE_F_ONE_B
from bubbleproof.schedules.families.slotted import CHIMERA, HANAYO
from bubbleproof.schedules.families.v_shape import V_HALF, V_MIN
from bubbleproof.schedules.families.zb_v import ZB_V
from bubbleproof.schedules.families.zero_bubble import ZB_H1, ZB_H2
from bubbleproof.schedules.instance import Instance
from bubbleproof.schedules.schedule import Schedule

__all__ = ["FAMILIES", "Family", "build", "get"]

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        NAIVE,
        GPIPE,
        ONE_F_ONE_B,
        EAGER_ONE_F_ONE_B,
        INTERLEAVED_ONE_F_ONE_B,
        LOOPED_BFS,
        ZB_H1,
        ZB_H2,
        ZB_V,
        V_HALF,
        V_MIN,
        INTERLEAVED_ZB,
        CHIMERA,
        HANAYO,
        DUALPIPE,
        DUALPIPEV,
    )
}
"""Every family by name, from the simplest to the most elaborate."""


def get(name: str) -> Family:
    """A family by name.

    Raises
    ------
    FamilyError
        There is no family of that name; the message gives the nearest one.
    """
    if name in FAMILIES:
        return FAMILIES[name]
    from difflib import get_close_matches  # only for this message

    near = get_close_matches(name.lower().replace("_", "-"), FAMILIES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(FAMILIES)}"
    raise FamilyError(f"there is no schedule family {name!r}; {hint}")


def build(name: str, instance: Instance, **options: int) -> Schedule:
    """The schedule of the named family for an instance.

    Parameters
    ----------
    options
        Integers that the family takes besides the instance, such as ``group`` of the interleaved families.

    Raises
    ------
    FamilyError
        There is no such family or option, or the instance does not meet the family's preconditions.
    """
    return get(name).build(instance, **options)
