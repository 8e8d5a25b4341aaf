"""Which client talks to Slurm."""

from __future__ import annotations

import logging

from ladon_slurm.children import CallError, run
from ladon_slurm.config import Slurm
from ladon_slurm.slurm.base import SlurmClient
from ladon_slurm.slurm.cli_client import CliClient
from ladon_slurm.slurm.pyslurm_client import PyslurmClient

log = logging.getLogger(__name__)


def choose(settings: Slurm) -> SlurmClient:
    """The client that the settings name. Blocks with `auto`, two calls at most: for the start of a process.

    `auto`: pyslurm where it can be imported and is of slurmctld's release, else Slurm's commands. A
    slurmctld that is down is no reason to trust an untried pyslurm.
    """
    cli = CliClient(settings.conf, settings.timeout)
    if settings.client == "cli":
        return cli
    pyslurm = PyslurmClient(settings.conf, settings.timeout, settings.python)
    if settings.client == "pyslurm":
        return pyslurm
    try:
        run(pyslurm.hello())
        run(pyslurm.ping())
    except CallError as e:
        log.debug("pyslurm is not used: %s", e)
        return cli
    return pyslurm
