from dataclasses import replace

from . import olmo2
from .family import Rope, every_nth_full

FAMILY = replace(
    olmo2.FAMILY,
    model_type="olmo3",
    title="OLMo 3",
    defaults={**olmo2.FAMILY.defaults, "sliding_window": 4096},
    # transformers gives rope_theta to the full layers only; sliding ones have a default that no setting changes.
    rope=Rope(theta=500_000.0, local_theta=("", 500_000.0), by_layer_type=True),
    layer_types=every_nth_full(4),
)
