"""The help of each verb, and the examples in it, which all run."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from bubbleproof import __version__
from bubbleproof.cli import VERBS, main

EXAMPLES = Path(__file__).parents[2] / "examples"


def commands(verb):
    epilog = importlib.import_module(f"bubbleproof.cli.{verb}_").EPILOG
    return re.findall(r"^  (bubbleproof .*)$", epilog, re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_shows_its_examples(verb, capsys):
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert len(commands(verb)) >= 2
    for command in commands(verb):
        assert command in out


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_in_the_help_run(verb, tmp_path, monkeypatch, capsys):
    """In the order shown, in one directory, each with its verb at least once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    lines = [shlex.split(command)[1:] for command in commands(verb)]
    assert any(line[0] == verb for line in lines)
    for line in lines:
        assert main(line) in ((0, 3) if line[0] in ("solve", "pareto") else (0,)), line
        assert capsys.readouterr().out or "-o" in line


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bubbleproof {__version__}\n"


def test_without_a_verb_the_verbs_are_listed(capsys):
    assert main([]) == 2
    out = capsys.readouterr().out
    for verb, summary in VERBS.items():
        assert verb in out
        assert summary[:40] in out
