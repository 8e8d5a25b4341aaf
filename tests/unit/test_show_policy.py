"""`ladon policy` in 80 columns: every value with its origin, what differs by cause told apart."""

from msgspec.structs import replace
from shown import page

from ladon_slurm.config import Dwell, parse
from ladon_slurm.model import JobFacts, Step
from ladon_slurm.policy import Held, Subject
from ladon_slurm.policy.told import tell
from ladon_slurm.show import policy
from ladon_slurm.steps_desk import asked_for

STEP = Step("4217.0", "b:1:2", uid=1001, nodes=["n1"], elsewhere=False, options="cancel")
JOB = JobFacts(4217, "alice", 1001, "hep", "gpu-a100", None, "RUNNING", array="4200_17")
SITE = """\
mode: enforce
reclamation: {action: NOTIFY, warn: 5m}
rules:
  - {name: spin, match: {cause: spinning, partition: gpu-*}, set: {action: CANCEL, term_grace: 2m}}
  - {name: other, match: {nodes: n9}, set: {action: LOG}}
"""


def shown(s: Subject, text: str = SITE) -> str:
    lines = {"reclamation.action": "ladon.yaml:2", "reclamation.warn": "ladon.yaml:2"}
    return policy.show(tell(s, parse(text), True, 100.0, lines), page())


def test_each_value_has_its_origin_and_what_differs_by_cause_is_told_apart():
    text = shown(Subject("n1", STEP, job=JOB, others_work=False))
    assert "step 4217.0 of alice on n1, mode enforce" in text
    assert "job 4217: partition gpu-a100, account hep, QOS -, user alice, array 4200_17" in text
    assert "ZOMBIE by spinning: cancel, by --ladon=cancel" in text
    assert "ZOMBIE by silent, blocked, mixed, no-beat: notify, by reclamation.action: notify" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["warn", "5m", "ladon.yaml:2"] in rows
    assert ["give_up", "15m", "default"] in rows
    assert ["term_grace", "(spinning)", "2m", "rule", "spin", "(ladon.yaml:4)"] in rows
    assert ["other", "(ladon.yaml:5)", "no", "node", "is", "n1"] in rows


def test_what_a_step_asked_for_is_shown_as_it_holds_with_what_bounds_it():
    step = replace(STEP, options="cancel,window=2d,grace=50m")
    lines = {"dwell.window_most": "ladon.yaml:7"}
    asked = list(asked_for(step.options, Dwell(window_most=43_200.0), lines))
    text = policy.show(tell(Subject("n1", step, job=JOB), parse(SITE), True, 100.0, lines, asked), page())
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "window 12h dwell.window_most (ladon.yaml:7): it asked for 2d" in rows
    assert "grace 50m --ladon" in rows
    (short,) = asked_for("window=1m", Dwell(), {})
    assert (short.value, short.origin) == (1800.0, "dwell.shortest (default): it asked for 1m")
    assert list(asked_for("cancel", Dwell(), {})) == list(asked_for(None, Dwell(), {})) == []


def test_what_is_not_known_is_said_and_nothing_promised():
    text = shown(Subject("n1", STEP, "spinning", why_no_job="slurmctld gives no answer: timed out"))
    assert "its job: not known: slurmctld gives no answer: timed out" in text
    assert "If it is called ZOMBIE: nothing, before this is known: rule spin" in text


def test_observe_and_a_hold_are_said():
    held = Held("b:1:2", "4217.0", 1000, "its owner", 1900.0)
    text = shown(Subject("n1", STEP, "silent", job=JOB, held=held), SITE.replace("enforce", "observe"))
    assert "Nothing is done from this node: only recorded, for the site's mode is observe." in text
    assert "held for 30 min by its owner" in text


def test_a_STOP_file_is_the_first_word():
    told = tell(Subject("n1", STEP, "silent", job=JOB), parse(SITE), True, 100.0, {})
    assert policy.show(told, page()).startswith("step 4217.0")
    told.stopped = "/etc/ladon/STOP"
    text = " ".join(policy.show(told, page()).split())
    assert text.startswith(
        "STOP: /etc/ladon/STOP is there; nothing of what follows is done until it is removed. step 4217.0"
    )


def test_its_prose_keeps_to_eighty_columns():
    text = shown(Subject("n1", STEP, "spinning", job=JOB))
    assert max(map(len, text.splitlines())) <= 80
