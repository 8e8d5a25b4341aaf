"""Reading scontrol and scancel. What is not understood is an error, never "none" and never a state."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from answers import NODE, STEP, jobs, said

from ladon_slurm.children import Result
from ladon_slurm.model import JobFacts
from ladon_slurm.slurm import (
    NoSuchNode,
    SlurmDown,
    SlurmError,
    SlurmRefused,
    SlurmTimeout,
    StepFacts,
)
from ladon_slurm.slurm.base import MAX_STEP
from ladon_slurm.slurm.cli_client import (
    JOB_KEYS,
    CliClient,
    accepted,
    comment_in,
    job_of,
    mail_in,
    node_of,
    nodes_of,
    pinged,
    slurm_env,
    started_in,
    step_of,
    steps_in,
)
from ladon_slurm.slurm.node_state import may_drain

VERSIONS = ("22.05", "24.11", "26.05")
client = CliClient(conf="/etc/slurm/slurm.conf", timeout_s=5.0, environ={"PATH": "/opt/slurm/bin"})


# --- nodes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_node_without_a_reason(version):
    node = node_of(said(NODE[version].format(state="MIXED", reason="")), "gn07")
    assert node.state == {"MIXED"}
    assert (node.reason, node.reason_by, node.reason_at) == (None, None, None)
    assert node.boot == "2026-03-01T08:00:00"
    assert node.slurmd_start == "2026-03-01T08:01:00"
    assert node.version is not None
    assert node.version.startswith(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_node_drained_with_a_reason(version):
    reason = " Reason=ladon Xid79 gpu3: GPU fell off the bus (case 7k2f) [root@2026-03-02T11:00:00]"
    node = node_of(said(NODE[version].format(state="DOWN*+DRAIN", reason=reason)), "gn07")
    assert node.state == {"DOWN", "NOT_RESPONDING", "DRAIN"}
    assert node.reason == "ladon Xid79 gpu3: GPU fell off the bus (case 7k2f)"
    assert (node.reason_by, node.reason_at) == ("root", "2026-03-02T11:00:00")


def test_reason_of_someone_else_with_everything_in_it():
    reason = ' Reason=x [a] State=IDLE y=1 [b] "q" [it-ops@2026-03-02T11:00:00]'
    node = node_of(said(NODE["22.05"].format(state="IDLE+DRAIN", reason=reason)), "gn07")
    assert node.state == {"IDLE", "DRAIN"}
    assert node.reason == 'x [a] State=IDLE y=1 [b] "q"'
    assert node.reason_by == "it-ops"


def test_reason_without_user_and_time():
    node = node_of(said(NODE["22.05"].format(state="IDLE+DRAIN", reason=" Reason=Not responding")), "gn07")
    assert (node.reason, node.reason_by) == ("Not responding", None)


def test_no_boot_time_is_none():
    text = (
        NODE["22.05"].format(state="IDLE", reason="").replace("BootTime=2026-03-01T08:00:00", "BootTime=None")
    )
    assert node_of(said(text), "gn07").boot is None


def test_N04_unknown_node():
    with pytest.raises(NoSuchNode):
        node_of(said("Node gn07 not found\n", rc=1), "gn07")
    with pytest.raises(NoSuchNode):
        accepted(said(err="slurm_update error: Invalid node name specified\n", rc=1))


@pytest.mark.parametrize(
    "out",
    [
        "",
        "\n",
        "NodeName=gn08 State=IDLE ThreadsPerCore=1\n",
        "NodeName=gn07 Arch=x86_64\n",
        "No nodes in the system\n",
    ],
)
def test_R13_an_answer_without_the_node_is_an_error(out):
    with pytest.raises(SlurmError) as e:
        node_of(said(out), "gn07")
    assert not isinstance(e.value, NoSuchNode)


def table(*states: str, version: str = "22.05") -> str:
    """A node table: gn00, gn01, ... in these states."""
    reason = " Reason=ladon Xid79 gpu3: x (case 7k2f) [root@2026-03-02T11:00:00]"
    return "".join(
        NODE[version].format(state=s, reason=reason if "DRAIN" in s else "").replace("gn07", f"gn{n:02d}")
        for n, s in enumerate(states)
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_node_table(version):
    nodes = nodes_of(said(table("IDLE", "MIXED+DRAIN", "DOWN*", version=version)))
    assert [(n.name, n.state) for n in nodes] == [
        ("gn00", {"IDLE"}),
        ("gn01", {"MIXED", "DRAIN"}),
        ("gn02", {"DOWN", "NOT_RESPONDING"}),
    ]
    assert [n.reason_at for n in nodes] == [None, "2026-03-02T11:00:00", None]
    assert {n.gres for n in nodes} == {frozenset({"gpu"})}


# As seen on clusters of 24.11.7, 25.11.2 and 26.05.2, and why such a node is not drained.
SEEN = {
    "IDLE+DYNAMIC_NORM": None,
    "MIXED+DYNAMIC_NORM": None,
    "IDLE+DYNAMIC_NORM+RESERVED": None,
    "MIXED+DYNAMIC_NORM+MAINTENANCE+RESERVED": "maintenance",
    "MIXED+DYNAMIC_NORM+MAINTENANCE+RESERVED+PLANNED": "maintenance",
    "IDLE+DRAIN+DYNAMIC_NORM+MAINTENANCE+RESERVED": "drained already",
    "MIXED+DRAIN+DYNAMIC_NORM+MAINTENANCE+RESERVED": "drained already",
    "IDLE+CLOUD+POWERING_UP#": "powering up",
    "IDLE+CLOUD+POWERED_DOWN": "powered down",
    "IDLE+POWERING_DOWN": "powering down",
    "IDLE+POWER_DOWN": "to be powered down",
    "MIXED+REBOOT_REQUESTED": "a reboot is asked for",
    "IDLE+REBOOT_ISSUED": "it reboots",
    "DOWN*": "DOWN",
    "UNKNOWN": "UNKNOWN",  # right after a start of slurmctld
}


@pytest.mark.parametrize("version", VERSIONS)
def test_R12_R01_R09_N06_states_as_they_are_seen_and_whether_they_may_be_drained(version):
    nodes = nodes_of(said(table(*SEEN, version=version)))
    for node, why in zip(nodes, SEEN.values(), strict=True):
        said_why = may_drain(node)
        assert (said_why is None) == (why is None), node
        assert (why or "") in (said_why or "")


@given(st.data())
def test_R13_half_a_node_table_is_none(data):
    """A count of what is there would be too low: what is cut off or not understood is an error."""
    whole = table("IDLE", "MIXED+DRAIN", "IDLE")
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        nodes = nodes_of(said(cut))
    except SlurmError:
        return
    assert cut.endswith("\n"), "whole lines alone look like a smaller cluster, which scontrol never prints"
    assert all(n.state for n in nodes)


@pytest.mark.parametrize("out", ["", "\n", "No nodes in the system\n", table("IDLE") + "odd\n"])
def test_R14_no_node_is_no_table(out):
    with pytest.raises(SlurmError):
        nodes_of(said(out))


def test_when_slurmctld_was_started():
    config = "Configuration data as of 2026-03-02T11:00:00\nBOOT_TIME               = 2026-03-01T07:00:00\n"
    assert started_in(said(config)) == "2026-03-01T07:00:00"
    for odd in ("", "BOOT_TIME = Unknown\n", "SLURM_CONF = BOOT_TIME\n"):
        with pytest.raises(SlurmError):
            started_in(said(odd))


@given(st.text(max_size=200), st.sampled_from([0, 1, None]))
def test_any_text_is_a_value_or_a_SlurmError(text, rc):
    result = said(text, rc=rc)
    for read in (
        lambda r: node_of(r, "gn07"),
        lambda r: step_of(r, 42, 0),
        accepted,
        pinged,
        nodes_of,
        started_in,
    ):
        with contextlib.suppress(SlurmError):
            read(result)


@given(st.data())
def test_a_truncated_node_is_never_another_state(data):
    whole = NODE["26.05"].format(state="MIXED+DRAIN+PLANNED", reason=" Reason=x [root@2026-03-02T11:00:00]")
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    try:
        node = node_of(said(cut), "gn07")
    except SlurmError:
        return
    assert node.state == {"MIXED", "DRAIN", "PLANNED"}
    assert node.reason == "x"


# --- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shown", ["42.0", "40_2.0", "42+1.0", "42.0+1"])
def test_step(version, shown):
    step = step_of(said(STEP[version].format(id=shown)), 42, 0)
    assert step == StepFacts(42, 0, "RUNNING", "2026-03-02T10:00:00", "gn[07-08]", 1000)


def test_a_users_step_name_is_no_state():
    text = "StepId=42.0 UserId=1000 Name=x State=RUNNING StartTime=2026-03-02T10:00:00 NodeList=n1 \n"
    with pytest.raises(SlurmError):
        step_of(said(text), 42, 0)


def test_K01_another_step_of_the_job_is_not_taken_for_it():
    """`show step J.4294967291` prints the batch step; so may any other answer be about another step."""
    for other in ("42.batch", "42.1", "42.10", "42.extern"):
        with pytest.raises(SlurmError):
            step_of(said(STEP["22.05"].format(id=other)), 42, 0)


@pytest.mark.parametrize(
    "result",
    [
        said("Job step 42.0 not found\n", rc=1),
        said("Job step 40_2.0 not found\n", rc=1),
        said(err="slurm_get_job_steps error: Invalid job id specified\n", rc=1),
    ],
)
def test_gone_only_where_slurm_says_so(result):
    assert step_of(result, 42, 0) is None


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (said("", rc=0), SlurmError),
        (said("", rc=1), SlurmError),
        (said("No job steps in the system\n", rc=0), SlurmError),
        (said("Job step 42.0 not found\n", rc=0), SlurmError),
        (said("Job step 42.0 not found\n", rc=None), SlurmTimeout),
        (said("", rc=None), SlurmTimeout),
        (said("", rc=-9), SlurmError),
        (said(STEP["22.05"].format(id="42.0"), rc=1), SlurmError),
        (said(STEP["22.05"].format(id="42.0"), truncated=True), SlurmError),
        (
            said(err="slurm_get_job_steps error: Unable to contact slurm controller (connect failure)", rc=1),
            SlurmDown,
        ),
        (said(err="slurm_get_job_steps error: Socket timed out on send/recv operation", rc=1), SlurmDown),
        (said(err="slurm_get_job_steps error: Zero Bytes were transmitted or received", rc=1), SlurmDown),
        (said(err="scontrol: fatal: Unable to process configuration file", rc=1), SlurmDown),
        (said(err="sh: 1: exec: scontrol: not found", rc=127), SlurmError),
    ],
)
def test_R14_a_failure_is_never_none(result: Result, error):
    with pytest.raises(error):
        step_of(result, 42, 0)


@pytest.mark.parametrize(
    "read",
    [
        lambda r: step_of(r, 42, 0), steps_in, lambda r: mail_in(r, 42), lambda r: comment_in(r, 42), lambda r: node_of(r, "gn07"),
        nodes_of, started_in, lambda r: job_of(r, 42),
    ],
)  # fmt: skip
@pytest.mark.parametrize("out", ["", "\n", "something else\n", "MailProg = /bin/mail\n--\nnothing\n"])
def test_R14_an_answer_without_its_record_is_an_error_whatever_was_asked(read, out):
    with pytest.raises(SlurmError):
        read(said(out))


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step", [-1, MAX_STEP + 1, 0xFFFFFFFB, 0xFFFFFFFC, 0xFFFFFFFA, 0xFFFFFFFE, 0xFFFFFFFF, 1 << 32]
)
def test_K01_K03_a_special_step_is_never_on_a_command_line(step):
    for ask in (lambda: client.step(42, step), lambda: client.signal_step(42, step, signal.SIGTERM)):
        with pytest.raises(SlurmRefused, match="not a numbered step"):
            ask()


@pytest.mark.parametrize("job", [0, -1, 0xFFFFFFFE, 0xFFFFFFFF])
def test_K03_no_job_that_stands_for_others(job):
    for ask in (
        lambda: client.step(job, 0),
        lambda: client.signal_step(job, 0, signal.SIGTERM),
        lambda: client.comment(job, "x"),
        lambda: client.notify(job, "x"),
    ):
        with pytest.raises(SlurmRefused, match="not a job"):
            ask()


@pytest.mark.parametrize(
    "name", ["n1,n2", "n[1-2]", "n1 n2", "", "ALL", "all", "ALL=", "-n1", "n1\n", "ALL,", "n1=x"]
)
def test_composite_node_names_are_refused_before_any_command(name):
    for ask in (lambda: client.node(name), lambda: client.drain(name, "x"), lambda: client.undrain(name)):
        with pytest.raises(SlurmRefused, match="not one plain node name"):
            ask()


def test_K05_a_task_of_an_array_goes_by_its_own_name():
    assert list(client.requeue(16, "16_5").argv) == ["scontrol", "requeue", "16_5"]
    assert list(client.cancel_job(17, "16_4").argv) == ["scancel", "16_4"]
    assert list(client.cancel_job(42, None).argv) == ["scancel", "42"]
    for array in ("16", "16_", "16_*", "16_1-5", "_5", "16_[5]", "16_5 -u root"):
        with pytest.raises(SlurmRefused):
            client.cancel_job(16, array)
    for job in (0, -1, 0xFFFFFFFE):
        with pytest.raises(SlurmRefused):
            client.requeue(job, None)


def test_the_steps_of_a_job():
    out = "StepId=16_5.batch UserId=1 StartTime=x \nStepId=16_5.0 UserId=1 \nStepId=16_5.12 UserId=1 \n"
    assert steps_in(said(out)) == ["batch", "0", "12"]
    for wrong in ("", "nothing\n", "StepId=42.0 UserId=1"):
        with pytest.raises(SlurmError):
            steps_in(said(wrong))


def test_MailProg_and_MailUser():
    out = "MailDomain = (null)\nMailProg                = /usr/bin/mail\nX = /y\n--\nJobId=42 JobName=x\n"
    assert mail_in(said(out), 42) == ("/usr/bin/mail", None)
    assert mail_in(said(out + "   MailUser=a@b MailType=FAIL\n"), 42) == ("/usr/bin/mail", "a@b")
    array = out.replace("JobId=42", "JobId=42 ArrayJobId=42 ArrayTaskId=3")
    assert mail_in(said(array + "   MailUser=a@b\n"), 42) == ("/usr/bin/mail", None)  # K05
    assert mail_in(said(out.replace("/usr/bin/mail", "(null)")), 42) == (None, None)
    with pytest.raises(SlurmError):
        mail_in(said("MailProg = /usr/bin/mail\n"), 42)


def test_only_TERM_and_KILL_are_sent():
    argv = [client.signal_step(42, 7, s).argv for s in (signal.SIGTERM, signal.SIGKILL)]
    assert argv == [("scancel", "-s", "TERM", "42.7"), ("scancel", "-s", "KILL", "42.7")]
    with pytest.raises(SlurmRefused):
        client.signal_step(42, 7, signal.SIGSTOP)


def test_R10_only_DRAIN_and_UNDRAIN():
    assert client.drain("gn07", "ladon x").argv == (
        "scontrol", "update", "nodename=gn07", "state=DRAIN", "reason=ladon x",
    )  # fmt: skip
    assert client.undrain("gn07").argv == ("scontrol", "update", "nodename=gn07", "state=UNDRAIN")


def test_text_cannot_be_more_than_text():
    argv = client.comment(42, "a\"b' [c] d=e |f\n--state=DOWN").argv
    assert argv == ("scontrol", "update", "jobid=42", "admincomment=ab c de f --stateDOWN")
    assert client.notify(42, "--help").argv[-1] == "help"


def test_environment_is_ours_alone():
    """SCANCEL_* and SLURM_* of whoever starts the daemon would change what the commands do."""
    environ = {
        "PATH": "/p",
        "SCANCEL_BATCH": "1",
        "SLURM_CLUSTERS": "x",
        "LC_ALL": "de_DE",
        "SLURM_CONF": "/a",
    }
    assert slurm_env("/b", environ) == {"PATH": "/p", "LC_ALL": "C", "SLURM_CONF": "/b"}
    assert slurm_env(None, environ)["SLURM_CONF"] == "/a"
    assert client.ping().env == {
        "PATH": "/opt/slurm/bin",
        "LC_ALL": "C",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
    }


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (said("Slurmctld(primary) at h is UP\n"), None),
        (said("Slurmctld(primary) at h is DOWN\nSlurmctld(backup) at i is UP\n", rc=0), None),
        (said("Slurmctld(primary) at h is DOWN\n***\n", rc=1), SlurmDown),
        (said("", rc=0), SlurmDown),
        (said("", rc=None), SlurmTimeout),
    ],
)
def test_ping(result, error):
    if error is None:
        assert pinged(result) is None
    else:
        with pytest.raises(error):
            pinged(result)


def test_deadline_and_words_of_a_call_that_was_not_started():
    with pytest.raises(SlurmTimeout, match="2 earlier calls still hang"):
        accepted(said(err="not started: 2 earlier calls still hang", rc=None))
    assert client.ping().deadline_s == 5.0


# --- jobs -------------------------------------------------------------------------------------------

ALICE = JobFacts(42, "alice", 1000, "hep", "gpu", "normal", "RUNNING", "n[1-2]", True, True, 0)


def told(*changes: dict[str, str]) -> str:
    return jobs(*changes, widths=JOB_KEYS)


def test_a_job():
    assert job_of(said(told({})), 42) == ALICE


def test_what_slurm_has_not_is_None():
    job = job_of(said(told({"QOS": "(null)", "Account": "(null)", "HetJobID": "0", "Requeue": "?"})), 42)
    assert (job.qos, job.account, job.het, job.requeue) == (None, None, None, None)


def test_K04_K05_of_several_lines_the_one_with_its_own_number():
    text = told(
        {"JobID": "41", "JobArrayID": "40_1", "Account": "other"},
        {"JobArrayID": "40_2", "HetJobID": "40"},
        {"JobID": "40", "JobArrayID": "40_3"},
    )
    job = job_of(said(text), 42)
    assert (job.account, job.array, job.het) == ("hep", "40_2", 40)


def test_the_account_is_the_users_own_words_without_slurmdbd():
    job = job_of(said(told({"Account": "hep|0|root|x"})), 42)
    assert (job.uid, job.user, job.account) == (1000, "alice", "hep|0|root|x")


def test_a_name_that_may_have_been_cut_is_not_read():
    with pytest.raises(SlurmError):
        job_of(said(told({"Partition": "p" * 70})), 42)
    assert job_of(said(told({"NodeList": "n" * 70})), 42).nodes is None


def test_R13_R14_no_job_only_where_slurm_says_so():
    assert job_of(said(err="slurm_load_jobs error: Invalid job id specified\n", rc=1), 42) is None
    for result in (
        said(""),
        said(told({"JobID": "43"})),
        said(told({}), rc=1),
        said(told({}), rc=None),
        said(told({})[:-1]),
        said(told({})[:60] + "\n"),
    ):
        with pytest.raises(SlurmError):
            job_of(result, 42)


@given(st.text(max_size=300), st.sampled_from([0, 1, None]))
def test_any_words_are_a_job_or_a_SlurmError(text, rc):
    with contextlib.suppress(SlurmError):
        job_of(said(text, rc=rc), 42)


@pytest.mark.parametrize(
    "out",
    [
        "42                      |42                      ||\n",  # a squeue that does not know the column
        f"42                      |42                      |{'x' * 5000}|\n",
        f"43                      |43                      |{'x'.ljust(4096)}|\n",
        f"42                      |42_1                    |{'x'.ljust(4096)}|\n",  # K05
        "",
    ],
)
def test_R14_K05_a_comment_that_is_not_told_whole_is_not_known(out):
    with pytest.raises(SlurmError):
        client.comment_of(42).parse(Result(0, out.encode(), b""))
    text = f"42                      |42                      |{'a | b'.ljust(4096)}|\n"
    assert client.comment_of(42).parse(Result(0, text.encode(), b"")) == "a | b"
