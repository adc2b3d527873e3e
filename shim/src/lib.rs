//! libvcuda_shim.so: the library preloaded into a container's processes.
