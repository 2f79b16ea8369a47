"""Start-up: judging a small file must be done before a numerical library has loaded."""

import subprocess
import sys

from bubbleproof.cli import main

SLOW = ["numpy", "networkx", "ortools", "msgspec", "typing_extensions", "tempfile", "fractions", "json", "tomllib"]
SLOW += [f"bubbleproof.verify.{name}" for name in ("program_judge", "exchange", "channels", "bulk", "certificate")]


def test_a_small_csv_is_judged_without_what_takes_long_to_import(tmp_path):
    schedule, path = tmp_path / "s.json", tmp_path / "s.csv"
    assert main(["families", "1f1b", "-o", str(schedule)]) == 0
    assert main(["export", str(schedule), "--to", "torch-csv", "-o", str(path)]) == 0
    program = (
        f"import sys\nfrom bubbleproof.cli import main\nassert main(['verify', {str(path)!r}]) == 0\n"
        f"print('loaded:', *(name for name in {SLOW!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stderr
