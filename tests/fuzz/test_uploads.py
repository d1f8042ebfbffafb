"""What an upload may hold: archives, configs and weights, made from good ones, through the check of an upload.

Each is refused by name with a fix, or accepted; and what is accepted is what was sent. The checking child runs in this
process (`validation_sandbox.validate`), so that nothing hides behind its limits.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import strategies as st
from lorikeet_testing.adapter_forms import ADAPTER as FORM_TENSORS
from lorikeet_testing.adapter_forms import BINARY, FORMS, torch_bytes
from lorikeet_testing.fuzzing import changed, fuzz
from lorikeet_testing.mutations import damaged
from lorikeet_testing.peft_files import GEOMETRY, adapter_files, as_candidate, config_bytes, safetensors_bytes, tensors

from control_plane.adapters.uploads.validation_sandbox import validate
from lora_engine.adapters.embedding_pages import EmbeddingLayersPlanner, pack_embedding_layers
from lora_engine.adapters.experts import read_factor
from lora_engine.memory import PoolGeometry
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, BaseGeometry, SafetensorsFile, inspect_adapter

# Of A and B, by module.
Shapes = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
ROOT = Path(__file__).resolve().parents[2]
ADAPTER = adapter_files(rank=2)
FOLDER = {f"adapter/{name}": content for name, content in (ADAPTER | {"README.md": b"# hello\n" * 90}).items()}
# Faults of the server, or of ours: never an answer to what a file holds.
NOT_THEIRS = {"server_disk", "storage_failed", "validation_crashed"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is a place for that: each case writes and removes a few files."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="lorikeet-fuzz-", dir=memory if memory.is_dir() else None))
    yield made
    shutil.rmtree(made)


def decide(folder: Path, files: dict[str, bytes], base: BaseGeometry = GEOMETRY) -> tuple[str, dict[str, bytes]]:
    """What becomes of an upload: "accepted" with the two files that would be stored, or a code."""
    for index, content in enumerate(files.values()):
        (folder / str(index)).write_bytes(content)
    into = folder / "unpacked"
    try:
        answer = validate(
            {
                "files": {name: str(folder / str(index)) for index, name in enumerate(files)},
                "into": str(into),
                "bases": [as_candidate(base), as_candidate(replace(base, name="other", digest="sha256:other"))],
                "adapter_base": base.digest,
            }
        )
        json.dumps(answer)
        problem = answer.get("problem")
        problems = [problem] if problem else answer["report"]["problems"]
        assert all(problem["code"] and problem["message"] and problem["fix"] for problem in problems)
        assert not NOT_THEIRS & {problem["code"] for problem in problems}, problems
        if problem:
            assert not into.exists(), "something of a refused archive stayed"
        if problems:
            return problems[0]["code"], {}
        loads(into, base)
        return "accepted", {name: (into / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE)}
    finally:
        shutil.rmtree(into, ignore_errors=True)


def loads(folder: Path, base: BaseGeometry = GEOMETRY) -> None:
    """What an engine does with an adapter that was accepted."""
    report = inspect_adapter(folder, base)
    assert report.manifest is not None, report.problems
    weights = SafetensorsFile.open(folder / WEIGHTS_FILE)
    for module in report.manifest.modules:
        assert weights.tensor(module.a_name).shape[0] == weights.tensor(module.b_name).shape[1] == module.rank
    for experts in report.manifest.experts:
        inner = base.expert_features * (2 if experts.module == "gate_up_proj" else 1)
        sizes = (base.hidden_size, inner) if experts.module != "down_proj" else (inner, base.hidden_size)
        for factor, size in zip((experts.a, experts.b), sizes, strict=True):
            count = 1 if factor.is_shared else base.experts
            assert read_factor(weights, factor, experts.rank, size).shape == (count, experts.rank, size)
    planner = EmbeddingLayersPlanner(PoolGeometry(GEOMETRY.num_layers, 4, 2, 16), row=0)
    if layout := planner.plan(report.manifest.embedding_layers):
        pages = torch.empty(GEOMETRY.num_layers, -(-planner.row // 8), 8 * 32)
        pack_embedding_layers(report.manifest.embedding_layers, layout, weights, pages, 32)


# -- archives ---------------------------------------------------------------------------------------------------------


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def streamed(files: dict[str, bytes]) -> bytes:
    """As `zip` writes to a pipe: sizes and checksums behind the data."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation

        def tell(self) -> int:
            raise io.UnsupportedOperation

    buffer = Pipe()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: dict[str, bytes], form: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_places(archive: bytes) -> list[range]:
    """Headers of members and the table of contents."""
    table = archive.index(b"PK\x01\x02")
    second = archive.index(b"PK\x03\x04", 4)
    return [range(40), range(second, second + 60), range(table, len(archive))]


