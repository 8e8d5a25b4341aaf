"""What the site's settings come to for one subject, and which of them gave each value. Pure.

Values: the first rule that matches and sets one, else the general setting. Action: the least of what the
site says, what the step asks for, what its kind allows and what is never touched; so a step can only
lower it. A value that hangs on something not known is `missing`: then nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.config import Rule, Settings, Stalls
from ladon_slurm.model import ActionKind, JobFacts, Step
from ladon_slurm.policy.match import Answer, like, matches, spared
from ladon_slurm.policy.subject import Subject

LEAST_FIRST: tuple[ActionKind, ...] = ("log", "notify", "custom", "cancel", "requeue")
RANKS = {"signal": "cancel"}  # beside an action; a site's own reapers count as custom
BESIDE = "another step of its job makes progress, or may, or asks to be left alone"
ASIDE = ("hold_most",)  # values that no action hangs on

ASKED: dict[str, ActionKind] = {
    "default": "requeue",  # whatever the site's action is
    "off": "log",
    "observe": "log",
    "notify": "notify",
    "cancel": "cancel",
    "requeue": "requeue",
}


class Bound(Struct, frozen=True):
    """What is allowed at most, and by what."""

    level: ActionKind
    rule: str
    why: str  # for people


class RuleSaid(Struct, frozen=True):
    """A rule of the site, and whether it is about the subject; None: not known."""

    name: str
    where: str
    matches: bool | None
    why: str


class Stance(Struct, frozen=True):
    """All that holds for a subject."""

    action: ActionKind  # in the end; "log" or "drain" for a fault
    rule: str  # what gave it
    why: str
    also: list[ActionKind]  # what is done beside it
    stalls: Stalls  # every value as the rules have it; its `action` is what the site allows
    origins: dict[
        str, str
    ]  # field of Stalls, or "faults" -> "rule night (ladon.yaml:31)", "reclamation.warn"
    bounds: list[Bound]  # the site's, the step's and so on, in the order of docs/policy.md
    missing: list[str]  # what has to be known, and why it is not; [] where the answer stands
    rules: list[RuleSaid]
    facts: JobFacts | None = None


def stance(s: Subject, settings: Settings) -> Stance:
    """What holds for `s`."""
    if s.job is not None and (why := _foreign(s)) is not None:
        s = replace(s, job=None, why_no_job=why)
    answers = [(rule, matches(rule.match, s)) for rule in settings.rules]
    said = [RuleSaid(r.name, r.where, a.yes, a.why) for r, a in answers]
    if s.check is not None:
        return _fault(s, settings, answers, said)
    return _stall(s, settings, answers, said)


def rank(kind: ActionKind) -> int:
    """How much is done; `signal`, `custom` and a site's own reapers may well end a step."""
    kind = RANKS.get(kind, kind)
    return LEAST_FIRST.index(kind) if kind in LEAST_FIRST else LEAST_FIRST.index("custom")


def word_of(options: str | None) -> str | None:
    """What `--ladon` asked for: a word, `default` where only keys or nothing was given, None without it."""
    if options is None:
        return None
    first = options.split(",", 1)[0].strip()
    return "default" if not first or "=" in first else first


Answers = list[tuple[Rule, Answer]]


def _foreign(s: Subject) -> str | None:
    """Why slurmctld's record cannot be this step's job (K07)."""
    job, uid = s.job, s.step.uid if s.step is not None else None
    assert job is not None
    if job.job != s.job_id:
        return f"slurmctld told of job {job.job}"
    if job.uid is None or job.uid != uid:
        return f"slurmctld says the job is of uid {job.uid}, the step is of uid {uid}"
    return None


def _first(answers: Answers, key: str) -> tuple[Rule | None, list[tuple[Rule, Answer]]]:
    """The rule that gives `key`, None for the general setting; and those before it that might."""
    open_: list[tuple[Rule, Answer]] = []
    for rule, answer in answers:
        if key in rule.set and answer.yes is True:
            return rule, open_
        if key in rule.set and answer.yes is None:
            open_.append((rule, answer))
    return None, open_


def _named(rule: Rule) -> str:
    return f"rule {rule.name} ({rule.where})"


# --- a fault ------------------------------------------------------------------------------------


def _fault(s: Subject, settings: Settings, answers: Answers, said: list[RuleSaid]) -> Stance:
    check = s.check or ""
    rule, open_ = _first(answers, "action")
    missing = [f"{_named(r)}: {a.why}" for r, a in open_]
    if rule is not None:
        action, origin = str(rule.set["action"]), _named(rule)
    elif (key := next((k for k in settings.faults.checks if like([k], check)), None)) is not None:
        action, origin = settings.faults.checks[key], f"faults.checks.{key}"
    else:
        action, origin = settings.faults.action, "faults.action"
    words = "the node is to be drained" if action == "drain" else "the site only records faults"
    bounds = [Bound(action, f"{origin}: {action}", words)]
    never = spared(settings.never, s)
    if never.yes:
        bounds.append(Bound("log", never.why, "only recorded, for this node is never touched"))
    last, missing = bounds[-1], [] if never.yes else missing
    return Stance(
        last.level, last.rule, last.why, [], settings.stalls, {"faults": origin}, bounds, missing, said
    )


# --- a stall ------------------------------------------------------------------------------------


