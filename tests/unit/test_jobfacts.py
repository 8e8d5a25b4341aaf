"""slurmctld is asked of a job once for a case, in vain with growing pauses, and for people within bounds."""

from __future__ import annotations

from types import SimpleNamespace

from ladon_slurm.config import parse
from ladon_slurm.jobfacts import FRESH_S, JobAsker
from ladon_slurm.model import Case, JobFacts, Step, Verdict
from ladon_slurm.policy import Docket, Subject
from ladon_slurm.slurm import SlurmTimeout

RUN = "b:1:2"
STEP = Step("42.0", RUN, uid=1000, nodes=["n1"], elsewhere=False, options="cancel")
JOB = JobFacts(42, "alice", 1000, partition="gpu")
SETTINGS = parse("mode: enforce\nreclamation: {action: CANCEL, give_up: 10m}\nnever: {partitions: vip}")


class Slurm:
    """Client and calls in one: what was asked, and when it answers."""

    def __init__(self):
        self.asked = []
        self.flight = []

    def job(self, number):
        return number

    def start(self, call, done):
        self.asked.append(call)
        self.flight.append(done)

    def say(self, value):
        self.flight.pop(0)(value)


class Rig:
    def __init__(self):
        self.t = 1000.0
        self.case = Case("7k2fq3", "stall", "n1", "b", 990.0, RUN, step="42.0", job=42)
        self.docket = Docket(SETTINGS, True, 0.0)
        self.state = SimpleNamespace(
            docket=self.docket,
            settings=SETTINGS,
            steps={RUN: STEP},
            watches={RUN: None},
            cases={"7k2fq3": self.case},
        )
        self.slurm = Slurm()
        self.asker = JobAsker(self.state, self.slurm, self.slurm, lambda: self.t)
        self.docket.take_up("7k2fq3")

    def subject(self):
        return self.docket.subject(self.t, "n1", STEP, "spinning", frozenset({"h100"}), False)

    def verdict(self, verdict):
        self.case.verdict = Verdict("42.0", RUN, self.t, verdict, cause="spinning", since=0.0)

    def tick(self, after=1.0):
        self.t += after
        said = []
        if self.docket.restless(self.t):
            for _ in self.docket.due(self.t, [self.case]):
                said += self.docket.decide(self.case, self.subject(), self.t)
        self.asker.tick()
        return [(d.action, d.rule) for d in said]


def test_a_case_asks_once_and_a_decision_asks_no_more():
    rig = Rig()
    rig.verdict("SUSPECT")
    assert rig.tick() == []
    for _ in range(5):
        rig.tick()
    assert rig.slurm.asked == [42]
    rig.slurm.say(JOB)
    rig.verdict("ZOMBIE")
    rig.docket.take_up("7k2fq3")
    assert rig.tick() == [("cancel", "--ladon=cancel")]
    for _ in range(100):
        rig.tick(10.0)
    assert rig.slurm.asked == [42]


def test_N02_while_it_does_not_answer_the_decision_waits_and_is_given_up_on_record():
    rig = Rig()
    rig.verdict("ZOMBIE")
    said = []
    for _ in range(700):
        said += rig.tick()
        if rig.slurm.flight:
            rig.slurm.say(SlurmTimeout("no answer"))
    assert said == [("log", "not known"), ("log", "given up")]
    assert 10 < len(rig.slurm.asked) < 20, "after 2 s, 4 s ... and then each minute"
    asked = len(rig.slurm.asked)
    for _ in range(100):
        rig.tick(60.0)
    assert len(rig.slurm.asked) == asked


def test_an_answer_that_comes_late_is_decided_by():
    rig = Rig()
    rig.verdict("ZOMBIE")
    assert rig.tick() == [("log", "not known")]
    rig.t += 100.0
    rig.slurm.say(JobFacts(42, "alice", 1000, partition="vip"))
    assert rig.tick() == [("log", "never.partitions: partition is vip")]


def test_right_before_acting_it_is_asked_again_unless_that_was_a_moment_ago():
    rig, then = Rig(), []
    assert rig.asker.refresh(rig.subject(), lambda: then.append(1))
    rig.slurm.say(JOB)
    assert then == [1]
    assert not rig.asker.refresh(rig.subject(), lambda: then.append(2))
    rig.t += FRESH_S
    assert rig.asker.refresh(rig.subject(), lambda: then.append(3))
    rig.slurm.say(SlurmTimeout("no answer"))
    assert then == [1, 3]
    assert RUN not in rig.docket.jobs, "what was known is not known any more"
    assert not rig.asker.refresh(rig.subject(), lambda: then.append(4)), "and not asked without pause"


def test_nothing_is_asked_where_nothing_hangs_on_it():
    rig = Rig()
    rig.state.settings = parse("mode: enforce\nreclamation: {action: CANCEL}")
    assert not rig.asker.refresh(rig.subject(), lambda: None)
    assert not rig.asker.refresh(Subject("n1"), lambda: None)
    assert rig.slurm.asked == []


def test_the_end_of_a_run_is_the_end_of_asking():
    rig = Rig()
    rig.verdict("SUSPECT")
    rig.tick()
    rig.state.steps, rig.state.watches = {}, {}
    rig.docket.forget(RUN)
    rig.slurm.say(JOB)
    rig.tick()
    assert not rig.docket.jobs
    assert rig.slurm.asked == [42]


def test_in_vain_before_there_is_anything_to_decide_is_not_asked_again():
    rig = Rig()
    rig.verdict("SUSPECT")
    rig.tick()
    rig.slurm.say(SlurmTimeout("no answer"))
    for _ in range(50):
        rig.tick(10.0)
    assert rig.slurm.asked == [42]
    rig.verdict("ZOMBIE")
    rig.docket.take_up("7k2fq3")
    rig.tick()
    rig.tick()
    assert rig.slurm.asked == [42, 42]
