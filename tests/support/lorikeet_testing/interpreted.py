"""Importing this makes Triton interpret its kernels where there is no GPU: import it before anything that has some."""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, and when a kernel is decorated
