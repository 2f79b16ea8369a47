"""The strategies that the package offers to others are the ones its own tests use."""

from bubbleproof.verify.strategies import (
    instances,
    instances_with_schedules,
    near_valid_schedules,
    placements,
    schedules,
)

__all__ = ["instances", "instances_with_schedules", "near_valid_schedules", "placements", "schedules"]