def tar_places(archive: bytes) -> list[range]:
    """Headers of members, and the blocks at the end."""
    starts = [place for place in range(0, len(archive), 512) if archive[place + 257 : place + 262] == b"ustar"]
    return [*(range(start, start + 512) for start in starts), range(len(archive) - 10240, len(archive))]


TARS = [tarred(FOLDER, tarfile.USTAR_FORMAT), tarred(ADAPTER, tarfile.PAX_FORMAT),
        tarred({"x" * 120 + "/" + name: content for name, content in ADAPTER.items()}, tarfile.PAX_FORMAT),
        tarred({"x" * 120 + "/" + name: content for name, content in ADAPTER.items()}, tarfile.GNU_FORMAT)]  # fmt: skip
ZIPS = [zipped(FOLDER), zipped(ADAPTER, zipfile.ZIP_STORED), streamed(FOLDER),
        (ROOT / "demo/uploads/emoji.zip").read_bytes()]  # fmt: skip


def archives() -> st.SearchStrategy[tuple[str, bytes]]:
    gzips = [gzip.compress(archive, 1, mtime=0) for archive in TARS]
    zips = st.one_of([damaged(archive, zip_places(archive)) for archive in ZIPS])
    tars = st.one_of([damaged(archive, tar_places(archive)) for archive in TARS])
    gzipped = st.one_of([damaged(archive, [range(20), range(len(archive) - 12, len(archive))]) for archive in gzips])
    # A tar that was damaged before it was packed has a right checksum.
    packed = tars.map(partial(gzip.compress, compresslevel=1, mtime=0))
    return st.one_of(
        st.tuples(st.just("a.zip"), zips),
        st.tuples(st.just("a.tar"), tars),
        st.tuples(st.just("a.tar.gz"), gzipped),
        st.tuples(st.just("a.tgz"), packed),
    )


def test_archives(folder: Path) -> None:
    def run(case: tuple[str, bytes]) -> str:
        name, archive = case
        outcome, stored = decide(folder, {name: archive})
        if not stored or stored == ADAPTER:
            return outcome
        # Only a tar has no checksum of its content: what it says now is what was sent.
        assert name in ("a.tar", "a.tgz"), "accepted with another content"
        try:
            in_archive = as_tarfile_reads(archive)
        except tarfile.ReadError:  # of fields that we do not read, such as owners
            unpacked = archive if name == "a.tar" else gzip.decompress(archive)
            assert all(content in unpacked for content in stored.values())
            return "accepted, its owners damaged"
        assert stored == in_archive, "accepted with a content that is not in the archive"
        return "accepted as sent"

    fuzz("archive", archives(), run, vary=lambda case, rnd: (case[0], changed(case[1], rnd)))


def as_tarfile_reads(archive: bytes) -> dict[str, bytes]:
    read = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            base = Path(member.name).name
            if base in ADAPTER and member.isfile():
                file = members.extractfile(member)
                assert file is not None
                read[base] = file.read()
    return read


# -- forms ------------------------------------------------------------------------------------------------------------

TORCH = torch_bytes(FORM_TENSORS)
with zipfile.ZipFile(io.BytesIO(TORCH)) as _archive:
    TORCH_MEMBERS = {info.filename: _archive.read(info) for info in _archive.infolist()}
PICKLE = next(name for name in TORCH_MEMBERS if name.endswith("/data.pkl"))
OTHER_FORMS = [form.files() for form in FORMS if not form.as_sent]


