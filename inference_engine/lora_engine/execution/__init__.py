"""The execution of planned steps on the device: input tensors, CUDA graphs, sampling and results."""
