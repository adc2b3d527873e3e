//! The two meanings of stream 0, as a function's name tells them.

/// Meaning of stream 0 in the function that was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultStream {
    /// The legacy stream, for all threads.
    Legacy,
    /// The calling thread's own stream.
    PerThread,
}

impl DefaultStream {
    /// Reads the name of a driver function: `_ptsz` and `_ptds` at its end stand for "per-thread default stream" (`cuda.h`,
    /// `__CUDA_API_PTSZ` and `__CUDA_API_PTDS`).
    pub(crate) const fn of_function(name: &str) -> Self {
        match name.as_bytes() {
            [.., b'_', b'p', b't', b's', b'z'] | [.., b'_', b'p', b't', b'd', b's'] => Self::PerThread,
            _ => Self::Legacy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_tells_the_default_stream() {
        for name in ["cuLaunchKernel_ptsz", "cuMemcpyDtoDAsync_v2_ptsz", "cuMemcpyDtoD_v2_ptds"] {
            assert_eq!(DefaultStream::of_function(name), DefaultStream::PerThread, "{name}");
        }
        for name in ["", "cuLaunchKernel", "cuMemcpyDtoD_v2", "ptsz", "cu_ptszX"] {
            assert_eq!(DefaultStream::of_function(name), DefaultStream::Legacy, "{name}");
        }
    }
}
