"""Money as whole numbers. Sums stay exact to a millionth of a millionth; they are rounded once, when shown.

A price is millionths of the currency for a million tokens, so tokens x price is a whole number of 10^-12. A report
adds those up and rounds to millionths (half up) at the end; a statement rounds each line, and its total is the sum of
its lines.
"""

from __future__ import annotations

from control_plane.billing.prices.models import PriceVersion

PICO_A_MICRO = 1_000_000


def tokens_cost(price: PriceVersion, *, prompt: int, cached: int, completion: int, batch: bool) -> int:
    """In 10^-12 of the currency. `prompt` includes `cached`."""
    return (
        (prompt - cached) * price.per_million("input", batch=batch)
        + cached * price.per_million("cached_input", batch=batch)
        + completion * price.per_million("output", batch=batch)
    )


def micros(pico: int) -> int:
    """Rounded to millionths of the currency, half up."""
    return (pico + PICO_A_MICRO // 2) // PICO_A_MICRO


def storage_micros(price: PriceVersion, byte_hours: int, hours_in_month: int) -> int:
    """A month's storage in millionths, half up: `byte_hours` of the month over 10^9 bytes and its hours."""
    month = 1_000_000_000 * hours_in_month
    return (2 * byte_hours * price.storage_per_gb_month + month) // (2 * month)
