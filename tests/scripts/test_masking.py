"""What `make run` writes to its logs."""

from __future__ import annotations

import json

import pytest

from scripts.launch.supervisor import mask

KEY = "lk_abcd2345_Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6"


@pytest.mark.parametrize(
    "printed",
    [
        json.dumps({"email": "ada@example.org", "password": "correct-horse", "key": KEY, "adapters": {}}),
        f"Login ada@example.org / correct-horse, API key {KEY}",
    ],
)
def test_no_secret_in_a_log(printed: str) -> None:
    written = mask(f"Uploading pirate\n{printed}\n")
    assert "Uploading pirate" in written and "ada@example.org" in written
    assert "lk_abcd2345_…" in written
    assert "Zm9v" not in written and "correct-horse" not in written
