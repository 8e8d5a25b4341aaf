"""`ladon hold`: how long a run is left alone because its owner, or root, wants it so. Pure."""

from __future__ import annotations

from ladon_slurm.model import Step
from ladon_slurm.policy.subject import Held

ROOT = 0
ROOT_MOST_S = 86400.0  # ahead of now; as often as root likes
LEAST_S = 1.0


class Refused(Exception):  # noqa: N818
    """Not granted; str() says why and what can be had."""


def grant(was: Held | None, step: Step, uid: int, seconds: float, most: float, t: float) -> Held:
    """A hold from `t` on for `seconds`. What the owner's add up to is at most `most` s a run.

    It counts what is added: a hold that is asked for again while it lasts costs what it lasts longer.
    Raises Refused.
    """
    until = t + seconds
    if not seconds >= LEAST_S:
        raise Refused("a hold takes a duration such as 30m")
    if uid == ROOT:
        if seconds > ROOT_MOST_S:
            raise Refused("a hold of root is for a day at most: `ladon hold JOB.STEP 1d`, and again tomorrow")
        return Held(step.run, step.id, uid, "root", until, used(was, t))
    if uid != step.uid:
        raise Refused("it is not your step: its owner and root can hold it")
    now = was.until if was is not None and was.uid != ROOT and was.until > t else t
    if was is not None and was.until >= until:
        raise Refused(f"it is held already, by {was.by}, and for longer than that")
    left = most - used(was, None)
    if until - now > left:
        can = "nothing more" if left < LEAST_S else f"no more than another {_whole(left)}"
        raise Refused(f"the site allows {_whole(most)} in sum for a run (reclamation: hold_most): {can}")
    roots = 0.0 if was is None else was.until if was.uid == ROOT else was.root_until
    return Held(step.run, step.id, uid, "its owner", until, used(was, None) + until - now, roots)


def release(was: Held | None, step: Step, uid: int, t: float) -> Held:
    """The hold ends at `t`; what an owner did not use of it is not lost. Raises Refused."""
    if uid not in (ROOT, step.uid):
        raise Refused("it is not your step: its owner and root can release it")
    if was is None or was.until <= t:
        raise Refused("nobody holds it")
    if uid != ROOT and was.uid == ROOT:
        raise Refused("root holds it: ask your administrator")
    if uid != ROOT and was.root_until > t:  # what root holds is root's to release
        return Held(step.run, step.id, ROOT, "root", was.root_until, used(was, t))
    return Held(step.run, step.id, uid, was.by, t, used(was, t))


def _whole(s: float) -> str:
    """Never more than it is: what is said can be asked for."""
    if s < 120:
        return f"{int(s)} s"
    hours, minutes = divmod(int(s) // 60, 60)
    return " ".join(filter(None, (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "")))


def used(was: Held | None, released: float | None) -> float:
    """What the owner's holds have added up to; where it ends at `released`, without what was left of it."""
    if was is None:
        return 0.0
    if was.uid == ROOT or released is None:
        return was.used_s
    return max(0.0, was.used_s - max(0.0, was.until - released))