def repacked(pickle: bytes) -> bytes:
    """A damaged pickle in a zip whose checksums are right."""
    return zipped(TORCH_MEMBERS | {PICKLE: pickle}, zipfile.ZIP_STORED)


@st.composite
def forms(draw: st.DrawFn) -> dict[str, bytes]:
    """A form with one of its files damaged."""
    files = draw(st.sampled_from(OTHER_FORMS))
    name = draw(st.sampled_from(sorted(files)))
    return files | {name: draw(damaged(files[name], [range(min(len(files[name]), 2000))]))}


def binaries() -> st.SearchStrategy[dict[str, bytes]]:
    pickles = damaged(TORCH_MEMBERS[PICKLE]).map(repacked)
    return (pickles | damaged(TORCH, zip_places(TORCH))).map(lambda binary: {CONFIG_FILE: CONFIG, BINARY: binary})


CONFIG = config_bytes()


def test_forms(folder: Path) -> None:
    def run(files: dict[str, bytes]) -> str:
        outcome, stored = decide(folder, files)
        if stored:
            (folder / WEIGHTS_FILE).write_bytes(stored[WEIGHTS_FILE])
            file = SafetensorsFile.open(folder / WEIGHTS_FILE)
            assert sum(entry.num_elements for entry in file.entries.values()) <= 1 << 20, "not more than was sent"
        return outcome

    fuzz("adapter form", forms() | binaries(), run, vary=changed_file)


def changed_file(files: dict[str, bytes], rnd: random.Random) -> dict[str, bytes]:
    name = rnd.choice(sorted(files))
    content = files[name]
    if name == BINARY and content[:2] == b"PK" and rnd.random() < 0.7:
        return files | {name: repacked(changed(TORCH_MEMBERS[PICKLE], rnd))}
    return files | {name: changed(content[:4000], rnd) + content[4000:]}


# -- configs ----------------------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
PIECES = ["q_proj", "v_proj", ".*", ".", r"\.", r"\d+", "layers", "self_attn", "(", ")", "|", "*", "+", "?", "{2}", "[",
          "{,3}", "{1,9999}", "]", "^", "$", "(?!v)", "(?=q)", "(?<=a)", "(?:", r"\1", r"\b", r"\w", "[^a]", "(?i)",
          "a*", "++", "(?P<n>", "(?(1)a|b)", "(?>", "\ud800", "é", "\0", "0", "model", "(.*)*", "(.*.*)*"]  # fmt: skip
GOOD_PATTERNS = ["q_proj", "v_proj", r".*\.(q|v)_proj", ".*[qv]_proj", r"model\.layers\.\d+\.self_attn\.(q|v)_proj",
                 "layers.0.self_attn.q_proj", r"^(?!.*lm_head).*(q_proj|v_proj)$", r"(?:.*?self_attn.*?(?:q|v)_proj)",
                 r"layers\.(0|1)\..*"]  # fmt: skip
FIELDS = ["r", "lora_alpha", "target_modules", "exclude_modules", "rank_pattern", "alpha_pattern", "use_rslora", "bias",
          "layers_to_transform", "layers_pattern", "peft_type", "task_type", "use_dora", "lora_bias",
          "init_lora_weights", "base_model_name_or_path", "modules_to_save", "trainable_token_indices",
          "ensure_weight_tying", "fan_in_fan_out", "anything"]  # fmt: skip


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """One that people write, with up to three pieces put into it."""
    pattern = draw(st.sampled_from([*GOOD_PATTERNS, ""]))
    for piece in draw(st.lists(st.sampled_from(PIECES), max_size=3)):
        at = draw(st.integers(0, len(pattern)))
        pattern = pattern[:at] + piece + pattern[at:]
    return pattern * draw(st.sampled_from([1, 1, 1, 1, 1, 20]))


