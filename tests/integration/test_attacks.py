"""What a user cannot do to others, to the node and to its daemon: each attack is run as an unprivileged user
in a job of a real Slurm, beside the step of another one.

One test per "cannot" of docs/security.md that is not tested elsewhere: what a user can do to a beat page is in
test_beats_in_slurm.py, to a RAS port in test_deeper.py; that file lists them all.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.client import Background
from testbed.cluster import Cluster, free_ports
from testbed.crash import CONFIG

from ladon_slurm.journal import Reader
from ladon_slurm.parse.step_file import Registration, parse

pytestmark = pytest.mark.slurm

VICTIM, ATTACKER = "daemon", "nobody"
SITE = {
    **CONFIG,
    "reclamation": {**CONFIG["reclamation"], "warn": "0s", "unasked": "CANCEL", "term_grace": "1s"},
    "limits": {"per_hour": "100"},
}


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def told() -> Iterator[Path]:
    """What is told beside the journal: JSON lines, and the mails that the site's program gets.

    Not in pytest's folder, which each pytest that starts makes root's alone.
    """
    with tempfile.TemporaryDirectory(prefix="ladon-told") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "mails").touch()
        (folder / "mails").chmod(0o666)
        program = folder / "mail"
        program.write_text(f'#!/bin/sh\nprintf "<%s>" "$@" >>{folder}/mails; cat >>{folder}/mails\n')
        program.chmod(0o755)
        yield folder


@pytest.fixture(scope="module")
def cluster_options(port, told) -> dict[str, Any]:
    more = {"plugin_args": "allow=notify,cancel", "extra": f"MailProg={told}/mail\n"}
    config = {
        **SITE,
        "metrics": {"listen": f"127.0.0.1:{port}"},
        "log": {"file": f"{told}/log.jsonl"},
        "reclamation": {**SITE["reclamation"], "mail": "yes"},
    }
    return {"nodes": ("n1",), "mig": {}, "daemons": True, "health": False, "config": config, **more}


@pytest.fixture(autouse=True)
def goes_on(cluster: Cluster) -> Iterator[None]:
    """After each attack: the same daemon, that ticks and reads all; no step and no page left."""
    process = cluster.process("ladond-n1")
    yield
    assert cluster.process("ladond-n1") is process
    assert process.poll() is None
    ticks_on(cluster)
    for user in (VICTIM, ATTACKER):
        cluster.run(["scancel", "-u", user])
    cluster.await_(lambda: not cluster.steps(), what="end of all steps")
    cluster.await_(lambda: not list((cluster.run_dir("n1") / "beat").iterdir()), what="removal of all pages")
    cluster.await_(lambda: cluster.node_state("n1") == {"IDLE"}, what="an idle node")


def ticks_on(cluster: Cluster) -> None:
    """Whole ticks follow upon each other, and nothing is missing from them."""
    begun = cluster.status("n1")
    later, well = begun["t"] + 3 * begun["tick_s"], {"nvml": "ok", "proc": "ok"}
    cluster.await_(
        lambda: (s := cluster.status("n1"))["t"] > later and s["sources"] == well, what="whole ticks"
    )


def steps_of(cluster: Cluster, user: str) -> list[str]:
    rows = cluster.ask("squeue", "-h", "--steps", "-u", user, "-o", "%i").out.split()
    return [row for row in rows if row.partition(".")[2].isdigit()]


@contextlib.contextmanager
def step(cluster: Cluster, user: str, script: str, **opts: object) -> Iterator[tuple[Background, str]]:
    """A step of the user with that shell script that has said something; and its id."""
    run = cluster.srun_background(
        ["sh", "-c", f"echo id=$SLURM_JOB_ID.$SLURM_STEP_ID; {script}"], user=user, **opts
    )
    cluster.await_(lambda: run.out.count("\n") > 1 or run.rc is not None, what="the step to begin")
    assert run.rc is None, run.out + run.err
    name = re.search(r"id=(\S+)", run.out)
    assert name is not None
    yield run, name[1]
    cluster.run(["scancel", name[1].partition(".")[0]])
    run.wait()


@contextlib.contextmanager
def attack(cluster: Cluster, what: str, **opts: object) -> Iterator[tuple[Background, str]]:
    """`attacker WHAT` in a job of the attacker, ready."""
    with step(cluster, ATTACKER, f"exec attacker {what}", **opts) as (run, name):
        cluster.await_(lambda: "ready" in run.out or run.rc is not None, what=f"attacker {what}")
        assert run.rc is None, run.err
        yield run, name


@contextlib.contextmanager
def victim(cluster: Cluster, name: str = "stall") -> Iterator[tuple[Background, str, Path]]:
    """A step of the other user that trains and beats; its id; and the file that makes it hang."""
    flag = cluster.work / name
    script = f"beat 7; exec play train --gpus 0,1 --stall-on {flag}"
    with step(cluster, VICTIM, script, gres="gpu:h100:2", ladon="cancel,window=2s") as (run, id_):
        cluster.await_verdict(id_, "HEALTHY")
        yield run, id_, flag
    flag.unlink(missing_ok=True)


def row(cluster: Cluster, id_: str) -> dict[str, Any]:
    return next((r for r in cluster.status("n1")["steps"] if r["step"]["id"] == id_), {})


def decisions(cluster: Cluster, id_: str) -> list[Any]:
    reader = Reader(cluster.node("n1").journal)
    try:
        return [d for d in reader.decisions() if d.step == id_]
    finally:
        reader.close()


def registrations(cluster: Cluster) -> list[Registration]:
    return [parse(p.read_text()) for p in (cluster.run_dir("n1") / "steps").iterdir() if p.name[0] != "."]


# --- a: another's step ------------------------------------------------------------------------------

FORGED = {
    "SLURM_STEP_NODELIST": "n[1-60000]",
    "SLURM_STEP_GPUS": "1",
    "SLURM_JOB_GPUS": "0",
    "SLURM_JOB_NUM_NODES": "9",
    "SLURM_JOB_SLUID": "sAB12CD34EF567",
    "SLURMD_NODENAME": "n2",
    "LADON_BEAT": "/etc/shadow",
}


def test_a_user_cannot_make_anothers_hanging_step_look_alive(cluster):
    """Who claims its GPUs in the environment, works beside it and writes at its page changes nothing."""
    forged = " ".join(f"export {k}={v};" for k, v in FORGED.items())
    with victim(cluster, "alive") as (_, id_, flag):
        page = next((cluster.run_dir("n1") / "beat").glob(f"{id_}.*"))
        script = f"{forged} (while :; do echo x >>{page}; LADON_BEAT={page} beat; sleep .1; done) & echo go; exec play train --gpus 2,3"
        with step(cluster, ATTACKER, script, gres="gpu:h100:2"):
            batch = f"{forged} exec sleep 1000"
            export = "ALL," + ",".join(f"{k}={v}" for k, v in FORGED.items())
            cluster.sbatch(batch, user=ATTACKER, export=export)
            cluster.await_(
                lambda: any(r.special == "batch" for r in registrations(cluster)), what="the batch step"
            )
            (claim,) = [r for r in registrations(cluster) if r.special == "batch"]
            assert claim.gpus is None, "nothing was given to it, whatever its environment says"
            flag.touch()
            cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step that hangs")
    assert cluster.signals("n1", id_)[0] == 15
    assert decisions(cluster, id_)[-1].action == "cancel"


def test_a_user_cannot_make_anothers_working_step_look_stalled(cluster):
    """Nor touch anything that is said of it: files, page, notices, health; from a mount namespace either."""
    run_dir = cluster.run_dir("n1")
    with victim(cluster) as (_, id_, _):
        cluster.await_(lambda: row(cluster, id_).get("beat"), what="its beat")
        with step(cluster, ATTACKER, f"attacker into {run_dir} & sleep .1; echo go; wait") as (run, own):
            cluster.await_(lambda: "ready" in run.out, what="the attempts")
            done = [line for line in run.out.splitlines() if str(run_dir) in line]
            mine = f"{run_dir}/beat/{own}."
            assert all(mine in line and line.split()[0] in ("write", "truncate", "chmod") for line in done), (
                done
            )
        away = (
            f"unshare -Urm sh -c 'mount -t tmpfs x {run_dir} && mkdir -p {run_dir}/steps {run_dir}/beat &&"
            f" cp /etc/hostname {run_dir}/health && echo inside'; echo go; sleep 1000"
        )
        with step(cluster, ATTACKER, away) as (run, _):
            cluster.await_(lambda: "go" in run.out, what="the namespace")
            assert (run_dir / "control.sock").is_socket()
            assert (run_dir / "health").read_text().startswith("ladon-health 1\n")
        ticks_on(cluster)
        assert row(cluster, id_)["verdict"]["verdict"] == "HEALTHY"
        assert row(cluster, id_)["beat"]["count"] == 7


# --- b: beyond site policy --------------------------------------------------------------------------


def test_a_user_cannot_be_spared_beyond_what_the_site_allows_by_any_text(cluster):
    """Here it acts on steps that did not ask, and allows no less than notify: `off` is refused, inherited it
    counts as notify, and neither environment, comment nor names change what is done without it."""
    refused = cluster.srun("true", user=ATTACKER, ladon="off")
    assert refused.rc != 0
    assert "allowed: notify, cancel" in refused.err
    flag = cluster.work / "spared"
    option = "SLURM_SPANK__SLURM_SPANK_OPTION_ladon_ladon"
    names = "LADON=off LADON_OFF=1 LADON_MODE=observe SLURM_SPANK_LADON=off SPANK_LADON=off"
    play = f"{names} exec play train --gpus 2,3 --stall-on {flag}"
    opts: dict[str, object] = {"gres": "gpu:h100:2", "comment": "ladon=off", "job_name": "ladon-off"}
    more = {"export": f"ALL,{option}=off,{','.join(names.split())}"}
    with step(cluster, ATTACKER, play, **opts, **more) as (_, id_):
        cluster.await_verdict(id_, "HEALTHY")
        flag.touch()
        cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step")
    assert decisions(cluster, id_)[-1].action == "cancel", "the command line's environment is not an option"
    flag.unlink()
    script = f"export {option}=off; srun --gres=gpu:h100:2 sh -c '{play}'"
    job = cluster.sbatch(script, user=ATTACKER, gres="gpu:h100:2")
    cluster.await_verdict(f"{job}.0", "HEALTHY")
    assert row(cluster, f"{job}.0")["step"]["options"].startswith("notify")
    flag.touch()
    cluster.await_(lambda: decisions(cluster, f"{job}.0"), what="the decision")
    assert decisions(cluster, f"{job}.0")[-1].action == "notify"


# --- c: memory and disk -----------------------------------------------------------------------------


def rss(cluster: Cluster) -> int:
    """Bytes that daemon and workers hold."""
    process = cluster.process("ladond-n1")
    pids = [
        process.pid,
        *map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()),
    ]
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("what", ["crowd 2000", "files 15000"])
def test_a_user_cannot_blind_the_node_with_processes_or_files(cluster, what):
    with victim(cluster) as (_, id_, flag), attack(cluster, what) as (_, own):
        if what.startswith("crowd"):
            cluster.await_(
                lambda: row(cluster, own) and rss(cluster) < 300 << 20, what="the crowd to be counted"
            )
        ticks_on(cluster)
        flag.touch()
        cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step that hangs")
        assert cluster.signals("n1", id_)[0] == 15
        assert rss(cluster) < 300 << 20


def test_a_user_cannot_fill_memory_or_disk_through_what_is_registered(cluster):
    """A huge environment, many tasks, names as long as Slurm takes them: the files stay small."""
    huge = "x" * 30_000
    export = f"ALL,SLURM_STEP_NODELIST=n[1-60000],SLURM_JOB_GPUS={huge},SLURM_JOB_SLUID={huge},HUGE={huge}"
    opts: dict[str, object] = {
        "job_name": "n" * 200,
        "comment": "c" * 900,
        "export": export,
        "overcommit": True,
    }
    with victim(cluster) as (_, id_, _):
        job = cluster.sbatch("sleep 1000", user=ATTACKER, **opts)
        cluster.await_(lambda: any(r.job == job for r in registrations(cluster)), what="its registration")
        with step(cluster, ATTACKER, "exec sleep 1000", ntasks=100, **{**opts, "comment": None}) as (_, own):
            steps = cluster.run_dir("n1") / "steps"
            cluster.await_(lambda: any(len(r.tasks) == 100 for r in registrations(cluster)), what="100 tasks")
            assert max(p.stat().st_size for p in steps.iterdir()) <= 64 << 10
            ticks_on(cluster)
            assert row(cluster, own)
            assert row(cluster, id_)["verdict"]["verdict"] == "HEALTHY"
    assert rss(cluster) < 300 << 20


def test_a_user_cannot_fill_the_log_or_the_journal_by_flapping(cluster):
    """One case at most for each turn to SUSPECT and back, and a line for each; nothing for what changes faster."""
    log = cluster.dir / "log" / "ladond-n1.out"
    flap = "for i in 1 2 3 4 5 6; do play train --gpus 2,3 --for 0.3; play stall --gpus 2,3 --for 0.3; done; echo over; sleep 1000"
    before = log.stat().st_size
    with step(cluster, ATTACKER, flap, gres="gpu:h100:2") as (run, own):
        cluster.await_(lambda: "over" in run.out, what="the flapping")
        reader = Reader(cluster.node("n1").journal)
        try:
            assert len(reader.cases_about(own)) <= 6
        finally:
            reader.close()
    assert log.stat().st_size - before < 20_000


# --- d: what is another's ---------------------------------------------------------------------------


def test_a_user_cannot_read_anothers_case(cluster):
    """Neither by asking nor from files; that there is a step on a GPU is not told either."""
    with victim(cluster, "read") as (_, id_, flag):
        flag.touch()
        cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step that hangs")
    case = decisions(cluster, id_)[-1].case
    job = id_.partition(".")[0]
    for what in (id_, job, case, "n1", "gpu0"):
        for more in ([], ["--json"], ["--html", str(cluster.work / "stolen.html")]):
            done = cluster.ladon("n1", "explain", what, *more, user=ATTACKER)
            assert case not in done.out
            assert not named(id_).search(done.out)
    assert not (cluster.work / "stolen.html").exists()
    asked = json.dumps({"ask": "cases", "cases": {"uid": 1, "kind": "stall"}, "uid": 0})
    code = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        " s.sendall(sys.argv[2].encode()+b'\\n'); print(s.makefile().read())"
    )
    sock = str(cluster.run_dir("n1") / "control.sock")
    said = cluster.run(["/usr/bin/python3", "-c", code, sock, asked], user=ATTACKER).check().out
    mine = pwd.getpwnam(ATTACKER).pw_uid
    assert {told["case"]["uid"] for told in json.loads(said)["cases"]} <= {mine}, "only the own ones"
    assert case not in said
    for verb in ("policy", "hold"):
        done = cluster.ladon("n1", verb, id_, *(["30m"] if verb == "hold" else []), user=ATTACKER)
        assert done.rc != 0
        assert case not in done.out + done.err
    assert cluster.ladon("n1", "record", str(cluster.work / "all.jsonl"), user=ATTACKER).rc != 0
    state, run_dir = cluster.node("n1").journal.parent, cluster.run_dir("n1")
    private = [
        state / "journal.db",
        state / "cases",
        run_dir / "steps",
        run_dir / "notices",
        run_dir / "kept",
        run_dir / "kept_health",
    ]
    assert all(p.exists() for p in private)
    for path in private:
        assert cluster.run(["ls" if path.is_dir() else "cat", str(path)], user=ATTACKER).rc != 0, path
    for path in state.rglob("*"):
        assert not path.is_file() or path.stat().st_mode & 0o077 == 0, path


def test_a_user_does_not_see_who_is_on_a_gpu(cluster):
    with victim(cluster) as (_, id_, _):
        shown = json.loads(cluster.ladon("n1", "status", "--json", user=ATTACKER).check().out)
        assert not any(map(named(id_).search, strings(shown)))
        assert not shown.get("steps")
        assert not any(r.get("steps") or r["reading"].get("users") for r in shown["devices"])


def named(id_):
    """The step, and not a part of another number: of version 0.1.0."""
    return re.compile(rf"(?<![\w.]){re.escape(id_)}(?![\w.])")


def strings(value):
    """Every key and text below it: a number such as 118.0 W names no step."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [text for one in value for text in strings(one)]
    return [value] if isinstance(value, str) else []


