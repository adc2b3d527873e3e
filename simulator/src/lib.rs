//! A simulated CUDA driver (libcuda.so.1) for machines without a GPU.
