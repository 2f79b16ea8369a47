"""Provably optimal pipeline-parallel training schedules: solve, verify, export.

The three things most users need are importable from here; they load on first use, because importing a
solver costs seconds and checking a small file must not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bubbleproof.schedules.instance import Instance as Instance
    from bubbleproof.schedules.schedule import Schedule as Schedule
    from bubbleproof.solver import solve as solve
    from bubbleproof.verify import verify as verify

__all__ = ["Instance", "Schedule", "__version__", "solve", "verify"]

__version__ = "0.1.0"

_HOMES = {
    "Instance": "bubbleproof.schedules.instance",
    "Schedule": "bubbleproof.schedules.schedule",
    "solve": "bubbleproof.solver",
    "verify": "bubbleproof.verify",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    home = importlib.import_module(_HOMES[name])
    if _HOMES[name] == f"{__name__}.{name}":
        return home  # a package with the name of its function; it can be called
    value = getattr(home, name)
    globals()[name] = value
    return value
