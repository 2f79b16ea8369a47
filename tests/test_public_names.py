"""The names that `bubbleproof` offers mean the same in whatever order a program imports them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def output_of(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import bubbleproof.verify",
        "from bubbleproof.verify import Verdict",
        "import bubbleproof.solver",
        "from bubbleproof import verify",
        "from bubbleproof.cli import main",
    ],
)
def test_names_that_do_something_can_be_called_whatever_was_imported_before(before):
    program = f"{before}\nfrom bubbleproof import NAMES\n"
    program += "import bubbleproof\nimport bubbleproof.verify as package\n"
    program += "assert callable(verify) and callable(solve) and callable(bubbleproof.verify)\n"
    program += "assert bubbleproof.verify is verify and package.Verdict.PROVED.value == 'PROVED'\n"
    for names in (["Instance", "solve", "verify"], ["verify", "solve", "Instance"]):
        output_of(program.replace("NAMES", ", ".join(names)))


def test_the_python_example_of_the_readme_runs():
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert output_of(example).split() == ["1310405", "1310405", "certified", "Verdict.PROVED"]
