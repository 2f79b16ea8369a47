"""Instances as TOML: what is read, what is refused and how, and that writing loses nothing."""

import contextlib
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbleproof.schedules.errors import BubbleproofError, FormatError, InstanceError
from bubbleproof.schedules.formats import instance_toml
from bubbleproof.schedules.instance import Instance, Units
from tests.strategies import instances

GOOD = """\
format = "bubbleproof-instance/1"
name = "two ranks"
microbatches = 3
objective = "span"
units = { time = "us", memory = "MB" }

[placement]
kind = "linear"
ranks = 2

[cost]
F = 10
B = [9, 8]
W = 7
comm = { "0-1" = 2 }

[memory]
F = 4
B = -1
static = [5, 6]
cap = 14
"""


def test_a_complete_file_is_read_key_by_key():
    instance = instance_toml.loads(GOOD)
    assert (instance.name, instance.microbatches, instance.objective) == ("two ranks", 3, "span")
    assert instance.units == Units("us", "MB")
    assert instance.placement.routes == ((0, 1),)
    assert (instance.costs.F, instance.costs.B, instance.costs.W, instance.costs.BW) == (
        (10, 10),
        (9, 8),
        (7, 7),
        (16, 15),
    )
    assert instance.costs.split
    assert (instance.costs.message(0, 1), instance.costs.message(1, 0)) == (2, 2)
    assert (instance.memory.W, instance.memory.static, instance.memory.cap) == ((-3, -3), (5, 6), (14, 14))


def test_without_w_the_backward_is_fused_and_b_is_all_of_it():
    instance = instance_toml.loads(GOOD.replace("W = 7\n", ""))
    assert not instance.costs.split
    assert instance.costs.BW == (9, 8)


@pytest.mark.parametrize(
    ("table", "routes"),
    [
        ('kind = "loop"\nranks = 2\nchunks = 2', ((0, 1, 0, 1),)),
        ('kind = "wave"\nranks = 2\nchunks = 3', ((0, 1, 1, 0, 0, 1),)),
        ('kind = "vee"\nranks = 2', ((0, 1, 1, 0),)),
        ('kind = "custom"\nrank_of_stage = [1, 0, 0]', ((1, 0, 0),)),
        ('kind = "bidirectional"\nranks = 2', ((0, 1), (1, 0))),
        ('kind = "custom"\nrank_of_stage = [[0, 1], [1, 0]]', ((0, 1), (1, 0))),
    ],
)
def test_every_kind_of_placement_is_read(table, routes):
    text = f'format = "bubbleproof-instance/1"\nmicrobatches = 2\n[placement]\n{table}\n[cost]\nF = 1\nB = 1\n'
    assert instance_toml.loads(text).placement.routes == routes