# --- f: the daemon ----------------------------------------------------------------------------------


def test_a_user_cannot_keep_others_from_asking_nor_the_daemon_from_ticking(cluster):
    """control.sock is flooded by several processes at once."""
    with victim(cluster) as (_, id_, flag), attack(cluster, f"flood {cluster.run_dir('n1')}/control.sock"):
        ticks_on(cluster)
        answer = lambda: id_ in cluster.ladon("n1", "status", user=VICTIM).out  # noqa: E731
        cluster.await_(answer, what="an answer to the other user")
        flag.touch()
        cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step that hangs")
        assert cluster.signals("n1", id_)[0] == 15


def test_a_user_cannot_block_the_daemon_with_stopped_traced_or_blocked_processes(cluster):
    with victim(cluster) as (_, id_, flag), attack(cluster, "odd") as (_, own):
        cluster.await_(lambda: rich(cluster, own), what="all of them to be seen")
        ticks_on(cluster)
        flag.touch()
        cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step that hangs")


def rich(cluster: Cluster, own: str) -> bool:
    """Whether a process in state D belongs to the step: as the kernel has it, not as Ladon tells it."""
    for r in registrations(cluster):
        if r.id == own:
            out = subprocess.run(
                ["ps", "-eo", "state,uid"], capture_output=True, text=True, check=True
            ).stdout
            return f"D {r.uid}" in " ".join(out.split()) and f"t {r.uid}" in " ".join(out.split())
    return False


