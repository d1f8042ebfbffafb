"""Prediction of a request's first token on a host, from its last heartbeat and the requests sent there since."""

from __future__ import annotations

from collections.abc import Sequence

from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.adapter_list import AdapterList
from lora_engine.wire.prompt_prefixes import KnownPrefixes, PrefixMark

_CHARACTERS_PER_TOKEN = 4.0
# Part of an adapter's load time that is added to a prediction: the first request waits for the load, and later ones
# gain from it. Counted in full, requests would avoid hosts that have loaded nothing yet.
_LOAD_SHARE = 0.2
# Seconds; a host's prediction above it is ignored.
_MAX_S = 1e6


class FirstTokenPrediction:
    """A predictor for one host, corrected by each of its heartbeats."""

    def __init__(self) -> None:
        self._forecast: pb.FirstTokenForecast | None = None
        self._load_times = pb.LoadTimes()
        self._tenants: dict[str, float] = {}
        self.adapters = AdapterList()
        self._prefixes = KnownPrefixes()
        self._sent, self._sent_s = 0, 0.0
        self._loading: set[str] = set()

    def observed(self, status: pb.HostStatus) -> None:
        """Take over a heartbeat, which counts all requests sent before it. Raises AdapterListError."""
        self.adapters.observe(status)
        self._prefixes.observe(status)
        reported = status.first_token if status.HasField("first_token") else None
        usable = reported and _is_plausible(reported.seconds, reported.prompt_token_s, reported.place_s)
        self._forecast = reported if usable else None
        self._tenants = {share.tenant: share.first_token_s for share in status.tenants if share.first_token_s > 0}
        self._sent, self._sent_s = 0, 0.0
        if not status.load_only:
            self._load_times, self._loading = status.load_times, set()

    @property
    def prompt_token_s(self) -> float:
        """Seconds that a prompt's token takes on the host; 0 if the host cannot predict it."""
        return self._forecast.prompt_token_s if self._forecast is not None else 0.0

    def forget(self) -> None:
        self._forecast = None
        self._prefixes.forget()

    def sent(self, submit: pb.Submit, marks: Sequence[PrefixMark] = ()) -> None:
        """Count a request that was sent to the host since its last heartbeat."""
        if self._forecast is not None:
            self._sent += 1
            # A request beyond the free places waits until one becomes free.
            place_s = self._forecast.place_s if self._sent > self._forecast.free_places else 0.0
            self._sent_s += self._prompt_s(submit, marks, self._forecast) + place_s
            self._loading.add(submit.adapter_digest)

    def seconds(self, submit: pb.Submit, marks: Sequence[PrefixMark] = ()) -> float | None:
        """Return the predicted seconds to a request's first token if it is sent now; None if the host cannot predict.

        ``marks`` are the prefix marks of its prompt: its cached part is not computed again.
        """
        if self._forecast is None:
            return None
        queue = self._tenants.get(submit.tenant, self._forecast.seconds)
        prompt = self._prompt_s(submit, marks, self._forecast)
        total = queue + self._sent_s + prompt + _LOAD_SHARE * self._load_s(submit.adapter_digest, self._load_times)
        return total if _is_plausible(total) else None

    def cached_share(self, marks: Sequence[PrefixMark]) -> float:
        """Return the least share of a prompt that the host has cached."""
        return self._prefixes.share(marks)

    def _prompt_s(self, submit: pb.Submit, marks: Sequence[PrefixMark], forecast: pb.FirstTokenForecast) -> float:
        return (1.0 - self.cached_share(marks)) * prompt_tokens(submit) * forecast.prompt_token_s

    def _load_s(self, digest: str, times: pb.LoadTimes) -> float:
        """Return the seconds to load an adapter to the device; 0 if another request has begun the load."""
        adapter = self.adapters.by_digest.get(digest)
        if not digest or adapter is None or digest in self._loading or adapter.tier == pb.AdapterResidency.DEVICE:
            return 0.0
        to_device = _load_time(times.to_device, adapter.bytes)
        on_disk = adapter.tier == pb.AdapterResidency.DISK
        return to_device + (_load_time(times.from_disk, adapter.bytes) if on_disk else 0.0)


def prompt_tokens(submit: pb.Submit) -> float:
    """Estimate the number of a prompt's tokens: text is not tokenised here."""
    kind = submit.WhichOneof("prompt")
    if kind == "token_ids":
        return len(submit.token_ids.ids) + len(submit.suffix) / _CHARACTERS_PER_TOKEN
    if kind == "chat":
        return sum(len(message.content) for message in submit.chat.messages) / _CHARACTERS_PER_TOKEN
    return (len(submit.text) + len(submit.suffix)) / _CHARACTERS_PER_TOKEN


def _is_plausible(*seconds: float) -> bool:
    """Return whether all values are in range: one faulty host must not attract the requests of all."""
    return all(0.0 <= one <= _MAX_S for one in seconds)


def _load_time(time: pb.LoadTime, num_bytes: int) -> float:
    return time.fixed_s + num_bytes * time.seconds_per_byte
