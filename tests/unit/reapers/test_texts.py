"""The words in which an owner is told."""

import pytest

from ladon_slurm.model import Case, Evidence, Verdict
from ladon_slurm.reapers.texts import notice


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0.0, "0 B/s"),
        (999.4, "999 B/s"),
        (999.7, "1 kB/s"),
        (1e6, "1 MB/s"),
        (999.7e6, "1 GB/s"),
        (1.5e9, "1.5 GB/s"),
    ],
)
def test_a_rate_has_no_exponent(rate, text):
    seen = Evidence("links", "B/s", "nvml", value=rate, limit=5e9, progress=False)
    verdict = Verdict("1.0", "r", 1800.0, "ZOMBIE", cause="spinning", since=0.0, evidence=[seen])
    case = Case("7k2fq3", "stall", "n1", "b", 120.0, "r", step="1.0", verdict=verdict)
    assert f"(spinning: links {text});" in notice(case, "Ladon only tells you")


@pytest.mark.parametrize(
    ("asked_s", "most_s", "why"),
    [
        (None, None, "(spinning)"),
        (300.0, None, "(spinning; its window of 5 min is less than the site's least)"),
        (86_400.0, 1800.0, "(spinning; its window of 24.0 h is more than the site's most)"),
    ],
)
def test_a_window_out_of_the_sites_bounds_is_told_to_its_owner(asked_s, most_s, why):
    verdict = Verdict(
        "1.0", "r", 1800.0, "ZOMBIE", cause="spinning", since=0.0, asked_s=asked_s, most_s=most_s
    )
    case = Case("7k2fq3", "stall", "n1", "b", 120.0, "r", step="1.0", verdict=verdict)
    assert f"made no progress for 30 min {why};" in notice(case, "Ladon only tells you")
