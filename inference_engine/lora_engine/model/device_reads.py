"""Reading of a checkpoint's tensors to a GPU: from files into page-locked buffers, then by asynchronous copies.

Reading the mapped file, as safetensors does, costs a page fault every few pages, in one thread. Here several threads
read.
"""

from __future__ import annotations

import logging
import os
import threading
from math import prod
from pathlib import Path

import torch

from lora_engine.errors import UnsupportedModel
from lora_kernels.fp8_tensors import Fp8Matrix, Fp8Stack

from .checkpoint import AGAIN, Checkpoint

log = logging.getLogger(__name__)

# Threads that read tensors at the same time.
THREADS = 8
# Bytes of a page-locked buffer; each thread has two.
_BUFFER_BYTES = 32 << 20
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


class DeviceCheckpoint(Checkpoint):
    """A checkpoint with tensors on ``device``. Several threads may call ``tensor``."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        super().__init__(folder)
        self._device = device
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._buffers = threading.local()

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Return rows ``start`` to ``stop`` of a tensor; no others are read, unless it is joined from several."""
        if name in self._parts:
            return super().rows(name, start, stop)
        entry = self.entry(name)
        (first, last), (count, *others) = entry["data_offsets"], entry["shape"]
        size = (last - first) // max(1, count)
        rows = self._between(name, first + start * size, first + stop * size)
        return rows.view(_DTYPES[entry["dtype"]]).view(stop - start, *others)

    def _stored(self, name: str) -> torch.Tensor:
        entry = self.entry(name)
        tensor = self._between(name, *entry["data_offsets"]).view(_DTYPES[entry["dtype"]])
        return tensor[: prod(entry["shape"])].view(entry["shape"])

    def _between(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Return the bytes between two offsets of the file that holds a tensor, counted from its first tensor on."""
        path = self.files[name]
        out = torch.empty(stop - start, dtype=torch.uint8, device=self._device)
        try:
            with path.open("rb", buffering=0) as file:
                self._read(file.fileno(), self.data_start(path) + start, out)
        except OSError as error:
            raise UnsupportedModel(f"{path} cannot be read ({error.strerror}). {AGAIN}") from None
        return out

    def _read(self, file: int, offset: int, out: torch.Tensor) -> None:
        """Fill ``out``; one buffer is read while the other is copied to the device."""
        buffers = self._thread_buffers()
        for start in range(0, len(out), _BUFFER_BYTES):
            buffers.reverse()
            buffer, copied = buffers[0]
            copied.synchronize()
            size = min(_BUFFER_BYTES, len(out) - start)
            _read_whole(file, buffer.numpy()[:size].data, offset + start)
            out[start : start + size].copy_(buffer[:size], non_blocking=True)
            copied.record(self._stream)

    def _thread_buffers(self) -> list[tuple[torch.Tensor, torch.cuda.Event]]:
        if not hasattr(self._buffers, "pair"):
            self._buffers.pair = [(_buffer(self._device), torch.cuda.Event()) for _ in range(2)]
        pair: list[tuple[torch.Tensor, torch.cuda.Event]] = self._buffers.pair
        return pair


def _buffer(device: torch.device) -> torch.Tensor:
    """Allocate a buffer, page-locked for a GPU; pageable, with synchronous copies, if the host does not allow that."""
    try:
        return torch.empty(_BUFFER_BYTES, dtype=torch.uint8, pin_memory=device.type == "cuda")
    except RuntimeError as error:
        log.warning("weights are read without page-locked memory, which takes longer: %s", error)
        return torch.empty(_BUFFER_BYTES, dtype=torch.uint8)


class ShapesOnly(Checkpoint):
    """A checkpoint on the meta device: tensors with the headers' shapes and dtypes, without contents."""

    def _stored(self, name: str) -> torch.Tensor:
        entry = self.entry(name)
        return torch.empty(entry["shape"], dtype=_DTYPES[entry["dtype"]], device="meta")

    def placed(self, name: str, tensor: torch.Tensor | Fp8Matrix | Fp8Stack) -> None:
        """Do nothing: there are no values to check."""


def _read_whole(file: int, into: memoryview, offset: int) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(file, [into[done:]], offset + done)
        if not count:
            raise OSError(0, "it became shorter while it was read")
        done += count
