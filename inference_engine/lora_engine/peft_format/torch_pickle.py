"""Tensors that ``torch.save`` wrote are read without unpickling.

The file is a zip with ``data.pkl`` and one stored member for each storage. A pickle is a program; an interpreter here
steps through it that knows only the few instructions of a dict of tensors and has nothing to call: a global is a pair
of strings, a "call" of one of three known names makes a record, anything else is refused by its name.
``torch.load(weights_only=True)`` would need torch in the child process, seconds and 200 MB for each upload
(``benchmarks/torch_pickles.py``, ADR 0010).
"""

from __future__ import annotations

import math
import os
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from .geometry import AdapterLimits
from .guarded_zip import DirectoryTooLargeError, GuardedZip
from .problems import FormatError, printable
from .recognised import instead_of_a_file
from .safetensors_file import ITEM_BYTES, NUMPY_TYPES, open_regular

# Bytes that the pickle in a .bin file may have.
MAX_PICKLE_BYTES = 16 << 20
# Instructions per tensor that are allowed; one takes about thirty.
_STEPS_PER_TENSOR = 64
# Instructions that are allowed besides those of the tensors.
_STEPS_BESIDE = 4096
_STORAGES = {"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
_SAVE_SAFE = (
    "Save with model.save_pretrained(folder), which writes adapter_model.safetensors, or convert the file where you "
    "trust it: safetensors.torch.save_file(torch.load(path, weights_only=True), 'adapter_model.safetensors')."
)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a storage: its elements from ``offset`` on, with ``strides`` in elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    storage: str
    offset: int
    strides: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def last(self) -> int:
        """Index after that of the last element."""
        if not self.num_elements:
            return self.offset
        return 1 + self.offset + sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))


class TorchFile:
    """A file that ``torch.save`` wrote, with access to its tensors. It must be closed."""

    def __init__(self, path: Path, limits: AdapterLimits) -> None:
        """Read the pickle's records. Raises ``FormatError``."""
        self._stack = ExitStack()
        self._kept: tuple[str, npt.NDArray[np.uint8] | None] = ("", None)
        # Bytes that may be read in all: tensors may share a storage, in any order.
        self._may_read = 4 * limits.max_bytes
        self.entries: Mapping[str, StoredTensor] = {}
        self._members: dict[str, zipfile.ZipInfo] = {}
        try:
            with _telling_damage():
                self._open(path, limits)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """Return the tensor in row-major order; bfloat16 comes as uint16. Raises ``FormatError``."""
        entry = self.entries[name]
        values = self._storage(entry.storage)[: entry.last * ITEM_BYTES[entry.dtype]].view(NUMPY_TYPES[entry.dtype])
        strides = [step * values.itemsize for step in entry.strides]
        strided = np.lib.stride_tricks.as_strided(values[entry.offset :], entry.shape, strides, writeable=False)
        return np.ascontiguousarray(strided)

    def _open(self, path: Path, limits: AdapterLimits) -> None:
        file = self._stack.enter_context(open_regular(path))
        begins = file.read(72)
        if problem := instead_of_a_file(path.name, begins):
            raise problem
        if not begins.startswith(b"PK"):
            _refuse(f"{path.name} is a pickle of an old form, which can run any code when it is loaded.")
        self._size = os.fstat(file.fileno()).st_size
        self._archive = self._stack.enter_context(zipfile.ZipFile(GuardedZip(file)))
        infos = {info.filename: info for info in self._archive.infolist()}
        if len(infos) > limits.max_tensors + limits.max_expert_tensors + 16:
            _damaged(f"it holds {len(infos)} members")
        root = next((name.removesuffix("data.pkl") for name in infos if name.endswith("/data.pkl")), None)
        if root is None:
            _refuse(f"{path.name} is a zip file, but not one that torch.save wrote.")
        order = infos.get(f"{root}byteorder")
        if order is not None and self._read(order, 16).tobytes() != b"little":
            _refuse(f"{path.name} was written on a machine with another order of bytes.")
        self.entries = read_state_dict(self._read(infos[f"{root}data.pkl"], MAX_PICKLE_BYTES).tobytes(), limits)
        place = f"{root}data/"
        self._members = {name.removeprefix(place): info for name, info in infos.items() if name.startswith(place)}
        for entry in self.entries.values():
            member = self._members.get(entry.storage)
            if member is None or member.file_size < entry.last * ITEM_BYTES[entry.dtype]:
                _damaged(f"the values of {printable(entry.name)} are not all in it")

    def _storage(self, key: str) -> npt.NDArray[np.uint8]:
        """Return a storage, cached because tensors that share one usually follow each other."""
        if self._kept[0] != key or self._kept[1] is None:
            self._kept = ("", None)
            info = self._members[key]
            self._may_read -= info.file_size
            if self._may_read < 0:
                _damaged("its tensors lie across each other")
            with _telling_damage():
                self._kept = (key, self._read(info, info.file_size))
        values = self._kept[1]
        assert values is not None
        return values

    def _read(self, info: zipfile.ZipInfo, most: int) -> npt.NDArray[np.uint8]:
        """Return a member's bytes. `zipfile` compares their CRC-32 at the end."""
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.compress_size != info.file_size:
            _damaged(f"{printable(info.filename)} is compressed or encrypted, which torch.save never does")
        if info.file_size > most or info.header_offset + info.file_size > self._size:
            _damaged(f"{printable(info.filename)} claims {info.file_size} bytes")
        values, filled = np.empty(info.file_size, np.uint8), 0
        with self._archive.open(info) as member:
            while block := member.read(1 << 20):
                values[filled : filled + len(block)] = np.frombuffer(block, np.uint8)
                filled += len(block)
        if filled != info.file_size:
            _damaged(f"{printable(info.filename)} ends early")
        return values


