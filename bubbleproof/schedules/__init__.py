"""The language: ops, placements, costs, instances, schedules, timelines. Knows nothing else of this package."""
