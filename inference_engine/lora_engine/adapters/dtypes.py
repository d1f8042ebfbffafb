"""The dtypes in which a host has an adapter: the pool's, and FP8 on a host that was started for it.

Both are separate adapters to the engine, under keys of their own: their pages, cached prefixes and places in a batch
never mix. The key in the pool's dtype is the content digest itself. Requests name the digest and a setting; which key
serves them is decided here, so that a decision for FP8 changes nothing for requests that run.
"""

from __future__ import annotations

from typing import NamedTuple

from lora_engine.peft_format import is_combined

# Settings of an adapter's version. "auto": FP8 where the host has found that it agrees.
AUTO, POOL_DTYPE, FP8_ALWAYS = "auto", "bf16", "fp8"
_SUFFIX = ";fp8"


class Variant(NamedTuple):
    """The two keys of one content digest."""

    pool: str
    fp8: str


def variants(digest: str) -> Variant:
    """Return the keys of an adapter's content digest."""
    return Variant(digest, digest + _SUFFIX)


def is_fp8(key: str) -> bool:
    return key.endswith(_SUFFIX)


def content_of(key: str) -> str:
    """Return the content digest of a key; that of a combination, or of the base model, is the key itself."""
    return key.removesuffix(_SUFFIX)


class ServedDtypes:
    """The decisions of a host: the content digests that are served in FP8. Safe to read from any thread."""

    def __init__(self, *, fp8: bool) -> None:
        """Create it without decisions. ``fp8``: the host was started with ``--adapter-dtype fp8``."""
        self.fp8 = fp8
        self._agreeing: set[str] = set()

    def key(self, digest: str, setting: str = "") -> str:
        """Return the key that serves an adapter with a version's setting ("" is "auto").

        Combinations are in the pool's dtype. Without a decision, so is every adapter whose setting is "auto".
        """
        if not self.fp8 or not digest or is_combined(digest) or setting == POOL_DTYPE:
            return digest
        return variants(digest).fp8 if setting == FP8_ALWAYS or digest in self._agreeing else digest

    def decide(self, digest: str, *, agrees: bool) -> None:
        """Serve an adapter in FP8 from now on, or not, where its version's setting is "auto"."""
        (self._agreeing.add if agrees else self._agreeing.discard)(digest)

    def forget(self, digest: str) -> None:
        """Forget the decision on an adapter that is dropped."""
        self._agreeing.discard(digest)
