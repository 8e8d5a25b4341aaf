"""What a step asked for with --ladon, as far as the verdict goes. The plugin has checked the grammar."""

from __future__ import annotations

from typing import Literal, cast, get_args

from msgspec import Struct

from ladon_slurm.config import Dwell, seconds

StepClass = Literal["train", "serve", "interactive"]
BeatTerm = Literal["required", "optional"]


class Terms(Struct, frozen=True):
    """`window=`, `grace=`, `class=` and `beat=` of the option text; None where not given."""

    window_s: float | None = None
    grace_s: float | None = None
    cls: StepClass | None = None
    beat: BeatTerm | None = None  # required: without a late beat it is never taken for stalled

    def window(self, dwell: Dwell) -> float | None:
        """`window=` up to the site's most, s; None where the step gave none."""
        return None if self.window_s is None else min(self.window_s, dwell.window_most)

    def grace(self, dwell: Dwell) -> float:
        """For how long after its start it is not called stalled, s: `grace=` up to the site's most."""
        return dwell.grace if self.grace_s is None else min(self.grace_s, dwell.grace_most)


def terms(options: str | None) -> Terms:
    """Terms of a text such as `cancel,window=10m,class=serve`. What it does not know it leaves out."""
    given = dict(part.split("=", 1) for part in (options or "").split(",") if "=" in part)
    cls, beat = given.get("class"), given.get("beat")
    return Terms(
        _duration(given.get("window")),
        _duration(given.get("grace")),
        cast(StepClass, cls) if cls in get_args(StepClass) else None,
        cast(BeatTerm, beat) if beat in get_args(BeatTerm) else None,
    )


def _duration(text: str | None) -> float | None:
    try:
        return seconds(text) if text else None
    except ValueError:
        return None
