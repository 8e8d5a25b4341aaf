"""Slurm: one protocol, a client over its commands and one over pyslurm, both in one-shot children."""

from ladon_slurm.slurm.base import (
    NodeFacts,
    NoSuchNode,
    SlurmClient,
    SlurmDown,
    SlurmError,
    SlurmRefused,
    SlurmTimeout,
    StepFacts,
)

__all__ = [
    "NoSuchNode",
    "NodeFacts",
    "SlurmClient",
    "SlurmDown",
    "SlurmError",
    "SlurmRefused",
    "SlurmTimeout",
    "StepFacts",
]
