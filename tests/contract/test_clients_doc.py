"""The table of clients says what their programs show; `make test-long` runs them."""

from __future__ import annotations

from lorikeet_testing.client_table import table, written


def test_the_table_says_what_the_programs_show() -> None:
    assert {name: sorted(shown) for name, shown in table().items()} == {
        name: sorted(shown) for name, shown in written().items()
    }