@contextmanager
def _telling_damage() -> Iterator[None]:
    """Turn errors that ``zipfile`` raises over the file's contents into ``FormatError``."""
    try:
        yield
    except DirectoryTooLargeError:
        _damaged("its table of contents is too large")
    except (
        zipfile.BadZipFile,
        EOFError,
        LookupError,
        ValueError,
        RuntimeError,
        ArithmeticError,
        struct.error,
    ) as error:
        _damaged(printable(error))
    except OSError as error:
        if error.errno is not None:
            raise
        _damaged(printable(error))


# -- the pickle -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_ARGUMENTS = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
)


def read_state_dict(pickle: bytes, limits: AdapterLimits) -> dict[str, StoredTensor]:
    """Return the tensors of the dict that the pickle describes, by name. Raises ``FormatError``."""
    try:
        tensors = limits.max_tensors + limits.max_expert_tensors
        root = _Machine(_STEPS_BESIDE + _STEPS_PER_TENSOR * tensors).run(pickle)
    except FormatError:
        raise
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, struct.error, RecursionError):
        _damaged("its pickle is cut off or damaged")
    if not isinstance(root, dict):
        _refuse("adapter_model.bin holds something else than a dict of tensors.")
    return {name: _stored(name, value) for name, value in root.items()}


def _stored(name: str, value: object) -> StoredTensor:
    if not isinstance(value, _Tensor):
        _refuse(f"adapter_model.bin holds {printable(name)}, which is no tensor: it is not a saved adapter.")
    dtype = _STORAGES.get(value.storage.kind)
    if dtype is None:
        raise FormatError(
            "unsupported_dtype",
            f"{printable(name)} is stored as {printable(value.storage.kind)}, which adapters may not use.",
            "Save the adapter in float32, float16 or bfloat16.",
            name,
        )
    return StoredTensor(name, dtype, value.shape, value.storage.key, value.offset, value.strides)


