"""A real Prometheus scrapes the daemons of a real Slurm, with the alerts that are shipped."""

import json
import os
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from test_safety import SHORT, ends
from testbed.cluster import Cluster, free_ports
from testbed.gpus import Gpus

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: ladon
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def cluster(port):
    config = {**SHORT, "metrics": {"listen": f"127.0.0.1:{port}"}}
    with Cluster(nodes=("n2",), daemons=True, config=config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def prometheus(cluster, port):
    """Asks it: a query's series as [(labels, value)]."""
    program = shutil.which("prometheus")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "no prometheus: tools/system-packages installs it"
        )
    folder, own = cluster.dir / "prometheus", free_ports(1)[0]
    folder.mkdir()
    (folder / "prometheus.yml").write_text(PROMETHEUS.format(port=port))
    rules = (ROOT / "etc/ladon.rules.yml").read_text()
    (folder / "rules.yml").write_text(rules.replace("for: 1m", "for: 1s"))  # nobody waits for a minute here
    base = f"http://127.0.0.1:{own}/api/v1/"
    argv = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    cluster.start("prometheus", [*argv, f"--web.listen-address=127.0.0.1:{own}"])

    def ask(what):
        with urllib.request.urlopen(f"{base}query?query={urllib.parse.quote(what)}", timeout=60) as answer:
            return [(r["metric"], float(r["value"][1])) for r in json.load(answer)["data"]["result"]]

    def up():
        try:
            return ask('up{job="ladon"} == 1')
        except OSError:
            return None

    cluster.await_(up, what="Prometheus to scrape the daemon")
    yield ask
    cluster.stop("prometheus")


def page(port) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read().decode()


def test_a_stalled_step_and_a_lost_gpu_are_alerts_and_go_again(cluster, prometheus, port):
    """The whole road: played GPUs, ladond, the page, promtool, Prometheus, its alerts."""
    job = stalled_here(cluster)
    step = f"{job}.0"
    held = cluster.await_(
        lambda: prometheus(f'ladon_step_verdict{{step="{step}",verdict="ZOMBIE"}}'),
        what="ZOMBIE in Prometheus",
    )
    assert [labels["cause"] for labels, _ in held] == ["spinning"]
    firing = f'ALERTS{{alertname="LadonStepStalled",alertstate="firing",step="{step}"}}'
    cluster.await_(lambda: prometheus(firing), what="the alert")
    devices = {labels["device"] for labels, _ in prometheus(f'ladon_step_device{{step="{step}"}}')}
    assert devices == {"gpu0", "gpu1"}
    busy = prometheus(f'ladon_device_utilization_ratio * on (uuid) ladon_step_device{{step="{step}"}}')
    assert [value for _, value in busy] == [1.0, 1.0]
    # gpu3 is in MIG mode: neither it nor its instances have a utilisation, and no series of it
    assert {labels["device"] for labels, _ in prometheus("ladon_device_utilization_ratio")} == {
        "gpu0",
        "gpu1",
        "gpu2",
    }
    assert len(prometheus("ladon_device_info")) == 6
    # what is read once a minute; a card in MIG mode is none that a job can hold, its two instances are
    warm = 'ladon_device_temperature_celsius{sensor="gpu"} > 0'
    assert {labels["device"] for labels, _ in prometheus(warm)} == {"gpu0", "gpu1", "gpu2", "gpu3"}
    assert [value for _, value in prometheus("ladon_devices_usable")] == [5]
    ((_, memory),) = cluster.await_(lambda: prometheus("ladon_node_memory_bytes"), what="the node's memory")
    assert memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = page(port)
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")

    ends(cluster, job)
    cluster.await_(lambda: not prometheus(firing), what="the alert to end")
    cluster.await_(lambda: prometheus('ladon_cases_closed_total{kind="stall"} == 1'), what="the case to end")

    Gpus(cluster.node("n2").fake).lose(2)
    cluster.await_(
        lambda: prometheus('ALERTS{alertname="LadonFault",alertstate="firing",device="gpu2",check="lost"}'),
        what="the alert of a lost GPU",
    )
    assert {labels["device"] for labels, v in prometheus("ladon_device_lost == 1")} == {"gpu2"}
    assert not prometheus('ladon_device_power_watts{device="gpu2"}')
    assert not prometheus('ladon_device_temperature_celsius{device="gpu2"}'), "it is a minute old, and untrue"
    assert [value for _, value in prometheus("ladon_devices_usable")] == [4]


def stalled_here(cluster):
    flag = cluster.work / "stall"
    command = f"srun --ladon=cancel play train --gpus 0,1 --stall-on {flag}; echo"
    job = cluster.sbatch(command, gres="gpu:h100:2")
    cluster.await_verdict(f"{job}.0", "HEALTHY")
    flag.touch()
    return job


def test_clients_that_hold_their_connections_hold_neither_ticks_nor_scrapes(cluster, port):
    """More than it takes, some silent, some that ask and never read."""
    held = []
    for i in range(40):
        sock = socket.create_connection(("127.0.0.1", port))
        held.append(sock)
        sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" if i % 2 else b"GET /met")
    before = cluster.status("n2")["t"]
    cluster.await_(lambda: cluster.status_now("n2").get("t", 0) > before + 1, what="ticks")
    assert "ladon_build_info" in page(port)
    for sock in held:
        sock.close()


def test_a_reload_that_fails_is_seen_and_a_dead_daemon_is_an_alert(cluster, prometheus, port):
    node = cluster.node("n2")
    text = node.config.read_text()
    node.config.write_text("mode: maybe\n")
    cluster.process("ladond-n2").send_signal(1)
    cluster.await_(lambda: prometheus("ladon_config_ok == 0"), what="the refused settings in Prometheus")
    node.config.write_text(text)
    node.stop_daemon()
    cluster.await_(lambda: prometheus('up{job="ladon"} == 0'), what="Prometheus to miss it")
    cluster.await_(lambda: not prometheus("ladon_build_info"), what="its series to end")
    node.start_daemon()
    cluster.await_(lambda: prometheus("ladon_config_ok == 1"), what="the daemon in Prometheus again")