ALPHAS = st.integers(0, 600) | st.floats(-1, 600)
CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "r": st.integers(-1, 600) | st.floats(0, 600),
    "lora_alpha": ALPHAS,
    "target_modules": patterns() | st.lists(patterns(), max_size=4),
    "exclude_modules": patterns() | st.lists(patterns(), max_size=4),
    "rank_pattern": st.dictionaries(patterns(), st.sampled_from([2, 2, 2, 2, 4, 0, -1]), max_size=4),
    "alpha_pattern": st.dictionaries(patterns(), ALPHAS, max_size=4),
    "layers_to_transform": st.lists(st.integers(-1, 3), max_size=3) | st.integers(0, 2),
    "layers_pattern": patterns() | st.just("layers"),
    "use_rslora": st.booleans(),
    "use_dora": st.booleans(),
    "lora_bias": st.booleans(),
    "bias": st.sampled_from(["none", "all", "lora_only", "every"]),
}


@st.composite
def changed_configs(draw: st.DrawFn) -> bytes:
    config = json.loads(config_bytes(rank=2))
    for field in draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=3)):
        config[field] = draw(CHANGES[field])
    if draw(st.integers(0, 3)) == 0:
        config |= draw(st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=2))
    return json.dumps(config).encode()


def configs() -> st.SearchStrategy[bytes]:
    good = config_bytes(rank=2)
    real = [path.read_bytes() for path in sorted((ROOT / "demo/adapters").glob(f"*/{CONFIG_FILE}"))]
    changed, damage = changed_configs(), [damaged(config) for config in [good, *real]]
    return st.integers(0, 3).flatmap(lambda kind: changed if kind else st.one_of(damage))


def test_configs(folder: Path) -> None:
    def run(config: bytes) -> str:
        weights = weights_for(config)
        outcome, stored = decide(folder, {CONFIG_FILE: config, WEIGHTS_FILE: weights})
        if stored and stored[CONFIG_FILE] != config:
            same_meaning(folder, weights, config, stored[CONFIG_FILE])
            outcome = "accepted, patterns resolved"
        assert not stored or stored[WEIGHTS_FILE] == weights
        return outcome

    fuzz("adapter config", configs(), run, vary=changed)


EMBEDDING_LAYERS = {
    "model.embed_tokens.lora_embedding_A": (2, 32), "model.embed_tokens.lora_embedding_B": (64, 2),
    "model.embed_tokens.weight": (32, 64), "model.embed_tokens.token_adapter.trainable_tokens_delta": (2, 64),
    "lm_head.lora_A.weight": (2, 64), "lm_head.lora_B.weight": (32, 2), "lm_head.base_layer.weight": (32, 64),
    "lm_head.token_adapter.trainable_tokens_delta": (2, 64), "lm_head.weight": (35, 64), "lm_head.bias": (32,),
}  # fmt: skip
NAMES_OF_EMBEDDING_LAYERS = st.lists(
    st.sampled_from(["lm_head", "embed_tokens", "model.embed_tokens", "norm", "", "head"])
)
TOKENS = st.lists(st.integers(-1, 40), max_size=3)


@st.composite
def adapters_of_embedding_layers(draw: st.DrawFn) -> dict[str, bytes]:
    """Some tensors of the embedding and the head, of shapes that may be wrong, and a config that may name them."""
    names = draw(st.lists(st.sampled_from(sorted(EMBEDDING_LAYERS)), unique=True, min_size=1))
    shapes = {name: EMBEDDING_LAYERS[name] for name in names}
    if draw(st.booleans()):
        shapes[draw(st.sampled_from(names))] = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 32, 64]), max_size=3)))
    more = {f"base_model.model.{name}": np.ones(shape, np.float32) for name, shape in shapes.items()}
    config: dict[str, Any] = {
        "target_modules": ["q_proj", "v_proj", *draw(NAMES_OF_EMBEDDING_LAYERS)],
        "modules_to_save": draw(NAMES_OF_EMBEDDING_LAYERS | st.none()),
        "trainable_token_indices": draw(
            TOKENS | st.none() | st.dictionaries(st.sampled_from(["lm_head", "embed_tokens", ""]), TOKENS | SCALARS)
        ),
        "ensure_weight_tying": draw(st.booleans()),
    }
    return {
        CONFIG_FILE: config_bytes(rank=2, **{"targets": (), **config}),
        WEIGHTS_FILE: safetensors_bytes(tensors(rank=2) | more),
    }