class _Machine:
    """An interpreter of a pickle's instructions. Its values are numbers, texts, tuples, dicts and the records above."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self, pickle: bytes) -> object:
        """Return the pickle's value. Raises ``FormatError``, or any error that damage causes."""
        for code, argument, _place in pickletools.genops(pickle):
            self._left -= 1
            if self._left < 0:
                _damaged("its pickle takes too many steps")
            if code.name == "STOP":
                return self._stack[-1]
            self._step(code.name, argument)
        raise ValueError("no STOP")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _ARGUMENTS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name not in ("PROTO", "FRAME"):
            handler = _HANDLERS.get(name)
            if handler is None:
                _refuse(f"adapter_model.bin needs the pickle instruction {name}, which no saved adapter does.")
            handler(self, argument)

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self, kind: type[Any]) -> Any:
        value = self._stack.pop()
        if not isinstance(value, kind):
            raise TypeError(kind)
        return value

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def to_mark(self) -> list[Any]:
        """Remove and return the items above the last mark, and the mark."""
        place = self._marks.pop()
        items = self._stack[place:]
        del self._stack[place:]
        return items

    def take(self, count: int) -> tuple[Any, ...]:
        if len(self._stack) < count:
            raise IndexError(count)
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        return items

    def store(self, pairs: list[Any]) -> None:
        """Store keys and values, in turn, in the dict on top of the stack. A duplicate name is refused."""
        into = self._stack[-1]
        if not isinstance(into, dict) or len(pairs) % 2:
            raise TypeError(into)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str) or key in into:
                raise TypeError(key)
            into[key] = value

    def call(self) -> None:
        arguments, function = self.pop(tuple), self.pop(_Global)
        known = _CALLS.get(function.name)
        if known is None:
            _refuse(f"adapter_model.bin would call {printable(function.name)} when it is loaded.")
        self.push(known(*arguments))

    def build(self) -> None:
        """Drop the state of the object below: an ordered dict's metadata, which has no tensors."""
        self._stack.pop()
        if not isinstance(self._stack[-1], dict):
            _refuse("adapter_model.bin would set the state of an object when it is loaded.")


def _rebuilt(storage: _Storage, offset: int, shape: Any, strides: Any, *_rest: object) -> _Tensor:
    sizes = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or len(shape) != len(strides) or len(shape) > 8:
        raise TypeError(storage)
    if not all(type(size) is int and 0 <= size < 1 << 48 for size in sizes):
        raise ValueError(sizes)
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _ordered(*items: object) -> dict[str, Any]:
    """Return an empty dict for `OrderedDict`, which later instructions fill."""
    if items:
        raise TypeError(items)
    return {}


def _parameter(tensor: _Tensor, *_rest: object) -> _Tensor:
    if not isinstance(tensor, _Tensor):
        raise TypeError(tensor)
    return tensor


def _persistent(machine: _Machine, _argument: Any) -> None:
    """Push the storage of ``("storage", type, key, device, elements)``."""
    what, kind, key, _device, _elements = machine.pop(tuple)
    if what != "storage" or not isinstance(kind, _Global) or not isinstance(key, str):
        raise TypeError(what)
    machine.push(_Storage(kind.name.removeprefix("torch "), key))


def _stack_global(machine: _Machine, _argument: Any) -> None:
    name, module = machine.pop(str), machine.pop(str)
    machine.push(_Global(f"{module} {name}"))


_CALLS: dict[str, Callable[..., Any]] = {
    "collections OrderedDict": _ordered,
    "torch._utils _rebuild_tensor_v2": _rebuilt,
    "torch._utils _rebuild_parameter": _parameter,
}
_HANDLERS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda machine, _: machine.mark(),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.to_mark())),
    "TUPLE1": lambda machine, _: machine.push(machine.take(1)),
    "TUPLE2": lambda machine, _: machine.push(machine.take(2)),
    "TUPLE3": lambda machine, _: machine.push(machine.take(3)),
    "SETITEM": lambda machine, _: machine.store(list(machine.take(2))),
    "SETITEMS": lambda machine, _: machine.store(machine.to_mark()),
    "GLOBAL": lambda machine, argument: machine.push(_Global(argument)),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, argument: _persistent(machine, argument),
}


def _refuse(message: str) -> NoReturn:
    raise FormatError("pickle_refused", message, _SAVE_SAFE)


def _damaged(what: str) -> NoReturn:
    raise FormatError("damaged_pickle", f"adapter_model.bin is damaged: {what}.", _SAVE_SAFE)
