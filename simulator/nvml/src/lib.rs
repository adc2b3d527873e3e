//! A simulated NVML (libnvidia-ml.so.1) for machines without a GPU.