ODD = [
    '{"ask":"cases","cases":{"job":%s}}' % ("9" * 100),
    '{"ask":"cases","cases":{"uid":-9223372036854775809,"count":-1,"since":-1e308}}',
    '{"ask":"cases","cases":{"step":"\\u0000\\uffff","kind":"\'; DROP TABLE cases; --"}}',
    '{"ask":"explain","what":"%s"}' % ("%_" * 1000),
    '{"ask":"explain","what":"16_%s.0"}' % ("9" * 100),
    '{"ask":"hold","what":"1.0","seconds":1e308}',
    '{"ask":"hold","what":"1.0","seconds":-1e308}',
    '{"ask":"release","what":null}',
    '{"ask":"__init__"}',
    '{"ask":"breaker","what":"reset","uid":0}',
    '{"ask":"undrain","what":"n1","uid":0}',
    '{"ask":"record","uid":0}',
]
ASK = (
    "import socket,sys\nfor line in sys.stdin:\n s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
    " s.sendall(line.encode()); print(s.makefile().readline().strip())"
)


def ask(cluster: Cluster, lines: list[str], how: str = "") -> list[str]:
    """What the daemon answers the attacker, a line each."""
    sock = cluster.run_dir("n1") / "control.sock"
    argv = [*how.split(), "/usr/bin/python3", "-c", ASK, str(sock)]
    return cluster.run(argv, user=ATTACKER, stdin="\n".join(lines) + "\n").check().out.splitlines()