def test_adapters_of_embedding_layers(folder: Path) -> None:
    fuzz(
        "adapter of embedding layers",
        adapters_of_embedding_layers(),
        lambda files: decide(folder, files)[0],
        vary=changed_file,
    )


WITH_EXPERTS = replace(GEOMETRY, experts=3, expert_features=8, shared_features=16, layer_kinds="ae")
SIZES_OF_EXPERTS = {"gate_proj": (64, 8), "up_proj": (64, 8), "down_proj": (8, 64)}
OF_EXPERTS: dict[str, Shapes] = {
    "each": {
        f"experts.{expert}.{module}": ((2, i), (o, 2))
        for module, (i, o) in SIZES_OF_EXPERTS.items()
        for expert in range(3)
    },
    "stacked": {f"experts.{module}": ((3, 2, i), (3, o, 2)) for module, (i, o) in SIZES_OF_EXPERTS.items()},
    "shared": {"experts.gate_up_proj": ((1, 2, 64), (3, 16, 2)), "experts.down_proj": ((3, 2, 8), (1, 64, 2))},
    "parameters": {"experts.base_layer": ((6, 64), (16, 6)), "experts": ((6, 8), (64, 6))},
    "beside": {"shared_experts.up_proj": ((2, 64), (16, 2)), "gate": ((2, 64), (3, 2))},
}  # fmt: skip
PATTERNS_OF_EXPERTS = st.sampled_from(
    [r".*_proj", r".*experts.*", r".*experts\.[01]\..*", "gate_proj", "experts.down_proj", r".*(shared_experts|gate).*",
     "experts.1.up_proj", r".*gate_up_proj"]
)  # fmt: skip


@st.composite
def adapters_of_experts(draw: st.DrawFn) -> dict[str, bytes]:
    """Forms of experts, perhaps two at a time, with tensors left out or of other sizes, and a config that may fit."""
    shapes: dict[str, tuple[int, ...]] = {}
    for form in draw(st.lists(st.sampled_from(sorted(OF_EXPERTS)), min_size=1, max_size=2, unique=True)):
        for module, pair in OF_EXPERTS[form].items():
            for side, shape in zip("AB", pair, strict=True):
                shapes[f"base_model.model.model.layers.1.mlp.{module}.lora_{side}.weight"] = shape
    for name in draw(st.lists(st.sampled_from(sorted(shapes)), max_size=1)):
        change = draw(st.none() | st.lists(st.sampled_from([0, 1, 2, 3, 8, 64]), max_size=3))
        if change is None:
            del shapes[name]
        else:
            shapes[name] = tuple(change)
    numbers = st.dictionaries(PATTERNS_OF_EXPERTS, st.sampled_from([2, 2, 2, 4]), max_size=2)
    config: dict[str, Any] = {
        "target_modules": draw(PATTERNS_OF_EXPERTS | st.lists(PATTERNS_OF_EXPERTS, max_size=3)),
        "exclude_modules": draw(st.none() | PATTERNS_OF_EXPERTS),
        "rank_pattern": draw(st.just({}) | numbers),
        "alpha_pattern": draw(numbers),
    }
    names = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "experts.down_proj", "q_proj.weight"]
    if draw(st.booleans()):
        config["target_parameters"] = draw(st.lists(st.sampled_from(names), max_size=2))
    return {
        CONFIG_FILE: config_bytes(rank=2, **{"targets": (), **config}),
        WEIGHTS_FILE: safetensors_bytes({name: np.ones(shape, np.float32) for name, shape in shapes.items()}),
    }


def test_adapters_of_experts(folder: Path) -> None:
    def run(files: dict[str, bytes]) -> str:
        outcome, stored = decide(folder, files, WITH_EXPERTS)
        if stored and stored[CONFIG_FILE] != files[CONFIG_FILE]:
            same_meaning(folder, stored[WEIGHTS_FILE], files[CONFIG_FILE], stored[CONFIG_FILE], WITH_EXPERTS)
            outcome = "accepted, patterns resolved"
        return outcome

    fuzz("adapter of experts", adapters_of_experts(), run, vary=changed_file)


