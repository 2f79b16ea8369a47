"""Mutation testing of the judge: ``python -m benchmarks.mutation bubbleproof/verify/rules/order.py …``.

Every mutant is one small change of a file: a comparison, a condition, a number, a statement left out. It is killed if a
test fails under it. The tools for Python that were tried leave decorated functions alone, and every rule is one.
Messages, docstrings and what a decorator says of a rule are not changed: the tests hold the rules, not the wording.

Each mutant runs in a process of its own that is forked after everything but the judge has been imported; the mutated
code is compiled in memory, so the work tree is never touched.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.machinery
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEDULES = ("test_rules.py", "test_report.py", "test_rule_details.py", "test_planted_faults.py")
PROGRAMS = ("test_program_rules.py", "test_rule_details.py", "test_corpus.py", "test_planted_comm_faults.py")
TESTS = {
    "completeness.py": SCHEDULES,
    "memory.py": SCHEDULES,
    "order.py": SCHEDULES,
    "timeline.py": SCHEDULES,
    "messages.py": PROGRAMS,
    "channel.py": PROGRAMS,
    "gradients.py": PROGRAMS,
    "buffers.py": PROGRAMS,
}
"""Which of the tests in tests/verify are run for the mutants of a file; all of them for any other file."""

SECONDS = 400
"""A mutant that takes longer is killed: it loops."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


def _same(tree: ast.Module, other: ast.Module, node: ast.AST) -> Any:
    """The node of a copied tree that stands where a node of the original does."""
    return next(b for a, b in zip(ast.walk(tree), ast.walk(other), strict=True) if a is node)


def _left_alone(tree: ast.Module) -> set[int]:
    """The nodes that only say something: decorators, docstrings, annotations, messages, pictures."""
    alone: set[int] = set()
    for node in ast.walk(tree):
        said: list[ast.AST] = []
        if isinstance(node, ast.FunctionDef):
            said += [*node.decorator_list, *([node.returns] if node.returns else [])]
        elif isinstance(node, ast.ClassDef):
            said += node.decorator_list
        elif isinstance(node, ast.AnnAssign | ast.arg):
            said += [node.annotation] if node.annotation else []
        elif isinstance(node, ast.JoinedStr):
            said.append(node)
        elif isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: it only guards
            said.append(node.value)
        for root in said:
            alone.update(id(inner) for inner in ast.walk(root))
    return alone


def _changes(tree: ast.Module) -> Iterator[tuple[Any, Any, str]]:
    alone = _left_alone(tree)
    for node in ast.walk(tree):
        if id(node) in alone:
            continue
        text = ast.unparse(node).splitlines()[0][:70] if isinstance(node, ast.expr | ast.stmt) else ""
        if isinstance(node, ast.Compare):
            for at, operator in enumerate(node.ops):
                for new in COMPARISONS[type(operator)]:
                    yield node, _setter("ops", at, new()), f"{text}: {type(operator).__name__} → {new.__name__}"
        elif isinstance(node, ast.BoolOp):
            new_bool = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield node, _setter("op", None, new_bool()), f"{text}: and ↔ or"
            for at in range(len(node.values)):
                yield node, _dropper(at), f"{text}: without part {at}"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, _negated, f"{text}: not dropped"
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            new_operator = ARITHMETIC[type(node.op)]
            yield (
                node,
                _setter("op", None, new_operator()),
                f"{text}: {type(node.op).__name__} → {new_operator.__name__}",
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, _setter("value", None, not node.value), f"{text} → {not node.value}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield node, _setter("value", None, node.value + 1), f"{text} → {node.value + 1}"
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node, _setter("test", None, ast.Constant(value=False)), f"{text}: condition False"
            if not isinstance(node, ast.While):
                yield node, _setter("test", None, ast.Constant(value=True)), f"{text}: condition True"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            other = CALLS[node.func.id]
            yield node, _setter("func", None, ast.Name(id=other, ctx=ast.Load())), f"{text}: {node.func.id} → {other}"
        elif isinstance(node, ast.Continue | ast.Break | ast.AugAssign) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.Call)
        ):
            yield node, "drop", f"{text} dropped"
        elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield node, _setter("value", None, ast.Constant(value=None)), f"{text} → None"
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for at, part in enumerate(node.generators):
                for number in range(len(part.ifs)):
                    yield node, _unfiltered(at, number), f"{text}: without if {ast.unparse(part.ifs[number])[:40]}"


