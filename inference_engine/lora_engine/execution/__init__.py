"""Running a planned step on the device: input tensors, CUDA graphs and what is read back."""
