//! The CUDA driver API and NVML as data: types, open result codes, one declared list of functions.