def test_a_user_cannot_end_the_daemon_by_what_is_asked(cluster):
    """Each odd request has an answer; a number that is none of SQLite's once ended the daemon."""
    told = ask(cluster, ODD)
    assert len(told) == len(ODD)
    assert all(line.startswith(('{"error":', '{"cases":[')) for line in told), told
    assert "could not answer" not in "".join(told), "nothing of it is an error of ladond's"


def test_a_user_cannot_be_taken_for_root_or_the_owner_by_any_trick(cluster):
    """Root of a user namespace, and a uid in the request, are who they were."""
    with victim(cluster, "hold") as (_, id_, flag):
        tries = [
            *(json.dumps({"ask": verb, "what": id_, "seconds": 600, "uid": uid}) for verb in ("hold", "release", "policy") for uid in (0, 1)),
            '{"ask":"breaker","what":"reset"}', '{"ask":"undrain","what":"n1"}', '{"ask":"record"}',
        ]  # fmt: skip
        for how in ("", "unshare -Ur", "unshare -Ur --map-users=0,65534,1"):
            if how and cluster.run([*how.split(), "true"], user=ATTACKER).rc:
                continue  # no such namespace here
            told = ask(cluster, tries, how)
            assert len(told) == len(tries)
            assert all(line.startswith('{"error":') for line in told), told
            assert id_ not in "".join(line.split("no live step", 1)[-1] for line in told)
        flag.touch()
        cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step that hangs")
    assert decisions(cluster, id_)[-1].action == "cancel", "nobody holds it"


