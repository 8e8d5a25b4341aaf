"""What a policy is asked about: a step or a fault, with all that is known of it at that moment."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ladon_slurm.model import JobFacts, Step


class Held(Struct, frozen=True, omit_defaults=True):
    """A run that its owner, or root, wants left alone. Belongs to the run, not to the number it has now."""

    run: str
    step: str  # as it was called then
    uid: int  # who said so last, from the kernel
    by: str  # the name
    until: float  # t
    used_s: float = 0.0  # what the owner's holds have added up to so far
    root_until: float = 0.0  # t to which root holds it beneath the owner's


class Subject(Struct, frozen=True):
    """A step, or a fault where `check` is set. What is None is not known."""

    node: str
    step: Step | None = None
    cause: str | None = None  # of a stall; None before there is one
    check: str | None = None
    classes: frozenset[str] | None = None  # of its devices
    job: JobFacts | None = None  # as slurmctld has it
    why_no_job: str = "not asked for yet"
    wall: datetime | None = None  # local time of the node
    held: Held | None = None
    others_work: bool = True  # another step of its job makes progress, or may

    @property
    def job_id(self) -> int | None:
        """The job's number: of "42.0", "42.batch" and "42.0#2"."""
        number = (self.step.id if self.step else "").partition(".")[0]
        return int(number) if number.isascii() and number.isdigit() else None
