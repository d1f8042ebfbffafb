"""The options of `make run`, read from the environment once."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.launch.paths import ROOT, var_dir
from scripts.launch.progress import Stop

# Characters of a Unix socket's path; the limit is 107 bytes on Linux and 103 on macOS.
MAX_SOCKET_PATH = 100
# The second demo model, which has recurrent layers beside attention.
HYBRID_MODEL, HYBRID_NAME = ROOT / "demo" / "hybrid" / "model", "lorikeet-demo-hybrid"


@dataclass(frozen=True)
class Options:
    """The settings of one embedded platform.

    host, port: the address of the web process. model_name: the base model's name in requests. hybrid: whether a second
    engine serves the second demo model, on the CPU. The others are options of the engine.
    """

    host: str
    port: int
    var: Path
    model: Path
    model_name: str
    hybrid: bool
    device: str
    dtype: str
    quantization: str
    kv_cache_dtype: str
    adapter_dtype: str
    speculation: str
    draft_model: Path
    deterministic: bool
    tensor_parallel: int
    threads: int
    pool_mb: int
    host_arena_mb: int

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> Options:
        demo_model = ROOT / "demo" / "model"
        model = Path(env.get("MODEL") or demo_model).resolve()
        device = env.get("DEVICE") or "cpu"
        # On a GPU the engine uses the free memory (0); on a laptop's CPU it leaves most of it to other programs.
        pool_mb, host_arena_mb = (256, 512) if device == "cpu" else (0, 0)
        return cls(
            host=env.get("HOST") or "127.0.0.1",
            port=_number(env, "PORT", 8000),
            var=var_dir(),
            model=model,
            model_name=env.get("MODEL_NAME") or ("lorikeet-demo" if model == demo_model else model.name),
            hybrid=_switch(env, "HYBRID", default="1" if model == demo_model and device == "cpu" else "0"),
            device=device,
            dtype=env.get("DTYPE") or "auto",
            quantization=env.get("QUANTIZATION") or "auto",
            kv_cache_dtype=env.get("KV_CACHE_DTYPE") or "auto",
            adapter_dtype=env.get("ADAPTER_DTYPE") or "auto",
            speculation=env.get("SPECULATION") or "off",
            draft_model=Path(env.get("DRAFT_MODEL") or ROOT / "demo" / "draft").resolve(),
            deterministic=_switch(env, "DETERMINISTIC"),
            tensor_parallel=_number(env, "TP", 1),
            threads=_number(env, "THREADS", max(1, min((os.cpu_count() or 1) - 1, 8))),
            pool_mb=_number(env, "POOL_MB", pool_mb),
            host_arena_mb=_number(env, "HOST_ARENA_MB", host_arena_mb),
        )

    @property
    def url(self) -> str:
        """The address to open in a browser, which cannot be 0.0.0.0."""
        host = "localhost" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{host}:{self.port}"

    @property
    def engine_socket(self) -> Path:
        return self._socket("engine.sock")

    @property
    def hybrid_socket(self) -> Path:
        return self._socket("hybrid.sock")

    @property
    def engine_sockets(self) -> dict[str, Path]:
        """The sockets of all engines by the names of their hosts."""
        return {"local": self.engine_socket, **({"hybrid": self.hybrid_socket} if self.hybrid else {})}

    def _socket(self, name: str) -> Path:
        path = self.var / "run" / name
        if len(str(path)) <= MAX_SOCKET_PATH:
            return path
        digest = hashlib.sha256(str(self.var).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"lorikeet-{os.getuid()}-{digest}" / name


def _switch(env: Mapping[str, str], name: str, default: str = "0") -> bool:
    text = env.get(name) or default
    if text not in ("0", "1"):
        raise Stop(f"{name}={text} is neither 0 nor 1.", f"Give one of them, e.g. make run {name}=1")
    return text == "1"


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name) or str(default)
    if not text.isdecimal():
        raise Stop(f"{name}={text} is not a number.", f"Give a whole number, e.g. make run {name}={default}")
    return int(text)
