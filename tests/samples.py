"""The samples beside the checkout: raw outputs of real tools, read by tests where they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "samples"


def samples(*folders: str, pattern: str = "*") -> list[Path]:
    """The files of these folders; without them the test is skipped, with a word."""
    found = [path for folder in folders for path in sorted((FOLDER / folder).glob(pattern))]
    if not found:
        pytest.skip(f"no samples: {FOLDER} has no {' or '.join(folders)}")
    return found
