"""Errors between a request and an engine host."""

from dataclasses import dataclass

from lora_engine.wire import engine_pb2 as pb

CLIENT_TOO_SLOW = "client_too_slow"
HUNG = "engine_hung"
MOVED = "moved"
SILENT = "engine_silent"
# What another host may well do: nothing of it is the request's own fault.
ELSEWHERE = frozenset(
    {
        "adapter_not_found",
        "adapter_not_resident",
        "adapter_too_large_for_host",
        "adapter_too_large_for_pool",
        "artifact_not_found",
        "artifact_unavailable",
        "base_model_changed",
        "device_error",
        "disk_error",
        "disk_tier_damaged",
        "disk_tier_full",
        "draining",
        "engine_disconnected",
        "engine_error",
        "engine_implausible",
        "engine_stopped",
        "engine_unavailable",
        "host_arena_full",
        HUNG,
        "journal_unavailable",
        "other_base_model",
        "overloaded",
        SILENT,
        "slo_unattainable",
        "stage_failed",
        "structured_outputs_unavailable",
        "too_large_for_host",
    }
)
# After these the host may come back: a supervisor starts it again.
LOST = frozenset({"engine_disconnected", "engine_stopped"})
# And these say, in the midst of an answer, that it is not back yet.
NOT_BACK = frozenset({"draining", "engine_unavailable"})
# With these it may still go on.
STANDS_STILL = frozenset({HUNG, SILENT})
# After these the host may be gone because of the request.
BROKEN = frozenset({"device_error", "engine_disconnected", "engine_error", "engine_implausible", HUNG})

LONGEST_TEXT, LONGEST_NAME = 10_000, 64


@dataclass(eq=False)
class HostError(Exception):
    """A request ended without success. ``retry_after_s`` is set when the cause passes with time.

    ``detail`` is for the operator: callers must not read of addresses and sockets.
    """

    code: str
    message: str
    fix: str
    param: str = ""
    retry_after_s: float | None = None
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}{f' ({self.detail})' if self.detail else ''}"

    @classmethod
    def from_wire(cls, error: pb.EngineError) -> "HostError":
        """Callers are told of it and rows keep it, so a host may not say as much, or what, it likes."""
        retry = error.retry_after_ms / 1000 if error.retry_after_ms else None
        code = error.code[:LONGEST_NAME] if error.code.isidentifier() else "engine_error"
        message, fix, param = (
            text[:LONGEST_TEXT].replace("\0", "") for text in (error.message, error.fix, error.param)
        )
        return cls(code, message, fix, param[:LONGEST_NAME], retry)


def disconnected(host: str) -> HostError:
    return HostError(
        "engine_disconnected",
        f"The connection to engine host {host} was lost while the request ran.",
        "Send the request again; another host or the restarted one will serve it.",
        retry_after_s=1.0,
    )


def unavailable(host: str, detail: str = "") -> HostError:
    return HostError(
        "engine_unavailable",
        f"Engine host {host} does not answer.",
        "Send the request again in a few seconds. If it persists, check that the engine process runs.",
        retry_after_s=2.0,
        detail=detail,
    )


def client_too_slow(tokens: int) -> HostError:
    return HostError(
        CLIENT_TOO_SLOW,
        f"The client stopped reading: {tokens} tokens were waiting for it, so the request was aborted.",
        "Read the stream as it arrives, or ask without streaming.",
    )


def stopped(host: str) -> HostError:
    return HostError(
        "engine_stopped",
        f"Engine host {host} was stopped before the request ended.",
        "Send the request again; another host or the restarted one will serve it.",
        retry_after_s=1.0,
    )


def stopping() -> HostError:
    return HostError(
        "stopping",
        "This server stops, and the request had not begun.",
        "Send it again: another server, or this one when it is back, takes it.",
        retry_after_s=1.0,
    )


def moved(host: str) -> HostError:
    """Only a reason to go on elsewhere: a caller is never told."""
    return HostError(MOVED, f"Engine host {host} has far more to do than others.", "Nothing: another goes on with it.")


def hung(host: str, seconds: float) -> HostError:
    """Only a reason to ask another host: a caller is never told."""
    return HostError(HUNG, f"Engine host {host} made no step for {seconds:g} s.", "Restart it if it stays so.")


def silent(host: str) -> HostError:
    """Only a reason to ask another host, which may be a wrong one: a caller is never told."""
    return HostError(SILENT, f"Engine host {host} is not heard any more.", "See whether its machine and network live.")
