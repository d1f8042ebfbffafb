"""QR codes, drawn by `segno`."""

from __future__ import annotations


def qr_rows(text: str) -> list[str]:
    """Return the modules of a QR code, a text of 0 and 1 for each row. 1 is dark."""
    import segno  # loaded at its first use: few requests need it

    return ["".join("1" if module else "0" for module in row) for row in segno.make_qr(text, error="m").matrix]