@pytest.mark.parametrize(
    ("given", "routes"), [('"halves"', (0, 0, 1)), ('"alternate"', (0, 1, 0)), ("[1, 0, 1]", (1, 0, 1))]
)
def test_the_routes_of_the_microbatches_are_a_word_or_a_list(given, routes):
    table = f'[placement]\nkind = "bidirectional"\nranks = 2\nroute_of_microbatch = {given}\n'
    text = f'format = "bubbleproof-instance/1"\nmicrobatches = 3\n{table}[cost]\nF = 1\nB = 1\n'
    assert instance_toml.loads(text).route_of_microbatch == routes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("F = 10", "f = 10", "unknown key cost.f; did you mean F?"),
        ("microbatches", "microbatch", "unknown key microbatch; did you mean microbatches?"),
        ("[cost]", "[costs]", "unknown key costs; did you mean cost?"),
        ("static", "statik", "unknown key memory.statik; did you mean static?"),
        ("F = 10", "F = 1.5", "cost.F = 1.5: expected an integer or a list, not a number with a fraction"),
        ("F = 10", "F = true", "cost.F = true: expected an integer or a list, not true or false"),
        ("F = 10", "F = -3", "cost.F = -3: expected an integer ≥ 0"),
        ("F = 10", 'F = "10"', "cost.F = 10: expected an integer or a list, not a text"),
        ("F = 10", "F = 1979-05-27", "cost.F = 1979-05-27: expected an integer or a list, not a date"),
        ("F = 10", "F = [1, 2, 3]", "cost.F has 3 entries for 2 stages; give one number or one per stage"),
        ("F = 10", "F = [1, -2]", "cost.F[1] = -2: expected an integer ≥ 0"),
        ("F = 10", "F = 1000000000001", "cost.F = 1000000000001 is beyond the limit of 1000000000000"),
        ("F = 10\n", "", "the key cost.F is missing"),
        ("F = 10", "F = 1x", "not TOML: "),
        ("= 3", "= 0", "microbatches = 0: expected an integer ≥ 1"),
        ("= 3", "= 700000", "microbatches × stages = 700000 × 2 = 1400000 is beyond the limit of 1000000"),
        ("ranks = 2", "ranks = 0", "placement.ranks = 0: expected an integer ≥ 1"),
        ("ranks = 2", "ranks = 1000000000", "beyond the limit of 100000 stages"),
        ("ranks = 2", "ranks = 2\nchunks = 3", 'placement.chunks = 3, but placement.kind = "linear" has 1'),
        ('"linear"', '"liner"', "placement.kind = liner: none of linear, loop, vee, wave, bidirectional, custom"),
        ('"linear"', '"loop"', "placement.chunks is missing"),
        ('"linear"', '"custom"', "placement.rank_of_stage is missing"),
        ('kind = "linear"', 'kind = "custom"\nrank_of_stage = [0]', "rank"),
        ('kind = "linear"\nranks = 2', 'kind = "custom"\nrank_of_stage = [0, 2]', "rank"),
        ('kind = "linear"\nranks = 2', 'kind = "custom"\nrank_of_stage = [0, 900000000]', "rank"),
        ('"span"', '"spam"', "objective = spam: none of makespan, span"),
        ("cap = 14", "cap = 9", "memory.cap of rank 1 = 9 MB, but one microbatch alone needs 10 MB there"),
        ("cap = 14", "cap = [14]", "memory.cap has 1 entries for 2 ranks"),
        ("B = -1", "B = -1\nW = -9", "a microbatch must leave nothing"),
        ('"0-1" = 2', '"0-7" = 2', 'cost.comm."0-7"'),
        ('"0-1" = 2', '"a-b" = 2', "'a-b' is no edge"),
        ('"0-1" = 2', '"0-1" = -2', 'cost.comm."0-1" = -2: expected an integer ≥ 0'),
        ('"two ranks"', '"\\u001b[31m"', "name = '\\x1b[31m': control characters are not allowed"),
        ("instance/1", "instance/9", "format = 'bubbleproof-instance/9'; this version reads 'bubbleproof-instance/1'"),
        ('format = "bubbleproof-instance/1"\n', "", "the key format is missing"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_key_and_value(old, new, message):
    assert old in GOOD
    with pytest.raises(BubbleproofError) as caught:
        instance_toml.loads(GOOD.replace(old, new, 1), "my.toml")
    assert str(caught.value).startswith("my.toml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_syntax_error_names_line_and_column():
    with pytest.raises(BubbleproofError, match=r"my.toml: not TOML: .*line 12, column"):
        instance_toml.loads(GOOD.replace("F = 10", "F = = 10"), "my.toml")


def test_a_byte_order_mark_is_named():
    with pytest.raises(BubbleproofError, match="byte order mark"):
        instance_toml.loads("\ufeff" + GOOD)


@pytest.mark.parametrize("value", ["[" * 50_000, "9" * 5_000])
def test_values_that_break_the_parser_are_errors_of_the_user(value):
    with pytest.raises(BubbleproofError, match="not TOML that can be read"):
        instance_toml.loads(GOOD.replace("F = 10", f"F = {value}"))


@given(instances(), st.text(st.characters(categories=("L", "N", "P", "Zs")), max_size=12))
def test_writing_and_reading_gives_an_equal_instance(instance, name):
    instance = instance.with_(name=name if name.isprintable() else "", units=Units("µs", 'a"b'))
    assert instance_toml.loads(instance_toml.dumps(instance)) == instance


@given(instances())
def test_equal_instances_give_equal_text(instance):
    text = instance_toml.dumps(instance)
    assert instance_toml.dumps(instance_toml.loads(text)) == text


_LINES = st.lists(
    st.sampled_from([*GOOD.splitlines(), "F = [1, [2]]", "W = {}", "[cost.F]", "comm = 3", "ranks = 3", "chunks = 2"]),
    max_size=20,
)


@given(_LINES.map("\n".join) | st.text(max_size=200) | st.text(max_size=30).map(lambda t: GOOD + t))
@settings(max_examples=300)
def test_whatever_the_text_only_our_errors_leave_the_reader(text):
    with contextlib.suppress(BubbleproofError):
        assert isinstance(instance_toml.loads(text), Instance)


@given(st.binary(max_size=200))
def test_whatever_the_bytes_only_our_errors_leave_the_reader(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("bytes") / "f.toml"
    path.write_bytes(data)
    with pytest.raises(BubbleproofError):
        Instance.load(path)


def test_a_key_of_very_many_parts_is_refused_before_it_takes_memory():
    text = 'format = "bubbleproof-instance/1"\nmicrobatches' + ".a" * 20_000 + " = 1\n"
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"^f: line 2: a key of more than 50 parts"):
            instance_toml.loads(text, "f")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["a" * 300_000, "a." * 100_000 + "=", '"' * 200_000, ". " * 100_000, "1.5," * 50_000])
def test_the_search_for_such_keys_is_quick(text):
    before = time.process_time()
    with pytest.raises(FormatError):
        instance_toml.loads("x = [" + text, "f")
    assert time.process_time() - before < 5


def test_a_name_with_dots_is_read():
    assert instance_toml.loads(GOOD.replace("two ranks", "v1." * 40)).name == "v1." * 40


UNEQUAL = """
format = "bubbleproof-instance/1"
microbatches = 2
[placement]
kind = "linear"
ranks = 2
[cost]
F = [3, [1, 2]]
B = [[1, 1], 4]
W = 2
overhead = 5
[memory]
F = [[4, 2], 3]
B = [[-3, -1], 1]
"""


def test_a_figure_per_microbatch_may_stand_for_that_of_a_stage():
    instance = instance_toml.loads(UNEQUAL)
    costs, memory = instance.costs, instance.memory
    assert [[costs.of("F", s, j) for j in (0, 1)] for s in (0, 1)] == [[8, 8], [6, 7]]
    assert [[costs.of("BW", s, j) for j in (0, 1)] for s in (0, 1)] == [[8, 8], [11, 11]]
    assert [[memory.of("W", s, j) for j in (0, 1)] for s in (0, 1)] == [[-1, -1], [-4, -4]]
    assert costs.F == (3, 1)


def test_figures_per_microbatch_and_the_overhead_survive_writing():
    instance = instance_toml.loads(UNEQUAL)
    text = instance_toml.dumps(instance)
    assert instance_toml.loads(text) == instance
    assert "F = [3, [1, 2]]" in text
    assert "overhead = 5" in text


def test_figures_for_another_number_of_microbatches_are_refused():
    with pytest.raises(InstanceError, match="cost is given for each of 2 microbatches, but there are 3"):
        instance_toml.loads(UNEQUAL.replace("microbatches = 2", "microbatches = 3"))
