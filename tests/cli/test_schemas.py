"""The published JSON Schemas are those of the documents as they are now."""

import json
from pathlib import Path

import pytest

from bubbleproof.cli.schemas import schemas

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"


def test_there_is_a_file_for_every_document_and_no_other():
    assert {path.stem for path in FOLDER.iterdir()} == set(schemas())


@pytest.mark.parametrize("name", sorted(schemas()))
def test_the_file_is_current(name):
    """If not: ``python -m bubbleproof.cli.schemas docs/schemas``."""
    assert (FOLDER / f"{name}.json").read_text() == schemas()[name]


def test_the_schema_of_an_instance_knows_the_keys_of_the_examples():
    schema = json.loads(schemas()["bubbleproof-instance-1"])
    cost = schema["$defs"]["CostTable"]
    assert {"F", "B", "W", "BW", "split", "comm", "channel", "overhead", "overlap_B", "overlap_BW", "R"} == set(
        cost["properties"]
    )
    assert cost["additionalProperties"] is False
    assert schema["$defs"]["InstanceDocument"]["properties"]["format"] == {"const": "bubbleproof-instance/1"}
