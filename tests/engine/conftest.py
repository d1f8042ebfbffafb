"""Engine tests run on one thread: several test processes share the machine, and torch's threads spin while they wait."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
