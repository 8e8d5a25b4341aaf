"""Registrations as the SPANK plugin writes them, and everything that is none."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from ladon_slurm.parse.cgroup import StepRef
from ladon_slurm.parse.step_file import Registration, StepFileError, Task, parse, run_of_ref

BOOT = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
FULL = f"""ladon-step 1
job 42
step 0
uid 1000
pid 31337
start 123456
boot {BOOT}
nodelist n[1-2]
env_job 42
het_offset 0
gpus 0,1
gpus_from step
ntasks 2
option cancel,window=10m
option_from srun
sluid sAB12CD34EF567
a_key_of_a_later_version whatever
task 0 31400 123460
task 1 31401 123461
"""
LEAST = f"ladon-step 1\njob 42\nstep 4294967291\nuid 0\npid 31337\nstart 5\nboot {BOOT}\n"


def test_all_keys():
    r = parse(FULL)
    assert r.tasks == [Task(0, 31400, 123460), Task(1, 31401, 123461)]
    assert (r.id, r.run, r.file) == ("42.0", f"{BOOT}:31337:123456", "42.0.31337")
    assert (r.nodelist, r.gpus, r.option, r.ntasks, r.het_offset) == (
        "n[1-2]",
        "0,1",
        "cancel,window=10m",
        2,
        0,
    )


def test_what_is_left_out_is_not_known():
    r = parse(LEAST)
    assert (r.nodelist, r.gpus, r.option, r.ntasks, r.sluid, r.het_offset) == (None,) * 6
    assert r.tasks == []


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        (4294967291, "42.batch"),
        (4294967292, "42.extern"),
        (4294967290, "42.interactive"),
        (4294967280, "42.4294967280"),
    ],
)
def test_S17_special_step_ids(step, shown):
    r = parse(LEAST.replace("4294967291", str(step)))
    assert r.id == shown
    assert (r.special is None) == (step <= 0xFFFFFFF0)


@pytest.mark.parametrize("step", [0xFFFFFFF1, 0xFFFFFFF9, 0xFFFFFFFD, 0xFFFFFFFE, 0xFFFFFFFF])
def test_S17_no_step_between_the_numbered_and_the_special_nor_NO_VAL(step):
    with pytest.raises(StepFileError, match="no such step id"):
        parse(LEAST.replace("4294967291", str(step)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a step file"),
        ("job 42\n", "not a step file"),
        (FULL.replace("ladon-step 1", "ladon-step 2"), "unknown format version"),
        (FULL.replace("job 42\n", "", 1), "a needed key is missing"),
        (FULL.replace("job 42\n", "job 42\njob 43\n", 1), "key given twice"),
        (FULL.replace("job 42", "job 4294967296", 1), "number out of bounds"),
        (FULL.replace("job 42", "job -1", 1), "number out of bounds"),
        (FULL.replace("job 42", "job 042", 1), "number out of bounds"),
        (FULL.replace("job 42", "job ٤٢", 1), "number out of bounds"),
        (FULL.replace("pid 31337", "pid 1"), "number out of bounds"),
        (FULL.replace("step 0\n", "step 4294967293\n"), "no such step id"),  # S17: pending
        (FULL.replace(BOOT, "yesterday"), "malformed boot id"),
        (FULL.replace("gpus 0,1", "gpus 0\x1b[2J"), "unprintable or empty value"),
        (FULL.replace("gpus 0,1", "gpus "), "unprintable or empty value"),
        (FULL.replace("task 1 31401 123461", "task 1 31401"), "malformed task line"),
        (LEAST + "option can", "truncated"),
    ],
)
def test_what_is_no_registration(text, reason):
    with pytest.raises(StepFileError, match=reason):
        parse(text)


@pytest.mark.parametrize("part", ["t", "task", "task 2 31", "task 2 31402 12346"])
def test_a_task_line_on_its_way_is_left_for_the_next_look(part):
    assert len(parse(FULL + part).tasks) == 2


@given(some.integers(0, len(FULL)))
def test_a_cut_file_never_gives_other_numbers(at):
    try:
        r = parse(FULL[:at])
    except StepFileError:
        return
    whole = parse(FULL)
    for name in Registration.__struct_fields__:
        assert getattr(r, name) in (None, getattr(whole, name)) or name == "tasks"
    assert r.tasks == whole.tasks[: len(r.tasks)]


@given(
    some.one_of(
        some.text(), some.lists(some.sampled_from([*FULL.splitlines(), "task", "x", "job 1"])).map("\n".join)
    )
)
def test_any_text_gives_a_registration_or_the_typed_error(text):
    try:
        r = parse(text)
    except StepFileError:
        return
    assert r.job >= 1


def test_C01_a_cgroup_names_the_run_by_job_or_by_sluid():
    one, other = parse(FULL), parse(LEAST)
    assert run_of_ref(StepRef("42", None, "0"), [one, other]) == one.run
    assert run_of_ref(StepRef(None, "sAB12CD34EF567", "0"), [one, other]) == one.run
    assert run_of_ref(StepRef("42", None, "batch"), [one, other]) == other.run
    assert run_of_ref(StepRef("43", None, "0"), [one, other]) is None
    assert run_of_ref(StepRef("42", None, "0"), [one, one]) is None  # not clear which


def test_S41_a_sluid_that_a_user_put_into_the_own_environment_takes_nobodys_processes():
    mine, forged = parse(FULL), msgspec.structs.replace(parse(FULL), job=43, pid=201, uid=1001)
    ref = StepRef(None, "sAB12CD34EF567", "0")
    assert run_of_ref(ref, [forged, mine], mine.uid) == mine.run
    assert run_of_ref(ref, [forged, mine], forged.uid) == forged.run
    batch = msgspec.structs.replace(mine, step=0xFFFFFFFB, sluid=None)  # its own is not told
    assert run_of_ref(ref, [forged, batch], mine.uid) is None
    assert run_of_ref(ref, [mine], 100_000) == mine.run, "of a container of its user"
