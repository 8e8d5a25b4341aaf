"""The journal: cases, decisions and actions in one SQLite file, right after SIGKILL at any statement.

WAL with synchronous=FULL: what `_write` returned for is on disk. Every write is one transaction
through that one method. One daemon writes (a lock file beside the journal); anyone who may read the
file can read it, daemon or not. Rows hold msgspec JSON of the structs in model.py; the columns beside
it are there to be searched. Times are s of CLOCK_BOOTTIME; table boots says when each boot began.
"""

from ladon_slurm.journal.query import Query
from ladon_slurm.journal.reader import JournalBusyError, JournalError, Reader, samples_of
from ladon_slurm.journal.tables import FACTS
from ladon_slurm.journal.writer import Journal, NoJournal, opened, room

__all__ = [
    "FACTS",
    "Journal",
    "JournalBusyError",
    "JournalError",
    "NoJournal",
    "Query",
    "Reader",
    "opened",
    "room",
    "samples_of",
]