def test_a_user_of_many_uids_cannot_keep_others_from_asking_nor_the_daemon_from_ticking(cluster):
    """With newuidmap a user is many; here root plays them: 200 connections with half a request, and floods."""
    sock = str(cluster.run_dir("n1") / "control.sock")
    half = (
        "import socket,sys,time\nheld=[]\nprint('ready',flush=True)\nwhile True:\n"
        " s=socket.socket(socket.AF_UNIX); s.settimeout(.1)\n"
        ' try: s.connect(sys.argv[1]); s.sendall(b\'{"ask":"sta\')\n'
        " except OSError: pass\n held=[*held,s][-25:]\n time.sleep(.01)"
    )
    many: list[subprocess.Popen[bytes]] = []
    try:
        for n in range(8):
            ids = ["setpriv", f"--reuid={200_000 + n}", "--regid=65534", "--clear-groups"]
            many.append(
                subprocess.Popen([*ids, "/usr/bin/python3", "-c", half, sock], stdout=subprocess.DEVNULL)
            )
            flood = [*ids, "/usr/bin/python3", str(cluster.dir / "bin/attacker.py"), "flood", sock]
            many.append(subprocess.Popen(flood, stdout=subprocess.DEVNULL, start_new_session=True))
        with victim(cluster, "many") as (_, id_, flag):
            ticks_on(cluster)
            answer = lambda: id_ in cluster.ladon("n1", "status", user=VICTIM).out  # noqa: E731
            cluster.await_(answer, what="an answer to the other user")
            flag.touch()
            cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step that hangs")
    finally:
        for process in many:
            process.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_user_cannot_blind_the_daemon_by_a_page_that_is_another_at_each_look(cluster):
    """A terabyte, nothing and its own size, changed while it is read: of its own step alone nothing is known."""
    with victim(cluster, "resize") as (_, id_, flag), attack(cluster, "resize") as (_, own):
        cluster.await_(lambda: row(cluster, own), what="the step")
        for _ in range(10):
            ticks_on(cluster)
        assert row(cluster, id_)["beat"]["count"] == 7
        assert rss(cluster) < 300 << 20
        flag.touch()
        cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step that hangs")


