"""The command line. Each verb is a module; what a verb needs is imported when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from bubbleproof.schedules.errors import BubbleproofError

__all__ = ["VERBS", "build_parser", "main"]

VERBS = {
    "solve": "find the best schedule of an instance, and prove how good it is",
    "pareto": "the best objective under every memory cap, and how good it is",
    "verify": "prove that a schedule is complete, cannot deadlock and fits its memory, or show why not",
    "prove": "prove a family or a generator of yours right for every number of microbatches",
    "repair": "make a schedule safe that hangs or crosses messages, by the smallest change",
    "show": "draw a schedule in the terminal or as SVG",
    "compare": "families and schedules side by side on one instance",
    "families": "list the published schedule families, or build one",
    "export": "write a schedule for a runtime or a viewer",
    "import": "read a schedule written for a runtime",
}

_EPILOG = """\
exit codes: 0 holds or solved, 1 violated, 2 bad input, 3 not proved within the time (the best so far is kept)

start with:
  bubbleproof solve examples/zb-1.5B-p8-m24.toml --time-limit 20
  bubbleproof families
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others of this program."""

    def error(self, message: str) -> NoReturn:
        raise BubbleproofError(f"{message}; see {self.prog} --help")


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of a command line of some words: the options of each verb that is among them."""
    parser = _Parser(
        prog="bubbleproof",
        description="Provably optimal pipeline-parallel training schedules.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)
    for name, summary in VERBS.items():
        if name not in words:  # another verb is asked for, or none
            verbs.add_parser(name, help=summary)
            continue
        module = importlib.import_module(f"bubbleproof.cli.{name}_")
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.configure(verb)
        verb.add_argument("--json", action="store_true", help="print the result as JSON")
        verb.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    from bubbleproof.cli.output import emit, prepare

    prepare()
    try:
        words = sys.argv[1:] if argv is None else argv
        parser = build_parser(words)
        arguments = parser.parse_args(words)
        if arguments.version:
            from bubbleproof import __version__

            emit(f"bubbleproof {__version__}\n")
            return 0
        if arguments.verb is None:
            emit(parser.format_help())
            return 2
        return int(arguments.run(arguments))
    except BubbleproofError as error:
        print(f"bubbleproof: error: {_one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bubbleproof: interrupted", file=sys.stderr)
        return 3


def _one_line(error: BubbleproofError) -> str:
    """The message without line breaks and control characters that came from the user's files."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in str(error))
