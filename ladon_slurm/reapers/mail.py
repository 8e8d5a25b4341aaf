"""A mail to the step's owner through the site's MailProg, once in a case: `reclamation.mail`.

As slurmctld calls it: MailProg -s SUBJECT ADDRESS, the text on its stdin; but as an unprivileged user, with a
deadline. To the job's MailUser as slurmctld has it, else to the user by name; the user writes MailUser, so
what is not plainly an address is not put on a command line.
"""

from __future__ import annotations

import re
import sys

from ladon_slurm.children import AS_USER, Call, CallError, Result
from ladon_slurm.model import Action, ActionKind, JobFacts
from ladon_slurm.reapers.custom import PATH, said
from ladon_slurm.reapers.once import Once
from ladon_slurm.reapers.reaper import Facts, Hands
from ladon_slurm.reapers.rung import job_of

Known = tuple[str | None, str | None]
USER = "nobody"
DEADLINE_S = 60.0
ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.-]{0,252})?")


class Mail(Once):
    """Mails the row's text."""

    kind: ActionKind = "mail"
    counts_as: ActionKind | None = "notify"
    first = False

    def do(self, a: Action, now: Facts[None], hands: Hands) -> None:
        number = job_of(a.step)
        if number is None:
            hands.end(a, now.t, "dropped: it is no step of a job")
            return

        def job(row: Action, t: float, value: JobFacts | CallError | None) -> None:
            if isinstance(value, CallError):
                hands.end(row, t, f"dropped: whose job it is is not known: {value}")
            elif value is None or value.uid != now.uid:  # K07
                hands.end(row, t, "dropped: slurmctld has another job of this number, or none")
            else:
                hands.call(row, hands.client.mail(number), lambda r, u, v: program(r, u, v, value.user))

        def program(
            row: Action, t: float, value: tuple[str | None, str | None] | CallError, user: str | None
        ) -> None:
            if isinstance(value, CallError):
                hands.end(row, t, f"dropped: MailProg is not known: {value}")
                return
            prog, mail_user = value
            to = next((x for x in (mail_user, user) if x and ADDRESS.fullmatch(x)), None)
            if prog is None or to is None:
                hands.end(row, t, f"dropped: no {'MailProg' if prog is None else 'address'} to go by")
                return
            hands.call(row, call(prog, to, row), ended)

        def ended(row: Action, t: float, value: str | CallError) -> None:
            hands.end(row, t, f"{'dropped' if isinstance(value, CallError) else 'done'}: {value}")

        hands.call(a, hands.client.job(number), job)


def call(prog: str, to: str, a: Action) -> Call[str]:
    """MailProg as a child."""
    subject = f"ladon: step {a.step} on {a.node} is stalled (case {a.case})"
    argv = (sys.executable, "-I", str(AS_USER), USER, prog, "-s", subject, to)

    def parse(result: Result) -> str:
        return f"{said(prog, result)}, to {to}"

    return Call(argv, DEADLINE_S, parse, stdin=f"{a.text}\n".encode(), env={"PATH": PATH, "LC_ALL": "C"})
