"""The texts of a cluster: slurm.conf, gres.conf, plugstack.conf, TaskProlog, ladon.yaml. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MAJOR = 60  # device numbers 60-63 are for local use: no driver answers, whatever the machine has
CAP_MAJOR = 61


@dataclass(frozen=True)
class Gres:
    """One GRES of a node: its type and the character devices that it stands for."""

    type: str
    files: tuple[str, ...]  # below the node's dev folder


@dataclass(frozen=True)
class Plan:
    """What a cluster is made of; every text follows from it."""

    dir: Path
    host: str
    nodes: tuple[str, ...]
    ctld_port: int
    ports: Mapping[str, int]
    gpus: int = 4
    mig: Mapping[tuple[str, int], Sequence[str | None]] = field(default_factory=dict)  # None: a gap
    cls: str = "h100"
    cpus: int = 16
    memory_mb: int = 16000
    plugin: Path | None = None
    plugin_args: str = ""
    healthcheck: Path | None = None
    health_s: int = 2
    libs: Path | None = None  # where the fake libnvidia-ml.so.1 is
    mail_prog: str = "/bin/true"  # {dir} is the cluster's folder
    extra: str = ""  # further lines of slurm.conf
    # node -> its Gres= in slurm.conf and its lines of gres.conf, with /dev/ for its own dev folder
    given: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def run(self) -> Path:
        """The daemons' run_dir; each node has a folder in it."""
        return self.dir / "run"

    def dev(self, node: str) -> Path:
        """The node's /dev."""
        return self.dir / node / "dev"

    def fake(self, node: str) -> Path:
        """The folder in which the node's GPUs are played."""
        return self.dir / node / "gpus"

    def kmsg(self, node: str) -> Path:
        """What the node's daemon takes for /dev/kmsg."""
        return self.dir / node / "kmsg"

    def profiles(self, node: str) -> dict[int, list[str | None]]:
        """The node's cards in MIG mode: index -> profiles of their instances, None for a gap."""
        return {gpu: list(profiles) for (n, gpu), profiles in sorted(self.mig.items()) if n == node}

    def gres(self, node: str) -> list[Gres]:
        """The node's GRES in the order of its positions: whole cards first, then MIG instances.

        An instance has its card's file and two capability devices, as on a real node.
        """
        split = self.profiles(node)
        whole = [Gres(self.cls, (f"nvidia{i}",)) for i in range(self.gpus) if i not in split]
        flat = [(gpu, profile) for gpu, profiles in split.items() for profile in profiles if profile]
        parts = [
            Gres(
                f"{self.cls}_{profile}",
                (f"nvidia{gpu}", f"nvidia-caps/nvidia-cap{2 * i + 1}", f"nvidia-caps/nvidia-cap{2 * i + 2}"),
            )
            for i, (gpu, profile) in enumerate(flat)
        ]
        return whole + parts


SLURM_CONF = """\
ClusterName=ladon
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge/socket
CredType=cred/munge
StateSaveLocation={dir}/state/slurmctld
SlurmdSpoolDir={dir}/%n/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/%n/slurmd.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdLogFile={dir}/log/slurmd-%n.log
SlurmctldDebug=debug
SlurmdDebug=debug
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
KillWait=2
UnkillableStepTimeout=120
MailProg={mail_prog}
TaskProlog={dir}/task-prolog
PlugStackConfig={dir}/plugstack.conf
GresTypes={types}
"""


