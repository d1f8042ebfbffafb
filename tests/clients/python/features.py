"""What a program has shown, for the table in docs/how-to/clients.md."""


def ok(feature: str) -> None:
    print(f"ok: {feature}", flush=True)
