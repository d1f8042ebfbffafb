"""Small adapters as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lorikeet_testing.adapter_files import GEOMETRY, Tensors, encode, make_tensors, save_adapter

from lora_engine.peft_format import BaseGeometry


@pytest.fixture
def geometry() -> BaseGeometry:
    return GEOMETRY


@pytest.fixture
def tensors() -> Callable[..., Tensors]:
    return make_tensors


@pytest.fixture
def save() -> Callable[..., Path]:
    return save_adapter


@pytest.fixture
def raw_safetensors() -> Callable[..., bytes]:
    return encode
