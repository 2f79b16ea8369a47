"""The wheel: what it holds, and that the command line runs from it in a fresh environment."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def uv():
    found = os.environ.get("UV") or shutil.which("uv")
    assert found, "the tests are run with `uv run pytest`, so uv is there"
    return found


@pytest.fixture(scope="module")
def wheel(uv, tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    run(uv, "build", "--wheel", "--out-dir", str(out), str(ROOT))
    (found,) = out.glob("*.whl")
    return found


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert top == {"bubbleproof", f"bubbleproof-{wheel.name.split('-')[1]}.dist-info"}
    packed = {name for name in names if name.endswith(".py")}
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "bubbleproof").rglob("*.py")}
    assert packed == there
    assert "bubbleproof/py.typed" in names


def test_the_command_line_runs_from_the_installed_wheel(uv, wheel, tmp_path):
    home = tmp_path / "venv"
    run(uv, "venv", "--quiet", str(home))
    pins = ("--constraint", str(tmp_path / "pins.txt"))
    # the same versions as CI tests, without their hashes: those would have to cover the wheel as well
    lines = (line.split(" \\")[0] for line in (ROOT / "constraints.txt").read_text().splitlines())
    (tmp_path / "pins.txt").write_text("\n".join(line for line in lines if "==" in line and line[0] != " "))
    run(uv, "pip", "install", "--quiet", "--python", str(home), *pins, str(wheel))
    command = str(home / "bin" / "bubbleproof")
    assert run(command, "--version", cwd=tmp_path).startswith("bubbleproof 0.")
    example = ROOT / "examples" / "zb-1.5B-p8-m24.toml"
    solved = run(command, "solve", str(example), "--time-limit", "20", "-o", "out.json", cwd=tmp_path)
    assert "1310405" in solved.replace(",", "").replace(" ", "").replace("_", "")
    assert "PROVED" in run(command, "verify", "out.json", cwd=tmp_path)
