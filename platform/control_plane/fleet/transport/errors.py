"""Errors between a request and an engine host."""

from dataclasses import dataclass

from lora_engine.wire import engine_pb2 as pb

CLIENT_TOO_SLOW = "client_too_slow"
HUNG = "engine_hung"
MOVED = "moved"
SILENT = "engine_silent"
# Errors that another host may not have: the request itself is not the cause.
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
# Errors after which the host may come back, as a supervisor restarts its engine.
LOST = frozenset({"engine_disconnected", "engine_stopped"})
# Errors that show, in the midst of an answer, that the host is not back yet.
NOT_BACK = frozenset({"draining", "engine_unavailable"})
# Errors after which the host may still continue the request.
STANDS_STILL = frozenset({HUNG, SILENT})
# Errors after which the request itself may have broken the host.
BROKEN = frozenset({"device_error", "engine_disconnected", "engine_error", "engine_implausible", HUNG})

# Maximum number of characters of a host's texts, and of its codes and field names, that an error keeps.
MAX_TEXT, MAX_NAME = 10_000, 64


@dataclass(eq=False)
class HostError(Exception):
    """The error of a request that ended without success. ``retry_after_s`` is set if the cause passes with time.

    ``detail`` is for operators: callers must not see addresses and sockets.
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
        """Return a host's error, with its texts cut and cleaned: callers and database rows get them."""
        retry = error.retry_after_ms / 1000 if error.retry_after_ms else None
        code = error.code[:MAX_NAME] if error.code.isidentifier() else "engine_error"
        message, fix, param = (text[:MAX_TEXT].replace("\0", "") for text in (error.message, error.fix, error.param))
        return cls(code, message, fix, param[:MAX_NAME], retry)


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
        "Read the stream as it arrives, or send the request without `stream`.",
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
        "This server is stopping, and the request had not begun.",
        "Send it again: another server, or this one after its restart, will serve it.",
        retry_after_s=1.0,
    )


def moved(host: str) -> HostError:
    """Return the internal error that moves a request to another host; callers do not see it."""
    return HostError(MOVED, f"Engine host {host} is overloaded.", "Nothing to do: another host continues the request.")


def hung(host: str, seconds: float) -> HostError:
    """Return the internal error that fails a request over to another host; callers do not see it."""
    return HostError(
        HUNG, f"Engine host {host} has work, but has made no step for {seconds:g} s.", "Restart it if this persists."
    )


def silent(host: str) -> HostError:
    """Return the internal error that tries another host, which may be the wrong one; callers do not see it."""
    return HostError(SILENT, f"Engine host {host} sends no heartbeats.", "Check its machine and its network.")