def weights_for(config: bytes) -> bytes:
    """With the vectors that the config seems to ask for."""
    suffixes = {b'"use_dora": true': "lora_magnitude_vector", b'"lora_bias": true': "lora_B.bias",
                b'"bias": "all"': "bias", b'"bias": "lora_only"': "base_layer.bias"}  # fmt: skip
    asked = [suffix for sign, suffix in suffixes.items() if sign in config]
    made = tensors(2)
    for name, matrix in list(made.items()):
        if name.endswith("lora_B.weight"):
            made |= {name.replace("lora_B.weight", suffix): matrix[:, 0].copy() for suffix in asked}
    return safetensors_bytes(made)


def same_meaning(folder: Path, weights: bytes, sent: bytes, kept: bytes, base: BaseGeometry = GEOMETRY) -> None:
    found = []
    for config in (sent, kept):
        place = folder / "compared"
        place.mkdir(exist_ok=True)
        (place / WEIGHTS_FILE).write_bytes(weights)
        (place / CONFIG_FILE).write_bytes(config)
        manifest = inspect_adapter(place, base).manifest
        assert manifest is not None
        found.append((manifest.modules, manifest.vectors, manifest.experts))
    assert found[0] == found[1]


# -- weights ----------------------------------------------------------------------------------------------------------

GOOD = safetensors_bytes(tensors(rank=2))
HEADER_END = 8 + struct.unpack("<Q", GOOD[:8])[0]
NAMES = list(tensors(rank=2))


def with_header(header: Any) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + GOOD[HEADER_END:]


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """A header whose JSON was changed: entries of one tensor, names, whole values."""
    header = json.loads(GOOD[8:HEADER_END])
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([*NAMES, "__metadata__"]) | st.text(max_size=12))
        entry = header.get(name)
        sizes = st.lists(st.integers(-1, 64) | st.sampled_from([1 << 31, 1 << 48, 1 << 64]), max_size=4)
        dtypes = st.sampled_from(["F32", "F16", "BF16", "F64", "I8", "F8_E4M3", "x"])
        parts = {"dtype": dtypes | JSON, "shape": sizes | JSON, "data_offsets": sizes | JSON}
        if isinstance(entry, dict) and draw(st.booleans()):
            part = draw(st.sampled_from(sorted(parts)))
            header[name] = {**entry, part: draw(parts[part])}
        else:
            header[name] = draw(JSON | st.fixed_dictionaries(parts))
    return with_header(header)


def test_weights(folder: Path) -> None:
    real = (ROOT / "demo/adapters/terse" / WEIGHTS_FILE).read_bytes()
    in_header = [range(HEADER_END)]
    damage = damaged(GOOD, in_header) | damaged(real, [range(4000)])
    cases = st.booleans().flatmap(lambda by_json: headers() if by_json else damage)

    def run(weights: bytes) -> str:
        outcome, stored = decide(folder, ADAPTER | {WEIGHTS_FILE: weights})
        if stored:
            assert stored == ADAPTER | {WEIGHTS_FILE: weights}
            assert as_we_read(folder, weights) == dict(as_safetensors_reads(weights))
        return outcome

    fuzz("safetensors header", cases, run, vary=changed_header)


def changed_header(weights: bytes, rnd: random.Random) -> bytes:
    return changed(weights[:HEADER_END], rnd) + weights[HEADER_END:]


def as_safetensors_reads(weights: bytes) -> Iterator[tuple[str, tuple[list[int], bytes]]]:
    for name, entry in safetensors.deserialize(weights):
        yield name, (entry["shape"], bytes(entry["data"]))


def as_we_read(folder: Path, weights: bytes) -> dict[str, tuple[list[int], bytes]]:
    (folder / WEIGHTS_FILE).write_bytes(weights)
    file = SafetensorsFile.open(folder / WEIGHTS_FILE)
    return {name: (list(entry.shape), file.tensor(name).tobytes()) for name, entry in file.entries.items()}
