"""Reading, checking and identifying LoRA adapters as PEFT writes them, without torch and without trust in the files.

The control plane validates uploads with this package; the engine validates again before it loads anything. Whatever the
bytes, every public function either returns, or raises ``FormatError`` or ``UploadError``; ``inspect_adapter`` only
reports.
"""

from .adapter_template import AdapterTemplate, read_adapter_template, try_template
from .canonical import Form, is_weights, to_peft_form
from .combination import LARGEST_WEIGHT, MAX_PARTS, Part, combined_digest, digests_of, is_combined, parts_of
from .embedding_layers import EMBEDDING, HEAD, EmbeddingLayer, EmbeddingLayerLora
from .experts import DOWN, GATE, GATE_UP, UP, ExpertFactor, ExpertLora, FactorForm
from .geometry import TARGETS, AdapterLimits, BaseGeometry
from .identity import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, file_digest, folder_digests
from .inspection import AdapterManifest, ValidationReport, inspect_adapter
from .modules import ModuleLora
from .problems import FormatError, Problem
from .recognised import recognise
from .resolved_config import resolve_patterns
from .safetensors_file import SafetensorsFile, TensorEntry
from .upload import UploadError, unpack_upload
from .vectors import BIAS, LORA_BIAS, MAGNITUDE, ModuleVector

__all__ = [
    "BIAS",
    "CONFIG_FILE",
    "DOWN",
    "EMBEDDING",
    "GATE",
    "GATE_UP",
    "HEAD",
    "LARGEST_WEIGHT",
    "LORA_BIAS",
    "MAGNITUDE",
    "MAX_PARTS",
    "TARGETS",
    "UP",
    "WEIGHTS_FILE",
    "AdapterLimits",
    "AdapterManifest",
    "AdapterTemplate",
    "BaseGeometry",
    "EmbeddingLayer",
    "EmbeddingLayerLora",
    "ExpertFactor",
    "ExpertLora",
    "FactorForm",
    "Form",
    "FormatError",
    "ModuleLora",
    "ModuleVector",
    "Part",
    "Problem",
    "SafetensorsFile",
    "TensorEntry",
    "UploadError",
    "ValidationReport",
    "adapter_digest",
    "combined_digest",
    "digests_of",
    "file_digest",
    "folder_digests",
    "inspect_adapter",
    "is_combined",
    "is_weights",
    "parts_of",
    "read_adapter_template",
    "recognise",
    "resolve_patterns",
    "to_peft_form",
    "try_template",
    "unpack_upload",
]
