"""When a request would have its first token on a host: by the host's last heartbeat, and what was sent there since."""

from __future__ import annotations

from collections.abc import Sequence

from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.adapter_list import AdapterList
from lora_engine.wire.prompt_prefixes import KnownPrefixes, Mark

_CHARACTERS_PER_TOKEN = 4.0
_LOAD_SHARE = 0.2
"""Of an adapter's load, what it counts for: one request waits for it, and those that follow gain from it. Counted
whole, requests stay away from hosts that nothing was loaded on yet."""


_LONGEST_S = 1e6


class FirstTokenPrediction:
    """Of one host, between two heartbeats."""

    def __init__(self) -> None:
        self._forecast: pb.FirstTokenForecast | None = None
        self._load_times = pb.LoadTimes()
        self._tenants: dict[str, float] = {}
        self.adapters = AdapterList()
        self._prefixes = KnownPrefixes()
        self._sent, self._sent_s = 0, 0.0
        self._loading: set[str] = set()

    def observed(self, status: pb.HostStatus) -> None:
        """A heartbeat has come: what was sent before is counted in it. Raises AdapterListError."""
        self.adapters.observe(status)
        self._prefixes.observe(status)
        told = status.first_token if status.HasField("first_token") else None
        self._forecast = told if told and _is_believable(told.seconds, told.prompt_token_s, told.place_s) else None
        self._tenants = {share.tenant: share.first_token_s for share in status.tenants if share.first_token_s > 0}
        self._sent, self._sent_s = 0, 0.0
        if not status.load_only:
            self._load_times, self._loading = status.load_times, set()

    @property
    def prompt_token_s(self) -> float:
        """What a prompt's token takes there; 0 if the host cannot tell."""
        return self._forecast.prompt_token_s if self._forecast is not None else 0.0

    def forget(self) -> None:
        self._forecast = None
        self._prefixes.forget()

    def sent(self, submit: pb.Submit, marks: Sequence[Mark] = ()) -> None:
        """The host has one request more."""
        if self._forecast is not None:
            self._sent += 1
            # Who comes when no place is left waits until one is free.
            place_s = self._forecast.place_s if self._sent > self._forecast.free_places else 0.0
            self._sent_s += self._prompt_s(submit, marks, self._forecast) + place_s
            self._loading.add(submit.adapter_digest)

    def seconds(self, submit: pb.Submit, marks: Sequence[Mark] = ()) -> float | None:
        """About when this request's first token comes if it is sent now; None if the host cannot tell.

        ``marks`` are those of its prompt: what the host has cached of it is not computed again.
        """
        if self._forecast is None:
            return None
        queue = self._tenants.get(submit.tenant, self._forecast.seconds)
        own = self._prompt_s(submit, marks, self._forecast)
        found = queue + self._sent_s + own + _LOAD_SHARE * self._load_s(submit.adapter_digest, self._load_times)
        return found if _is_believable(found) else None

    def cached_share(self, marks: Sequence[Mark]) -> float:
        """Of the prompt, what the host has cached, at least."""
        return self._prefixes.share(marks)

    def _prompt_s(self, submit: pb.Submit, marks: Sequence[Mark], forecast: pb.FirstTokenForecast) -> float:
        return (1.0 - self.cached_share(marks)) * prompt_tokens(submit) * forecast.prompt_token_s

    def _load_s(self, digest: str, times: pb.LoadTimes) -> float:
        """To bring the adapter to the device from the tier where it is; nothing if another request has begun that."""
        adapter = self.adapters.by_digest.get(digest)
        if not digest or adapter is None or digest in self._loading or adapter.tier == pb.AdapterResidency.DEVICE:
            return 0.0
        to_device = _load_time(times.to_device, adapter.bytes)
        on_disk = adapter.tier == pb.AdapterResidency.DISK
        return to_device + (_load_time(times.from_disk, adapter.bytes) if on_disk else 0.0)


def prompt_tokens(submit: pb.Submit) -> float:
    """About how many there are: text is not tokenised here."""
    kind = submit.WhichOneof("prompt")
    if kind == "token_ids":
        return float(len(submit.token_ids.ids))
    if kind == "chat":
        return sum(len(message.content) for message in submit.chat.messages) / _CHARACTERS_PER_TOKEN
    return len(submit.text) / _CHARACTERS_PER_TOKEN


def _is_believable(*seconds: float) -> bool:
    """One host's nonsense must not decide where the requests of all go."""
    return all(0.0 <= one <= _LONGEST_S for one in seconds)


def _load_time(time: pb.LoadTime, num_bytes: int) -> float:
    return time.fixed_s + num_bytes * time.seconds_per_byte
