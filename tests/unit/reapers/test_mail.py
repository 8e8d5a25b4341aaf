"""A mail beside what is done: through MailProg, once in a case, to whom, and what stops it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from rig import STALL, decided
from slurm_world import SETTINGS

from ladon_slurm.reapers import mail
from ladon_slurm.reapers.mail import ADDRESS

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="a child goes down from root")


@pytest.fixture
def outbox():
    """A MailProg whose every run is a file, and the folder of them; another user writes there."""
    folder = Path(f"/tmp/ladon-mail-{os.getpid()}")
    folder.mkdir()
    folder.chmod(0o1777)
    prog = folder / "prog"
    prog.write_text(f'#!/bin/sh\n{{ id -u; printf "%s\\n" "$@"; cat; }} > {folder}/mail.$$\n')
    prog.chmod(0o755)
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def mails(folder: Path) -> list[list[str]]:
    return [path.read_text().splitlines() for path in folder.glob("mail.*")]


def test_a_mail_goes_with_a_cancel_once_to_the_jobs_owner_as_nobody(rig, outbox):
    rig.site(mail=True)
    rig.world.mail = (str(outbox / "prog"), None)
    for _ in range(2):
        rig.executor.apply([STALL], [decided("cancel")])
        rig.settle(5)
        rig.begin()
    ((uid, flag, subject, to, text),) = mails(outbox)
    assert (uid, flag, to) == ("65534", "-s", "u")
    assert subject == "ladon: step 42.0 on n1 is stalled (case 7k2fq3)"
    assert "made no progress for 15 min" in text
    assert "Ladon cancels this step alone" in text
    assert rig.outcome("mail").startswith("done: ")
    assert rig.outcome("cancel").startswith("done")


def test_a_mail_that_was_dropped_with_its_cancel_is_taken_up_again_with_it(rig, outbox):
    """A daemon that begins anew comes past SUSPECT: both are dropped then, and decided again as it is a ZOMBIE."""
    rig.site(mail=True)
    rig.world.mail = (str(outbox / "prog"), None)
    rig.executor.apply([STALL], [decided("cancel")])
    rig.world.judged = "SUSPECT"
    rig.settle(1)
    assert [rig.outcome(kind) for kind in ("cancel", "mail")] == ["dropped: it is SUSPECT again"] * 2
    for _ in range(2):
        rig.world.judged = "ZOMBIE"
        rig.executor.apply([], [decided("cancel")])
        rig.settle(5)
    assert len(mails(outbox)) == 1
    assert rig.outcome("mail").startswith("done: ")


@pytest.mark.parametrize(
    ("given", "to"),
    [
        ("someone@example.org", "someone@example.org"),
        ("-oQ/tmp", "u"),  # an option of some MailProg
        ("a@b;rm", "u"),
        ("a b", "u"),
        (None, "u"),
    ],
)
def test_what_a_user_wrote_as_MailUser_is_an_address_or_not_used(rig, outbox, given, to):
    rig.site(mail=True, action="notify")
    rig.world.options = "notify"
    rig.world.mail = (str(outbox / "prog"), given)
    rig.executor.apply([STALL], [decided("notify")])
    rig.settle(5)
    assert [m[3] for m in mails(outbox)] == [to]


@pytest.mark.parametrize("how", ["off", "another job", "no prog", "gone", "observe"])
def test_no_mail_where_it_is_not_wanted_or_not_known_to_whom(rig, outbox, how):
    rig.site(mail=how != "off")
    rig.world.mail = (None if how == "no prog" else str(outbox / "prog"), None)
    if how == "another job":
        rig.world.job = replace(rig.world.job, uid=7)
    elif how == "gone":
        rig.world.job = None
    elif how == "observe":
        rig.world.settings = replace(SETTINGS, mode="observe")
    rig.executor.apply([STALL], [decided("cancel", would=how == "observe")])
    rig.settle(5)
    assert mails(outbox) == []
    row = rig.journal.action(STALL.id, "mail")
    assert row is None if how in ("off", "observe") else row.outcome.startswith("dropped")


def test_a_MailProg_that_hangs_holds_up_nothing_and_is_ended(rig, outbox, monkeypatch):
    monkeypatch.setattr(mail, "DEADLINE_S", 1.0)
    (outbox / "prog").write_text("#!/bin/sh\nsleep 600\n")
    rig.site(mail=True)
    rig.world.mail = (str(outbox / "prog"), None)
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(5)
    assert "did not end in time" in rig.outcome("mail")
    assert rig.outcome("cancel").startswith("done")


def test_an_address_never_begins_with_a_dash_or_holds_a_blank():
    assert not any(ADDRESS.fullmatch(x) for x in ("", "-x", "@x", "a\n", "a b", "a@", "a@-b", "a" * 400))
