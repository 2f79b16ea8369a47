"""Large files are judged by arrays, with the same words as small ones."""

import json

import pytest

from bubbleproof.cli import large, main

CASES = {
    "a.csv": "0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n",
    "pairs.csv": "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0I1,0W1,0B2\r\n1F0,1B0,1F1,1B1,1F2,1B2\r\n",
    "blanks.csv": "0F0, 0F1 ,0B0,0B1\n1F0,1B0,1F1,1B1\n",
    "missing.csv": "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n",
    "deadlock.csv": "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
    "two-ranks.csv": "0F0,0B0,1F0\n1F0,1B0\n",
    "no-stage.csv": "0F0,0B0\n2F0,2B0\n",
    "garbage.csv": "0F0,0B0\n1F0,hello\n",
    "huge-number.csv": "0F0,0B0\n1F0,1B999999999\n",
}


@pytest.fixture
def both(tmp_path, monkeypatch, capsys):
    """Verify a file under its name, by objects and by arrays; returns both results and whether arrays were used."""

    def run(name, text, *options):
        path = tmp_path / name
        path.write_text(text)
        results = []
        used = []
        judge = large.judge_large
        for limit in (1 << 60, 0):
            monkeypatch.setattr(large, "LARGE", limit)

            def watched(*arguments):
                found = judge(*arguments)
                used.append(found is not None)
                return found

            monkeypatch.setattr(large, "judge_large", watched)
            for form in ([], ["--json"]):
                code = main(["verify", str(path), *form, *options])
                captured = capsys.readouterr()
                results.append((code, captured.out, captured.err))
            monkeypatch.setattr(large, "judge_large", judge)
        assert used[:2] == [False, False]
        return results[:2], results[2:], used[-1]

    return run


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "options", [(), ("--cap", "1"), ("--placement", "0,1", "--cost", "F=2,B=3,W=1"), ("--ranks", "3")]
)
def test_a_csv_is_judged_with_the_same_words(both, name, options):
    small, big, used = both(name, CASES[name], *options)
    assert small == big
    assert used or name in ("blanks.csv", "garbage.csv", "two-ranks.csv", "no-stage.csv", "huge-number.csv") or options


@pytest.mark.parametrize("family", ["1f1b", "dualpipe", "zb-v"])
def test_a_schedule_file_is_judged_with_the_same_words(both, tmp_path, capsys, family):
    main(["families", family, "--ranks", "4", "--microbatches", "8", "-o", str(tmp_path / "s.json")])
    capsys.readouterr()
    text = (tmp_path / "s.json").read_text()
    if '"starts"' in text:
        pytest.skip("claims times")
    small, big, used = both("s.json", text)
    assert small == big
    assert used
    assert small[0][0] == 0


def documents():
    """Schedule files in which the rows are not where they seem to be, and some that claim more than rows."""
    instance = {
        "format": "bubbleproof-instance/1",
        "microbatches": 1,
        "placement": {"kind": "linear", "ranks": 1},
        "cost": {"F": 1, "B": 1},
    }
    good = {"format": "bubbleproof-schedule/1", "instance": instance, "orders": [["0F0", "0BW0"]]}
    pack = {"separators": (",", ":")}
    yield "plain", json.dumps(good, **pack), True
    yield "blanks", json.dumps(good), False
    yield "starts", json.dumps(good | {"starts": [[0, 1]]}, **pack), False
    yield "name", json.dumps(good | {"name": '"orders":[["0F0"]]'}, **pack), True
    yield "record", json.dumps({"record": {"orders": [["0F0"]]}} | good, **pack), False
    empty = json.dumps(good | {"orders": []}, **pack)
    yield "nested", empty.replace('"orders":[]', '"\\u006frders":[],"record":{"orders":[["0F0","0BW0"]]}'), False
    yield "transfers", json.dumps(good | {"orders": [["0F0", "0SEND_F0", "0BW0"]]}, **pack), False
    yield "unknown key", json.dumps(good | {"colour": 1}, **pack), False
    yield "escaped", json.dumps(good, **pack).replace("0F0", "\\u0030F0"), False
    yield "cut", json.dumps(good, **pack)[:-1], False


@pytest.mark.parametrize(("text", "plain"), [pytest.param(text, plain, id=name) for name, text, plain in documents()])
def test_rows_that_are_not_plainly_those_of_the_schedule_are_read_as_ever(both, text, plain):
    small, big, used = both("s.json", text)
    assert small == big
    assert used == plain


def test_a_missing_file_is_reported_as_ever(capsys, monkeypatch):
    monkeypatch.setattr(large, "LARGE", 0)
    assert main(["verify", "nowhere.csv"]) == 2
    assert "no such file" in capsys.readouterr().err


PROGRAMS = {
    "good": "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n",
    "swapped": (
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n"
    ),
    "idle cell": "0F0,0SEND_F0,,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
    "two ranks": "0F0,0B0,1F0\n1F0,1B0,1SEND_B0\n",
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize(
    "options",
    [(), ("--channel", "batched"), ("--channel", "rendezvous-rank", "--target", "torch"), ("--message-memory", "1")],
    ids=" ".join,
)
def test_a_program_has_the_verdict_figures_and_violations_that_it_has_as_a_small_one(
    tmp_path, capsys, monkeypatch, text, options
):
    path = tmp_path / "p.csv"
    path.write_text(text)
    found = []
    for limit in (1 << 60, 0):
        monkeypatch.setattr(large, "LARGE", limit)
        code = main(["verify", str(path), "--json", *options])
        captured = capsys.readouterr()
        report = json.loads(captured.out) if captured.out else {}
        for key in ("assumptions", "order", "advice"):  # arrays look for no advice and keep no certificate
            report.pop(key, None)
        found.append((code, report, captured.err))
    assert found[0] == found[1]