def _stall(s: Subject, settings: Settings, answers: Answers, said: list[RuleSaid]) -> Stance:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    open_of: dict[str, Answers] = {}
    for key in Stalls.__struct_fields__:
        rule, open_of[key] = _first(answers, key)
        origins[key] = _named(rule) if rule is not None else f"reclamation.{key}"
        if rule is not None:
            values[key] = rule.set[key]
    stalls = replace(settings.stalls, **values)
    bounds = list(_bounds(s, stalls, origins))
    never = spared(settings.never, s)
    if never.yes:
        bounds.append(Bound("log", never.why, "only recorded, for the site never touches it"))
    site, asked, *others = bounds
    least = min((asked, site, *others), key=lambda b: rank(b.level))  # of equals the first
    level = min((b.level for b in (asked, *others)), key=rank)
    also = [kind for kind in stalls.also if level != "log" and rank(kind) <= rank(level)]
    missing = [] if never.yes else list(_missing(s, stalls, open_of, bounds, never))
    return Stance(least.level, least.rule, least.why, also, stalls, origins, bounds, missing, said, s.job)


def _bounds(s: Subject, stalls: Stalls, origins: Mapping[str, str]) -> Iterator[Bound]:
    """What the site says first."""
    site = f"{origins['action']}: {stalls.action}"
    if s.step is None:
        yield Bound(stalls.action, site, "the site's action")
        yield Bound("log", "step not known", "only recorded, for the step's registration is not known")
        return
    asked = _asked(s.step, stalls, origins)
    yield Bound(stalls.action, site, _site_words(s.step, stalls, asked))
    yield asked
    yield from _kind(s.step, stalls, s.others_work)
    if stalls.action == "requeue" and (why := _no_requeue(s)) is not None:
        yield Bound("cancel", "no requeue", why)


def _site_words(step: Step, stalls: Stalls, asked: Bound) -> str:
    word = word_of(step.options)
    if word is None:
        return f"the site does {stalls.action} at most"
    if word == "default":
        return f"the step asked for the site's action, {stalls.action}"
    if rank(asked.level) <= rank(stalls.action):
        return f"the site does {stalls.action} at most"
    return f"the step asked for {word}; the site allows no more than {stalls.action}"


def _asked(step: Step, stalls: Stalls, origins: Mapping[str, str]) -> Bound:
    """What the step itself consents to."""
    word = word_of(step.options)
    if word is None:
        rule = f"no --ladon, {origins['unasked']}: {stalls.unasked}"
        if stalls.unasked != "log":
            return Bound(stalls.unasked, rule, "the step did not ask, and the site acts then, too")
        more = f"; with --ladon the site's action would be {stalls.action}" if stalls.action != "log" else ""
        return Bound("log", "no --ladon", f"watched only, for the step did not ask{more}")
    level = ASKED.get(word)
    if level is None:  # an option of another version: the least
        return Bound("log", f"--ladon={word}", f"only recorded, for --ladon={word} is not known here")
    if word == "off":
        return Bound("log", "--ladon=off", "only recorded, for the step asked to be left alone")
    return Bound(level, f"--ladon={word}", f"the step asked for {word}")


def _kind(step: Step, stalls: Stalls, others_work: bool) -> Iterator[Bound]:
    """What the kind of step allows at most, whoever asks."""
    if step.special == "batch" and stalls.cancel_batch == "never":  # K01
        yield Bound("notify", "batch step", "a batch step is never cancelled, its owner is told")
    elif step.special == "batch" and others_work:
        yield Bound("notify", "batch step", f"its owner is told, for {BESIDE}")
    elif step.special == "batch":
        pass  # the job as a whole
    elif step.special is not None:  # C06
        yield Bound("log", f"{step.special} step", f"{step.special} steps are never acted on")
    if step.nodes is None and step.special is None:
        yield Bound("log", "node list not known", "only recorded, for the step's nodes are not known")
    elif step.nodes is not None and len(step.nodes) != 1:
        yield Bound("log", "more than one node", "a step on more than one node is never acted on yet")


def _no_requeue(s: Subject) -> str | None:
    """Why the whole job is not requeued, but its step cancelled; None where it may be, or is not known."""
    if s.others_work:
        return f"cancelled and not requeued, for {BESIDE}"
    if s.step is not None and s.step.options is not None and s.step.options_from == "srun":
        return "cancelled and not requeued, for --ladon was given to srun: the step asked, and not its job"
    if s.job is not None and not s.job.batch:
        return "cancelled and not requeued, for it is not of a batch job"
    if s.job is not None and not s.job.requeue:
        return "cancelled and not requeued, for its job has Requeue=0"
    return None


def _missing(
    s: Subject, stalls: Stalls, open_of: Mapping[str, Answers], bounds: list[Bound], never: Answer
) -> Iterator[str]:
    """What has to be known before anything is done; nothing where nothing would be done anyhow."""
    _, asked, *others = bounds
    asks = s.step is not None and word_of(s.step.options) is not None
    may = {asked.level} if asks else {asked.level, *(r.set["unasked"] for r, _ in open_of["unasked"])}
    most = min((max(may, key=rank), *(b.level for b in others)), key=rank)
    possible = {stalls.action, *(r.set["action"] for r, _ in open_of["action"])}
    if most == "log" or (possible == {"log"} and not stalls.also and not open_of["also"]):
        return
    for key, open_ in open_of.items():
        if key not in ASIDE and not (asks and key == "unasked"):
            yield from (f"{_named(r)} sets {key}, and {a.why}" for r, a in open_)
    if never.yes is None:
        yield f"never: {never.why}"
    if "requeue" in possible and s.job is None and rank(most) > rank("cancel"):
        yield f"whether its job may be requeued is not known: {s.why_no_job}"
