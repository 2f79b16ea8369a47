"""``bubbleproof prove``: both statements, counterexamples with their picture, patterns in files."""

import json

import pytest

from bubbleproof.cli import main


def ran(capsys, *argv):
    code = main(list(argv))
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def test_a_family_is_proved_and_the_generator_is_bounded(capsys):
    code, out, _ = ran(capsys, "prove", "1f1b", "--ranks", "2", "--peak", "2")
    assert code == 0
    lines = out.splitlines()
    assert lines[:7] == [
        "1f1b on 2 ranks",
        "PROVED   for every m ≥ 2: the periodic schedule is complete, free of deadlock and within every cap",
        "  judged up to m = 4, from where the induction carries on; period 1",
        "  peaks of the ranks: 2, 1",
        "  rank 0  0F[0] {0F[b+1] 0BW[b]}×n 0BW[n]",
        "  rank 1  {1F[b] 1BW[b]}×n 1F[n] 1BW[n]",
        "BOUNDED  up to m = 64: 1f1b makes just these schedules; smaller m were judged one by one. A program's output "
        "for larger m cannot be proved from outside; the pattern, which -o writes, is.",
    ]


def test_memory_that_grows_is_told_and_breaks_a_cap_with_a_picture(capsys):
    code, out, _ = ran(capsys, "prove", "gpipe", "--ranks", "2")
    assert code == 0
    assert "peak of every rank: 1 + 1 for each microbatch more" in out
    code, out, _ = ran(capsys, "prove", "gpipe", "--ranks", "2", "--cap", "3")
    assert code == 1
    assert "VIOLATED for m = 4, the smallest m ≥ 1 whose schedule is wrong" in out
    assert "[0F3]" in out
    code, out, _ = ran(capsys, "prove", "gpipe", "--ranks", "2", "--cap", "300")
    assert code == 1
    assert "VIOLATED for m = 301, by the pattern the smallest; every m up to 64 was found right" in out


def test_a_cap_too_far_to_build_is_violated_by_the_pattern(capsys):
    code, out, _ = ran(capsys, "prove", "gpipe", "--ranks", "2", "--cap", "1000000000")
    assert code == 1
    assert "VIOLATED for m = 1000000001 of the periodic schedule" in out


def test_what_has_no_period_is_bounded_and_exits_with_3(capsys):
    code, out, _ = ran(capsys, "prove", "hanayo", "--ranks", "2")
    assert code == 3
    assert "no period was found, so nothing is known beyond m = 64" in out
    assert "no schedule is made for 63 m, such as m = 1" in out


def test_the_json_has_both_verdicts_and_the_pattern(capsys):
    code, out, _ = ran(capsys, "prove", "zb-h1", "--ranks", "2", "--json")
    answer = json.loads(out)
    assert (code, answer["verdict"], answer["generator"]) == (0, "PROVED", "BOUNDED")
    (found,) = answer["classes"]
    assert found["induction"]["from"] == 2
    assert found["induction"]["rows"][0] == "0F[0] {0F[b+1] 0B[b] 0W[b]}×n 0B[n] 0W[n]"
    code, out, _ = ran(capsys, "prove", "gpipe", "--ranks", "2", "--cap", "3", "--json")
    answer = json.loads(out)
    assert (code, answer["microbatches"], answer["report"]["verdict"]) == (1, 4, "VIOLATED")
    assert answer["orders"][0][:4] == ["0F0", "0F1", "0F2", "0F3"]


def test_a_pattern_file_is_proved_again_and_makes_schedules(capsys, tmp_path):
    file, made = str(tmp_path / "pattern.json"), str(tmp_path / "made.json")
    code, _, _ = ran(capsys, "prove", "interleaved-1f1b", "--ranks", "2", "--multiple-of", "2", "-o", file)
    assert code == 0
    code, out, _ = ran(capsys, "prove", file)
    assert code == 0
    assert out.startswith("PROVED   for every m = 4, 6, 8, …: complete, free of deadlock, within every cap\n")
    assert ran(capsys, "prove", file, "--make", "100", "-o", made)[0] == 0
    assert ran(capsys, "verify", made)[0] == 0
    code, out, _ = ran(capsys, "prove", file, "--cap", "4")
    assert code == 1
    assert out.startswith("VIOLATED for m = 4\n")
    code, out, _ = ran(capsys, "prove", file, "--json")
    assert json.loads(out)["period"] == 2


