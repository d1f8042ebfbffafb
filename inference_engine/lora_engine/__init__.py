"""The inference engine: one process per replica that serves many LoRA adapters of one base model.

Importing this package loads nothing heavy: ``wire`` and ``peft_format`` are shared with the
control plane and must stay free of torch.
"""
