"""Money as whole numbers. Sums stay exact to a millionth of a millionth; they are rounded once, when shown.

A price is millionths of the currency for a million tokens, so tokens x price is a whole number of 10^-12. A report
adds those up and rounds to millionths (half up) at the end; a statement rounds each line, and its total is the sum of
its lines.
"""

from __future__ import annotations

from control_plane.billing.prices.models import PriceVersion

PICO_A_MICRO = 1_000_000


def tokens_cost(price: PriceVersion, *, prompt: int, cached: int, completion: int, batch: bool) -> int:
    """Return the cost of tokens in 10^-12 of the currency. `prompt` includes `cached`."""
    return (
        (prompt - cached) * price.per_million("input", batch=batch)
        + cached * price.per_million("cached_input", batch=batch)
        + completion * price.per_million("output", batch=batch)
    )


def micros(pico: int) -> int:
    """Return 10^-12 of the currency as millionths, rounded half up."""
    return (pico + PICO_A_MICRO // 2) // PICO_A_MICRO


def storage_micros(price: PriceVersion, byte_hours: int, hours_in_month: int) -> int:
    """Return a month's storage cost in millionths, half up: `byte_hours` over 10^9 bytes and the month's hours."""
    month = 1_000_000_000 * hours_in_month
    return (2 * byte_hours * price.storage_per_gb_month + month) // (2 * month)
