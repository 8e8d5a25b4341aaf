"""What the metrics are made of: the last snapshot, what was counted, what ladond itself costs.

Counts begin with the process, at nought: Prometheus knows a counter that begins anew. What is not known
is None or not there, and no series comes of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from ladon_slurm.model import Action, Case, Decision, HostUse
from ladon_slurm.shown import Snapshot

CASE_KINDS = ("stall", "fault")
OUTCOMES = ("done", "dropped", "gave_up")
ERRORS = ("journal", "config", "run_dir", "metrics")
MOST_KINDS = 16  # of a site's own reapers; what is beyond is counted as "other"
GAVE_UP = "dropped: given up"  # as reapers.rung.stuck begins


def outcome_of(action: Action) -> str:
    """One of OUTCOMES, for an action that has ended."""
    said = action.outcome or ""
    return "done" if said.startswith("done") else "gave_up" if said.startswith(GAVE_UP) else "dropped"


class Counts:
    """What happened since this process began."""

    def __init__(self, kinds: Iterable[str], cases: Iterable[str], actions: Iterable[int]) -> None:
        """`kinds`: of action; `cases` and `actions`: the ids of those that are open already."""
        self._kinds = dict.fromkeys((*kinds, "log"))  # in their order
        self._ours = len(self._kinds)
        self._cases, self._actions = set(cases), set(actions)
        self.opened: Counter[str] = Counter(dict.fromkeys(CASE_KINDS, 0))
        self.closed: Counter[str] = Counter(dict.fromkeys(CASE_KINDS, 0))
        self.decisions: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[str] = Counter(dict.fromkeys(ERRORS, 0))
        self.ticks = self.late = self.scrapes = 0
        self.reading_s = self.working_s = 0.0
        for kind in self._kinds:
            self.decisions.update({(kind, "no"): 0, (kind, "yes"): 0})
            if kind != "log":
                self.ended.update({(kind, outcome): 0 for outcome in OUTCOMES})

    def kind(self, name: str) -> str:
        """The label of a kind of action: a site's own reapers are not without end either."""
        if name not in self._kinds:
            if len(self._kinds) >= self._ours + MOST_KINDS:
                return "other"
            self._kinds[name] = None
        return name

    def case(self, case: Case) -> None:
        """A case as it is now."""
        if case.closed is None:
            self.opened[case.kind] += case.id not in self._cases
            self._cases.add(case.id)
        else:
            self.closed[case.kind] += case.id in self._cases
            self._cases.discard(case.id)

    def decision(self, decision: Decision) -> None:
        self.decisions[self.kind(decision.action), "yes" if decision.would else "no"] += 1

    def action(self, action: Action, _t: float = 0.0, _mark: str | None = None) -> None:
        """An action as the journal has it now; what is added after its end is no further end."""
        if action.ended is None:
            self._actions.add(action.id)
        elif action.id in self._actions:
            self._actions.discard(action.id)
            self.ended[self.kind(action.kind), outcome_of(action)] += 1


class Own(Struct):
    """What ladond and its readers cost now; by part: daemon, nvml, proc, children (those that have ended)."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    rss_bytes: dict[str, float] = field(default_factory=dict)
    abandoned: dict[str, int] = field(default_factory=dict)  # children that hang and were left alone
    journal_bytes: int | None = None


class Moment(Struct):
    """All of it at one moment. `snapshot` None: nothing was read yet."""

    version: str
    counts: Counts
    own: Own
    snapshot: Snapshot | None = None
    read_at: float | None = None  # of the snapshot, s since 1970
    sources: dict[str, str] = field(default_factory=dict)  # ok, late, dead
    host: dict[str, HostUse] = field(default_factory=dict)  # by step id
    cases: list[Case] = field(default_factory=list)  # open ones
    actions: list[Action] = field(default_factory=list)  # on their way
    begun: int | None = None  # actions that began within the last hour
    per_hour: int | None = None  # how many may
    share: float | None = None  # of the cluster's nodes that Ladon may have drained
    journal_ok: bool | None = None
    config_ok: bool | None = None  # what the last reload came to; True before the first