def slurm_conf(plan: Plan) -> str:
    """slurm.conf of the whole cluster."""
    gres = {
        node: plan.given[node][0] if node in plan.given else _counts(plan.gres(node)) for node in plan.nodes
    }
    types = dict.fromkeys(
        ["gpu", *(word.partition(":")[0] for text in gres.values() for word in text.split(","))]
    )
    text = SLURM_CONF.format(
        host=plan.host,
        ctld_port=plan.ctld_port,
        dir=plan.dir,
        mail_prog=plan.mail_prog.format(dir=plan.dir),
        types=",".join(filter(None, types)),
    )
    if plan.healthcheck:
        text += f"HealthCheckProgram={plan.healthcheck}\nHealthCheckInterval={plan.health_s}\n"
        text += "HealthCheckNodeState=ANY\n"
    for node in plan.nodes:
        text += (
            f"NodeName={node} NodeHostname={plan.host} NodeAddr=127.0.0.1 Port={plan.ports[node]}"
            f" CPUs={plan.cpus} RealMemory={plan.memory_mb} Gres={gres[node]}\n"
        )
    text += "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    return text + plan.extra


def _counts(gres: Sequence[Gres]) -> str:
    """`gpu:h100:3,gpu:h100_3g.40gb:2`."""
    types = [g.type for g in gres]
    return ",".join(f"gpu:{t}:{types.count(t)}" for t in dict.fromkeys(types))


def gres_conf(plan: Plan) -> str:
    """gres.conf: a line per GRES, so that positions are plain to see."""
    lines = []
    for node in plan.nodes:
        if node in plan.given:
            for line in plan.given[node][1].splitlines():
                lines.append(f"NodeName={node} {line}\n".replace("/dev/", f"{plan.dev(node)}/"))
            continue
        for gres in plan.gres(node):
            files = ",".join(str(plan.dev(node) / f) for f in gres.files)
            key = "MultipleFiles" if len(gres.files) > 1 else "File"
            lines.append(f"NodeName={node} Name=gpu Type={gres.type} {key}={files}\n")
    return "".join(lines)


def plugstack(plan: Plan) -> str:
    """plugstack.conf: the plugin where it is built, else nothing."""
    if not plan.plugin:
        return "# no plugin\n"
    return f"optional {plan.plugin} run={plan.run} {plan.plugin_args}".rstrip() + "\n"


def task_prolog(plan: Plan) -> str:
    """TaskProlog: srun hands on the submitter's environment, so the node's own is set again here.

    SLURMD_NODENAME is each node's own one in here, also for srun inside sbatch (seen on 22.05.8).
    """
    lines = [
        "#!/bin/sh",
        f'echo "export LADON_TESTBED={plan.dir}"',
        f'echo "export SLURM_CONF={plan.dir}/slurm.conf"',
        f'echo "export LADON_FAKE_NVML={plan.dir}/$SLURMD_NODENAME/gpus"',
        f'echo "export PATH={plan.dir}/bin:$PATH"',
    ]
    if plan.libs:
        lines.append(f'echo "export LD_LIBRARY_PATH={plan.libs}"')
    return "\n".join(lines) + "\n"


Tree = Mapping[str, object]


def ladon_yaml(plan: Plan, node: str, changes: Tree) -> str:
    """The daemon's config on one node: this cluster's paths, a fast tick, and what the caller changes."""
    base: dict[str, object] = {
        "node_name": node,
        "run_dir": str(plan.run),
        "state_dir": f"{plan.dir}/state/{node}",
        "stop_file": f"{plan.dir}/STOP",
        # Not this machine's own: its cards are none of the played ones. And no site's checks.
        "health": {
            "kernel_log": str(plan.kmsg(node)),
            "checks": {"dir": f"{plan.dir}/{node}/checks.d"},
        },
        "tick": "0.2s",
        # its network is that of the whole machine, whatever else goes on there
        "thresholds": {"nic_max": 1000000},
        "drain": {"jitter": "0s"},  # tests of drains wait for them
        "limits": {"per_hour": 1000},  # and make many
        "slurm": {"conf": f"{plan.dir}/slurm.conf"},
    }
    return yaml(merged(base, changes))


def merged(base: Tree, changes: Tree) -> dict[str, object]:
    """`changes` over `base`, section by section."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def yaml(tree: Tree, indent: str = "") -> str:
    """A tree of plain words as YAML."""
    text = ""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            text += f"{indent}{key}:\n{yaml(value, indent + '  ')}"
        else:
            text += f"{indent}{key}: {value}\n"
    return text
