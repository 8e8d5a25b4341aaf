"""`slurmd -G` as it is asked: a real child, whatever it does; and the capability files below /proc."""

import os
import signal
import time

import pytest

from ladon_slurm.collectors import gres
from ladon_slurm.collectors.gres import Positions, capabilities
from ladon_slurm.facts import Capability, NodeFacts

LINE = (
    "Gres Name=gpu Type=h100 Count=1 Index=0 ID=7696487 File=/dev/null,/dev/nvidia-caps/nvidia-cap22 (null)"
)


@pytest.fixture
def slurmd(tmp_path, monkeypatch):
    """Puts a shell script in slurmd's place; gives the environment to find it. It runs as we do, who may write."""
    monkeypatch.setattr(gres, "SYSTEM", "/usr/bin")
    monkeypatch.setattr(gres.os, "geteuid", lambda: 1000)

    def put(script):
        path = tmp_path / "slurmd"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n9"}

    return put


def at(tmp_path, **minors):
    """gpu0/mig/gi1/access -> its minor number, below a /proc."""
    for path, text in minors.items():
        file = tmp_path / "proc/driver/nvidia/capabilities" / path.replace("__", "/") / "access"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path / "proc"


ACCESS = "DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"


def test_capability_files_are_known_by_their_number(tmp_path):
    proc = at(
        tmp_path,
        gpu0__mig__gi1=ACCESS.format(21),
        gpu0__mig__gi1__ci0=ACCESS.format(22),
        gpu12__mig__gi2__ci1=ACCESS.format(301),
        gpu0__mig__gi3=b"\xff\x00nonsense",
        gpu0__mig__gi4="DeviceFileMinor: \n",
        gpux__mig__gi5=ACCESS.format(5),
    )
    known = [Capability(21, 0, 1), Capability(22, 0, 1, 0), Capability(301, 12, 2, 1)]
    assert capabilities(proc) == known
    assert capabilities(tmp_path / "nowhere") is None, "no driver that has any"


def test_a_card_that_is_carved_anew_is_seen_at_once(tmp_path, slurmd):
    watch, env = Positions(str(tmp_path / "proc")), slurmd(f'echo "{LINE}"')
    at(tmp_path, gpu4__mig__gi1__ci0=ACCESS.format(22))
    assert watch.look("n1", "", env).positions[0].gi == 1
    at(tmp_path, gpu4__mig__gi1__ci0=ACCESS.format(99), gpu4__mig__gi5__ci0=ACCESS.format(22))
    assert watch.look("n1", "", env).positions[0].gi == 5


def test_slurmd_is_asked_by_the_nodes_name_and_without_a_jobs_environment(tmp_path, slurmd):
    env = slurmd(
        f'echo "$@ [$SLURM_JOB_ID$SLURMD_NODENAME] $SLURM_CONF" > {tmp_path}/asked; echo "slurmd: {LINE}" >&2'
    )
    proc = at(tmp_path, gpu4__mig__gi1__ci0=ACCESS.format(22))
    seen = Positions(str(proc), str(tmp_path / "none")).look("n1", "/x/slurm.conf", env)
    assert (tmp_path / "asked").read_text() == "-G -L /dev/null -N n1 [] /x/slurm.conf\n"
    assert seen.gres == {"h100": 1}
    (gpu,) = seen.positions
    assert (gpu.type, gpu.minor, gpu.gi, gpu.ci, gpu.instance) == ("h100", 4, 1, 0, True)


def test_a_configless_nodes_file_is_named_so_that_nothing_is_fetched(tmp_path, slurmd):
    env = slurmd(f'echo "$SLURM_CONF" > {tmp_path}/asked')
    fetched = tmp_path / "fetched.conf"
    fetched.touch()
    Positions(str(tmp_path), str(fetched)).look("n1", "", env)
    assert (tmp_path / "asked").read_text() == f"{fetched}\n"


@pytest.mark.parametrize(
    "script",
    [
        "exit 1",
        "kill -9 $$",
        f"printf '{LINE}'",  # cut off
        "echo 'Gres Name=gpu Type=a Count=x'",
        "head -c 3000000 /dev/zero | tr '\\0' '\\n'",
        "exec /nowhere",
    ],
)
def test_what_fails_or_makes_no_sense_is_not_known_and_no_node_without_gpus(tmp_path, slurmd, script):
    assert Positions(str(tmp_path)).look("n1", "", slurmd(script)) == NodeFacts()


def test_no_slurmd_at_all_is_not_known(tmp_path, slurmd):
    assert Positions(str(tmp_path)).look("n1", "", {"PATH": str(tmp_path)}) == NodeFacts()


def test_a_node_without_gres_is_known_to_have_none(tmp_path, slurmd):
    seen = Positions(str(tmp_path)).look("n1", "", slurmd("exit 0"))
    assert (seen.gres, seen.positions) == ({}, [])


def test_it_is_asked_again_where_its_files_have_changed_or_after_an_hour(tmp_path, slurmd, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(gres, "boottime", lambda: now[0])
    env = slurmd(f'echo x >> {tmp_path}/asked; echo "{LINE}"')
    asked = lambda: len((tmp_path / "asked").read_text().split())  # noqa: E731
    conf, watch = tmp_path / "slurm.conf", Positions(str(tmp_path))
    conf.touch()

    def look(after):
        now[0] += after
        return watch.look("n1", str(conf), env)

    first = look(0)
    assert look(gres.AGAIN_S) == first != NodeFacts()
    assert asked() == 1
    (tmp_path / "gres.conf").touch()
    look(1)
    assert asked() == 2
    os.utime(conf, (1, 1))
    look(gres.AGAIN_S - 1)
    assert asked() == 2, "changed, but asked a moment ago"
    look(1)
    assert asked() == 3
    look(gres.KEPT_S - 1)
    assert asked() == 3
    look(1)
    assert asked() == 4


def test_one_that_gave_nothing_is_asked_again_soon_and_then_ever_later(tmp_path, slurmd, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(gres, "boottime", lambda: now[0])
    watch, env = Positions(str(tmp_path)), slurmd(f"echo x >> {tmp_path}/asked; exit 1")
    asked = []
    for _ in range(40):
        before = len(asked)
        assert watch.look("n1", "", env) == NodeFacts()
        count = len((tmp_path / "asked").read_text().split())
        asked += [now[0] - 1000] * (count - before)
        now[0] += 60
    assert asked == [0, 60, 180, 420, 900, 1500, 2100]
    now[0] += gres.AGAIN_S
    assert watch.look("n1", "", slurmd(f'echo "{LINE}"')).gres == {"h100": 1}


def test_G01_one_that_hangs_gets_no_sigkill_and_is_left_behind(tmp_path, slurmd, monkeypatch):
    monkeypatch.setattr(gres, "DEADLINE_S", 0.2)
    env = slurmd(
        f'trap "echo term >> {tmp_path}/got" TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done'
    )
    watch = Positions(str(tmp_path))
    assert watch.look("n1", "", env) == NodeFacts()
    pid = int((tmp_path / "pid").read_text())
    try:
        os.kill(pid, 0)
        assert (tmp_path / "got").read_text() == "term\n"
        assert watch.calls.abandoned.alive() == 1
    finally:
        os.killpg(pid, signal.SIGKILL)
    while watch.calls.abandoned.alive():
        time.sleep(0.01)
