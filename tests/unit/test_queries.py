"""Whatever anybody asks of the journal over control.sock has an answer or is no request."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm import publish
from ladon_slurm.control import Request
from ladon_slurm.journal import Journal

NUMBERS = st.one_of(st.integers(), st.sampled_from([2**63 - 1, 2**63, -(2**63) - 1, 10**100, 0, -1]))
VALUES = st.one_of(
    NUMBERS, st.floats(allow_nan=False, allow_infinity=False), st.text(), st.none(), st.booleans()
)
KEYS = ["open", "kind", "step", "job", "uid", "device", "since", "count"]


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    made = Journal(tmp_path_factory.mktemp("queries") / "journal.db", "b")
    yield made
    made.close()


@given(st.dictionaries(st.sampled_from(KEYS), VALUES), st.sampled_from([0, 65534]))
def test_any_query_is_answered_or_refused(journal, query, uid):
    try:
        request = msgspec.json.decode(msgspec.json.encode({"ask": "cases", "cases": query}), type=Request)
    except (msgspec.MsgspecError, OverflowError, UnicodeEncodeError):
        return
    assert publish.listed(journal, request.cases, uid) == []


@given(st.text(max_size=200))
def test_anything_can_be_asked_about(journal, what):
    assert publish.told(journal, what, {}) == []