# --- g: text ----------------------------------------------------------------------------------------

LABEL = b'"} 1\nladon_x{a='  # as long as a process's name can be
ESCAPES = "\x1b]0;x\x07\x1b[2J<script>alert(1)</script>\n$(touch pwned)`id`"


def test_a_user_cannot_put_text_unescaped_into_log_terminal_page_mail_metrics_or_shell(cluster, told, port):
    """Names of job, step and process, the comment: whatever of it is shown is printable and no markup."""
    flag = cluster.work / "text"
    name = ESCAPES.encode()[:15].hex(), b"<u>&\x1b[31m\n\r\x9b".hex()
    script = (
        f"for n in {name[0]} {name[1]} {LABEL.hex()}; do attacker named $n & done;"
        f" exec play train --gpus 2,3 --stall-on {flag}"
    )
    opts: dict[str, object] = {
        "gres": "gpu:h100:2",
        "job_name": ESCAPES,
        "comment": ESCAPES,
        "chdir": "/tmp",
    }
    with step(cluster, ATTACKER, script, **opts) as (run, id_):
        cluster.await_verdict(id_, "HEALTHY")
        cluster.await_(lambda: run.out.count("ready") == 3, what="the names")
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
        policy = cluster.ladon("n1", "policy", id_).check().out
        flag.touch()
        cluster.await_(lambda: id_ not in cluster.steps(), what="the end of the step that hangs")
    reader = Reader(cluster.node("n1").journal)
    case = decisions(cluster, id_)[-1].case
    try:
        ended = lambda: [a.outcome for a in reader.actions(case) if a.kind == "mail" and a.outcome]  # noqa: E731
        assert cluster.await_(ended, what="the mail")[0].startswith("done")
        looked = lambda: [k for k in reader.looks(case) if k.part == "wait_channels"]  # noqa: E731
        (look,) = cluster.await_(looked, what="the deeper look")
    finally:
        reader.close()
    assert any("[31m" in line for line in look.lines), "it is shown, without what a terminal obeys"
    mails = lambda: (told / "mails").read_text()  # noqa: E731
    assert f"ladon: step {id_} on n1" in mails()
    assert all(
        re.fullmatch(r'[a-z_0-9]+(\{([a-z_]+="[^"\\\n]*",?)*\})? \S+', line)
        for line in metrics.splitlines()
        if line[0] != "#"
    ), metrics
    assert "ladon_x" not in metrics
    page = cluster.work / "case.html"
    cluster.ladon("n1", "explain", case, "--html", str(page), "--force").check()
    shown = [
        cluster.ladon("n1", "explain", case).check().out,
        cluster.ladon("n1", "explain", case, "--json").check().out,
        cluster.ladon("n1", "status").check().out,
        cluster.ladon("n1", "cases").check().out,
        cluster.ladon("n1", "digest").check().out,
        cluster.sinfo_reasons(),
        run.err,
        page.read_text(),
        (cluster.dir / "log" / "ladond-n1.out").read_text(),
        (told / "log.jsonl").read_text(),
        mails(),
        metrics,
        policy,
    ]
    for text in shown:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), text
        assert "<script>alert" not in text
    assert "<u>" not in page.read_text().partition("</style>")[2]
    assert not list(cluster.dir.rglob("pwned"))
