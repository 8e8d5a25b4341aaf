"""Which node of Slurm this is. Never the host's name (N04), never a name that Slurm would expand.

`node_name` in the config, else SLURMD_NODENAME, else what `scontrol show aliases HOST` says where it
gives exactly one (it reads slurm.conf and works with slurmctld stopped).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from msgspec import Struct

from ladon_slurm.children import Call, CallError, Result, run
from ladon_slurm.config import Settings, one_node


class NodeName(Struct, frozen=True):
    """`name` is also the folder under run_dir. `why_not`: why nothing may be acted on under it."""

    name: str
    origin: str
    why_not: str | None = None


def find(settings: Settings, env: Mapping[str, str] = os.environ) -> NodeName:
    """The node's name. Blocks for one local call at most; never raises."""
    host = socket.gethostname().partition(".")[0] or "localhost"
    if settings.node_name:
        return checked(settings.node_name, "node_name in the config", host)
    if env.get("SLURMD_NODENAME"):
        return checked(env["SLURMD_NODENAME"], "SLURMD_NODENAME", host)
    try:
        names = run(aliases(settings, host))
    except CallError as e:
        return NodeName(host, "host name", f"the node's name in Slurm is not known ({e}); set node_name")
    if len(names) == 1:
        return checked(names[0], "scontrol show aliases", host)
    found = "no node" if not names else ", ".join(names)
    why = f"`scontrol show aliases {host}` gives {found}; set node_name in the config"
    return NodeName(host, "host name", why)


def checked(name: str, origin: str, host: str) -> NodeName:
    """A name that Slurm would expand is not used: it drains what it can of it."""
    if one_node(name):
        return NodeName(name, origin)
    return NodeName(host, "host name", f"{origin} {name!r} is not the name of one node")


def aliases(settings: Settings, host: str) -> Call[list[str]]:
    env = dict(os.environ, LC_ALL="C")
    if settings.slurm.conf:
        env["SLURM_CONF"] = settings.slurm.conf

    def parse(result: Result) -> list[str]:
        if result.rc != 0:
            text = result.err.decode("utf-8", "replace").strip().splitlines()
            raise CallError(text[0][:200] if text else "scontrol does not answer")
        return result.out.decode("utf-8", "replace").split()

    return Call(["scontrol", "show", "aliases", host], settings.slurm.timeout, parse, env=env)
