"""Schedule files with anything in them: the answer is an exit code and one line or a report, never a traceback."""

import contextlib
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbleproof.cli import main
from bubbleproof.verify.certificate import RULES

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
INSTANCE = """\
format = "bubbleproof-instance/1"
microbatches = 3
objective = "span"
[placement]
kind = "vee"
ranks = 2
[cost]
F = 3
B = 4
W = 2
[memory]
cap = 6
"""


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """A folder with a solved schedule file, and its content."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "i.toml").write_text(INSTANCE)
    argv = ["solve", str(folder / "i.toml"), "--time-limit", "1", "--workers", "1", "-q", "-o", str(folder / "s.json")]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(argv) in (0, 3)
    return folder, json.loads((folder / "s.json").read_text())


def places(value, path=()):
    """The paths to all values inside a JSON document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in inner:
        yield from places(entry, (*path, key))


def put(document, path, value):
    if not path:
        return value
    copy = json.loads(json.dumps(document))
    target = copy
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return copy


@given(data=st.data())
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_schedule_file_with_any_value_anywhere_is_judged_or_refused(solved, data):
    folder, good = solved
    path = data.draw(st.sampled_from(sorted(places(good), key=lambda p: (len(p), str(p)))))
    changed = put(good, path, data.draw(JSON))
    (folder / "changed.json").write_text(json.dumps(changed), encoding="utf-8", errors="surrogatepass")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["verify", str(folder / "changed.json"), *data.draw(st.sampled_from([[], ["--json"]]))])
    if code == 2:
        assert err.getvalue().startswith("bubbleproof: error: ")
        assert err.getvalue().count("\n") == 1
    else:
        assert code in (0, 1)
        assert out.getvalue()


@given(
    st.lists(
        st.sampled_from(["rule", "objective", "value", "rank", "via", "windows"]).flatmap(
            lambda key: st.tuples(
                st.just(key),
                st.sampled_from([*RULES, "span", "makespan"])
                if key in ("rule", "objective")
                else st.lists(st.integers(-3, 10**20), max_size=3)
                if key == "windows"
                else st.integers(-(10**20), 10**20) | st.integers(-3, 5),
            )
        ),
        max_size=5,
    )
)
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_certificate_with_any_figures_is_judged(solved, changes):
    folder, good = solved
    certificate = {**good["record"]["certificate"], **dict(changes)}
    changed = put(good, ("record", "certificate"), certificate)
    (folder / "changed.json").write_text(json.dumps(changed))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["verify", str(folder / "changed.json")]) in (0, 1, 2)
