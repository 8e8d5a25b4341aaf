"""From decisions to the rows of the journal: what is begun, and what is taken up again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ladon_slurm.config import Stalls
from ladon_slurm.journal import Journal
from ladon_slurm.model import Action, Case, Decision
from ladon_slurm.policy.comeback import Drained
from ladon_slurm.reapers.registry import NoReaper, Registry
from ladon_slurm.reapers.rung import again, anew, dropped
from ladon_slurm.reapers.standing import KIND

TO_STEPS = ("cancel", "cancel_job", "requeue")  # one of them in a case, whatever the settings come to be
CAME_AGAIN = "the fault came again after the node was brought back: drained again"
MAILED = ("notify", "cancel", "cancel_job", "requeue")


class Rows:
    """Makes them; reads the journal and writes nothing. Its methods raise JournalError."""

    def __init__(
        self,
        journal: Journal,
        reapers: Registry,
        case: Callable[[str], Case | None],
        terms: Callable[[Action], Stalls],
    ) -> None:
        self._journal, self._reapers, self._case, self._terms = journal, reapers, case, terms

    def rows(self, decisions: Iterable[Decision]) -> list[Action]:
        """The rows of what is to be done: one for a case and kind, whatever is decided how often.

        One that was dropped is taken up again by a new decision in the same case, with its stamps:
        a TERM that was sent stays sent (cancel.py).
        """
        found: dict[tuple[str, str], Action] = {}
        free = self._journal.next_action_id()
        for d in decisions:
            kind = kind_of(d)
            if d.would or kind == "log" or (d.case, kind) in found or self._another(d.case, kind):
                continue
            known = self._journal.action(d.case, kind)
            if known is not None:
                mail = self._journal.action(d.case, "mail") if kind in MAILED else None
                if mail is not None and dropped(mail) and mail.sent is None:
                    found[d.case, "mail"] = again(mail, d.t)
                if dropped(known):
                    found[d.case, kind] = again(known, d.t, self._terms(known).term_grace)
                elif kind == "drain" and self._brought_back(known):  # N03
                    found[d.case, kind] = replace(
                        anew(known, d.t), later=CAME_AGAIN, later_t=d.t, later_boot=known.boot
                    )
                continue
            if (case := self._case(d.case)) is None:
                continue
            row = found[d.case, kind] = self.new(free, d, case)
            free += 1
            if (d.case, "mail") not in found and self._mailed(row):
                found[d.case, "mail"] = replace(row, id=free, kind="mail")
                free += 1
        return list(found.values())

    def _brought_back(self, a: Action) -> bool:
        """Whether a drain that was done stands no more, and the fault has come again since.

        Not where somebody brings back a node whose fault stands.
        """
        case = self._case(a.case)
        if a.ended is None or case is None or case.finding is None or not case.again:
            return False
        stands = any(was.case == a.case for was in self._journal.kept(KIND, Drained).values())
        return not stands and case.finding.t > (a.later_t if a.later_t is not None else a.ended)

    def _another(self, case: str, kind: str) -> bool:
        """Whether the step is being ended in another way, or something was sent to it: that stays the way."""
        if kind not in TO_STEPS:
            return False
        others = [self._journal.action(case, k) for k in TO_STEPS if k != kind]
        return any(a is not None and (a.ended is None or a.began is not None) for a in others)

    def new(self, id_: int, d: Decision, case: Case) -> Action:
        """One row."""
        a = Action(
            id=id_,
            case=case.id,
            kind=kind_of(d),
            boot=case.boot,
            node=case.node,
            due=d.t,
            step=case.step,
            run=case.subject if case.kind == "stall" else None,
        )
        terms = self._terms(a)
        try:
            text = self._reapers.get(a.kind).text(case, terms)
        except NoReaper:  # its first rung says so
            text = None
        return replace(a, signal=terms.signal, text=text)

    def _mailed(self, a: Action) -> bool:
        """Whether a mail goes with it, once in a case."""
        return a.kind in MAILED and self._terms(a).mail and self._journal.action(a.case, "mail") is None


def kind_of(d: Decision) -> str:
    """Of a batch step only the job as a whole can be cancelled (K01)."""
    return "cancel_job" if d.action == "cancel" and (d.step or "").endswith(".batch") else d.action