def test_a_generator_of_ones_own_is_imported(capsys, tmp_path, monkeypatch):
    (tmp_path / "mine_to_prove.py").write_text(
        "from bubbleproof.schedules.families import build\ndef good(instance):\n    return build('1f1b', instance)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = ran(capsys, "prove", "mine_to_prove:good", "--ranks", "3")
    assert code == 0
    assert "PROVED   for every m ≥ 3" in out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["1f1c"], "did you mean 1f1b"),
        (["nowhere:nothing"], "No module named 'nowhere'"),
        (["math:nothing"], "no attribute 'nothing'"),
        (["1f1b", "--make", "7"], "--make goes with a pattern file"),
        (["1f1b", "--cap", "0"], "one microbatch alone needs"),
        (["chimera", "--ranks", "4", "-o", "x.json"], "patterns of 2 classes"),
        (["hanayo", "--ranks", "2", "-o", "x.json"], "no pattern was proved"),
        (["missing.json"], "no such file"),
        (["PATTERN", "--ranks", "3"], "--ranks does not go with a pattern file"),
        (["PATTERN", "-o", "x.json"], "-o goes with a family"),
        (["PATTERN", "--make", "9"], "--make needs -o"),
        (["PATTERN", "--make", "1", "-o", "x.json"], "m = 1 is none of 2, 3, …"),
        (["BROKEN"], "0F[3b]"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(argv, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["prove", "1f1b", "--ranks", "2", "-o", "pattern.json"]) == 0
    text = (tmp_path / "pattern.json").read_text(encoding="utf-8")
    (tmp_path / "broken.json").write_text(text.replace("0F[b+1]", "0F[3b]"), encoding="utf-8")
    capsys.readouterr()
    argv = [{"PATTERN": "pattern.json", "BROKEN": "broken.json"}.get(word, word) for word in argv]
    code, _, err = ran(capsys, "prove", *argv)
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.fixture
def instance_file(tmp_path):
    from bubbleproof.schedules.costs import Costs, Memory
    from bubbleproof.schedules.families import FAMILIES
    from bubbleproof.schedules.formats.schedule_json import Document, save
    from bubbleproof.schedules.instance import Instance
    from bubbleproof.schedules.placement import linear

    costs, memory = Costs.make(4, F=3, B=4, W=2), Memory.make(4, 4, F=1, B=0, W=-1, cap=4)
    instance = Instance(linear(4), 8, costs, memory)
    save(tmp_path / "i.json", Document(FAMILIES["1f1b"].build(instance), instance))
    return str(tmp_path / "i.json")


def test_solve_for_any_number_of_microbatches_writes_a_pattern_that_prove_accepts(capsys, tmp_path, instance_file):
    out_file = str(tmp_path / "p.json")
    code, out, err = ran(
        capsys, "solve", instance_file, "--microbatches", "any", "--workers", "1", "--time-limit", "20", "-o", out_file
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[2] == "makespan T(m) and lower bound L(m), in units of time"
    assert lines[4].startswith("T(m) = 15 + 9·m for every m ≥ 4, from ")
    assert lines[5].startswith("L(m) = 15 + 9·m for every m ≥ ")
    assert lines[6] == "optimal for every m ≥ 4: certified"
    assert "per microbatch)" in err
    code, out, _ = ran(capsys, "prove", out_file)
    assert code == 0
    assert "makespan of the claimed times: 15 + 9·m" in out
    assert out.endswith("optimal for every m ≥ 4: certified\n")
    code, out, _ = ran(capsys, "prove", out_file, "--json")
    assert json.loads(out)["bound"]["optimal_from"] == 4


def test_verify_judges_a_pattern_for_every_number_of_microbatches(capsys, tmp_path, instance_file):
    out_file = tmp_path / "p.json"
    ran(capsys, "solve", instance_file, "--microbatches", "any", "-q", "--time-limit", "20", "-o", str(out_file))
    assert ran(capsys, "verify", str(out_file))[:2] == ran(capsys, "prove", str(out_file))[:2]
    assert ran(capsys, "verify", str(out_file), "--json")[:2] == ran(capsys, "prove", str(out_file), "--json")[:2]
    assert ran(capsys, "verify", str(out_file))[0] == 0
    code, out, _ = ran(capsys, "verify", str(out_file), "--cap", "3")
    assert code == 1
    assert "V301" in out
    code, _, err = ran(capsys, "verify", str(out_file), "--microbatches", "9")
    assert (code, "which holds for every m" in err) == (2, True)


@pytest.mark.parametrize(
    ("where", "by"), [("starts", -1), ("per_block", -1), ("per_block", 1), ("per_n", -1), ("per_n", 1)]
)
def test_times_that_are_claimed_too_short_or_drift_are_refused(capsys, tmp_path, instance_file, where, by):
    """Each of them is right for few blocks or none: the claim is for every n."""
    out_file = tmp_path / "p.json"
    ran(capsys, "solve", instance_file, "--microbatches", "any", "-q", "--time-limit", "20", "-o", str(out_file))
    document = json.loads(out_file.read_text())
    parts = document["rows"][1]
    segment = next(part for part in parts if ("per_n" if where == "per_n" else "per_block") in part)
    if where == "starts":
        segment["starts"][0] += by * 40
    else:
        segment[where] += by
    out_file.write_text(json.dumps(document))
    code, out, _ = ran(capsys, "verify", str(out_file))
    assert code == 1
    assert "claimed times: " in out


def test_a_bound_in_a_pattern_file_is_only_believed_if_its_rule_gives_it(capsys, tmp_path, instance_file):
    out_file = tmp_path / "p.json"
    ran(capsys, "solve", instance_file, "--microbatches", "any", "-q", "--time-limit", "20", "-o", str(out_file))
    document = json.loads(out_file.read_text())
    document["bound"] |= {"rule": "load", "rank": 0}
    out_file.write_text(json.dumps(document))
    assert "open: above the bound by at most " in ran(capsys, "prove", str(out_file))[1]
    document["bound"]["rule"] = "guess"
    out_file.write_text(json.dumps(document))
    assert "bound of the file: refused" in ran(capsys, "prove", str(out_file))[1]


def test_solve_for_any_number_as_data_and_with_a_class_per_file(capsys, tmp_path, instance_file):
    out_file = tmp_path / "p.json"
    options = ["--microbatches", "any", "--cap", "2", "--workers", "1", "--time-limit", "3", "-q", "--json"]
    code, out, _ = ran(capsys, "solve", instance_file, *options, "-o", str(out_file))
    assert code == 3
    classes = json.loads(out)["classes"]
    names = [f"p-{found['residue']}-mod-{found['modulus']}.json" for found in classes]
    assert len(names) > 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "i.json"])
    for name in names:
        code, out, _ = ran(capsys, "prove", str(tmp_path / name))
        assert code == 0
        assert "open: per microbatch" in out
