"""LoRA and attention kernels over the paged pool: Triton, each with its torch reference."""
