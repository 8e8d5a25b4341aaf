"""Where GPUs are read: NVML, or nvidia-smi where NVML's library or the binding to it cannot be loaded.

A driver that is not loaded, or that does not answer, is no reason for the latter: nvidia-smi is NVML, too.
NVML is tried again in each slow round.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ladon_slurm.collectors.nvidia_smi import PROGRAM, Said, Smi
from ladon_slurm.parse.answers import Line, Request

if TYPE_CHECKING:
    from ladon_slurm.collectors.nvml import Nvml


class Gpus:
    """The GPUs as seen by one worker."""

    def __init__(self) -> None:
        self.smi: Smi | None = None  # while it is in use
        self.nvml: Nvml | None = None
        self.why = ""  # there is no binding
        self.first = True
        try:
            from ladon_slurm.collectors.nvml import Nvml

            self.nvml = Nvml()
        except (ImportError, AttributeError) as e:  # AttributeError: of another module called pynvml
            self.why = f"nvidia-ml-py cannot be used: {e}"

    def answer(self, request: Request) -> Iterator[Said]:
        """The lines of one round."""
        first, self.first = self.first, False
        why: str | None = self.why
        if self.nvml is not None:
            why = None
            for part in self.nvml.answer(request):
                if isinstance(part, Line) and part.asking is None and self.nvml.absent:
                    why = part.why or ""  # of what else it says nothing is known
                else:
                    yield part
        if why is None:
            self.smi = None
        elif shutil.which(PROGRAM) is None:
            yield Line(source="dead", why=f"{why}; and there is no {PROGRAM}")
        else:
            self.smi = self.smi or Smi()
            yield from self.smi.answer(request, why, first)