def _setter(attribute: str, at: int | None, value: Any) -> Any:
    def change(node: Any) -> None:
        if at is None:
            setattr(node, attribute, value)
        else:
            getattr(node, attribute)[at] = value

    return change


def _dropper(at: int) -> Any:
    def change(node: Any) -> None:
        del node.values[at]
        if len(node.values) == 1:  # an `and` of one part is no syntax; the part twice is the part
            node.values.append(copy.deepcopy(node.values[0]))

    return change


def _negated(node: Any) -> None:
    node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)


def _unfiltered(at: int, number: int) -> Any:
    def change(node: Any) -> None:
        del node.generators[at].ifs[number]

    return change


def _drop(tree: ast.Module, node: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and node in block:
                gone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield)
                # what yields nothing must still be a generator
                block[block.index(node)] = ast.parse("yield from ()").body[0] if gone else ast.Pass()


def all_mutants(path: Path) -> list[tuple[int, str, Any]]:
    """(line, description, code) of every mutant of a file that compiles."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    found = []
    for node, change, description in _changes(tree):
        mutated = copy.deepcopy(tree)
        target = _same(tree, mutated, node)
        if change == "drop":
            _drop(mutated, target)
        else:
            change(target)
        ast.fix_missing_locations(mutated)
        found.append((node.lineno, description, compile(mutated, str(path), "exec")))
    return sorted(found, key=lambda mutant: mutant[0])


def tried(path: Path, code: Any, tests: list[str]) -> str:
    """What becomes of a mutant: survived, or killed and by which test."""
    with tempfile.TemporaryFile(mode="w+") as log:
        child = os.fork()
        if child == 0:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            signal.alarm(SECONDS)
            _install(path, code)
            import pytest

            # hypothesis is imported before pytest could have rewritten its assertions
            quiet = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
            os._exit(int(pytest.main([*quiet, "-W", "ignore::pytest.PytestAssertRewriteWarning", *tests])))
        _, status = os.waitpid(child, 0)
        log.seek(0)
        text = log.read()
    failed = next((line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    if os.WIFSIGNALED(status):
        return "killed: takes too long or dies"
    if os.WEXITSTATUS(status) == 0:
        return "survived"
    return f"killed: {failed[:160] or text[-160:]}"


def _install(path: Path, code: Any) -> None:
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        return code if Path(self.path).resolve() == path.resolve() else original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _results(log: Path | None) -> dict[tuple[str, int, str], str]:
    if log is None or not log.exists():
        return {}
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return {(line["file"], line["line"], line["mutant"]): line["result"] for line in lines}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--log", type=Path, help="append one JSON line for each mutant; those in it are not run again")
    parser.add_argument("--again", type=Path, help="run only the mutants that survived according to this log")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("--tests", nargs="*", help="run these tests instead")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", tempfile.mkdtemp())
    for name in ("pytest", "hypothesis", "hypothesis.strategies", "numpy", "networkx", "msgspec"):
        importlib.import_module(name)
    for name in ("instance", "program", "lower", "timeline", "formats.program_json", "formats.torch_comms"):
        importlib.import_module(f"bubbleproof.schedules.{name}")
    if "bubbleproof.verify" in sys.modules:
        raise SystemExit("the judge is imported before it is mutated")
    known = _results(arguments.log)
    # by their text alone: lines move when tests have led to a change of the file
    again = {(file, text) for (file, _, text), result in _results(arguments.again).items() if result == "survived"}
    killed = total = 0
    for path in arguments.files:
        names = TESTS.get(path.name, SCHEDULES + PROGRAMS)
        tests = arguments.tests or [f"tests/verify/{name}" for name in names]
        if not arguments.list:
            control = tried(path, compile(path.read_text(encoding="utf-8"), str(path), "exec"), tests)
            if control != "survived":
                raise SystemExit(f"the tests of {path} fail without a mutant: {control}")
        for line, description, code in all_mutants(path):
            if arguments.list:
                print(f"{path}:{line}: {description}")
                continue
            if arguments.again and (str(path), description) not in again:
                continue
            began = time.perf_counter()
            result = known.get((str(path), line, description)) or tried(path, code, tests)
            total += 1
            killed += result != "survived"
            if result == "survived":
                print(f"SURVIVED {path}:{line}: {description}", flush=True)
            if arguments.log and (str(path), line, description) not in known:
                entry = {"file": str(path), "line": line, "mutant": description, "result": result}
                with arguments.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**entry, "seconds": round(time.perf_counter() - began, 1)}) + "\n")
    if total:
        print(f"{killed} of {total} mutants killed: {killed / total:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
