//! Collective kernels spin until their peers on other GPUs spin too. If one waits while its peers run, the peers burn
//! their GPUs' time. If one thread launches for several GPUs, the peers may even wait for ever. So a collective
//! kernel never waits for tokens. The next launch of another kind waits instead, for the buckets of all the
//! tenant's GPUs together. Processes must stop at the same collective: one that has launched fewer than a peer
//! goes on until it has caught up, as the peer may spin for it.
//!
//! They are known by their names: NCCL's begin with `nccl` (`ncclDevKernel_*` since 2.19, `ncclSymkDevKernel_*` since 2.27,
//! `ncclKernel_*` before; NVIDIA/nccl, `src/device/common.cu` and `src/device/symmetric/generate.py`), mangled as C++
//! functions without a namespace are: `_Z21ncclDevKernel_Generic...`.

use core::ffi::CStr;

use vcuda_driver_api::prelude::*;
use vcuda_limiter::controller::Verdict;
use vcuda_limiter::predict::{Key, Prediction};

use super::device_limiter::{DeviceLimiter, TOKENS, WINDOW, now_ns};
use super::{COSTS, Launches};
use crate::driver::real;

/// First letters of the names of collective kernels.
const PREFIX: &[u8] = b"nccl";

/// Whether a launch is of a collective kernel. The driver is asked for the name of a kernel that was never measured.
pub(super) fn is_collective(predicted: &Prediction, key: Key) -> bool {
    if predicted.is_collective || predicted.samples > 0 {
        return predicted.is_collective;
    }
    let named = key.kernel_handle().is_some_and(is_named_so);
    if named {
        COSTS.note_collective(predicted.index);
    }
    named
}

/// Whether the kernel of this handle, a function's or a library's, is named like a collective one. Drivers before CUDA 12.3
/// return no names.
fn is_named_so(handle: usize) -> bool {
    let mut name = core::ptr::null();
    // SAFETY: the handle that the application is about to launch; the driver writes a name or nothing.
    let known = unsafe { real::cuFuncGetName(&raw mut name, CUfunction(handle)) };
    if known.is_err() || name.is_null() {
        // SAFETY: as above: a launch takes either kind of handle.
        let known = unsafe { real::cuKernelGetName(&raw mut name, CUkernel(handle)) };
        if known.is_err() || name.is_null() {
            return false;
        }
    }
    // SAFETY: a null-terminated string, which lives as long as the handle.
    is_collective_name(unsafe { CStr::from_ptr(name) }.to_bytes())
}

fn is_collective_name(name: &[u8]) -> bool {
    let plain = name.strip_prefix(b"_Z").map_or(name, |mangled| {
        let digits = mangled.iter().take_while(|byte| byte.is_ascii_digit()).count();
        mangled.get(digits..).unwrap_or(mangled)
    });
    plain.starts_with(PREFIX)
}

impl Launches {
    /// Counts a collective launch and wakes launches that wait on peer devices, as the kernel may now wait for them.
    #[cold]
    pub(super) fn count_collective(&self, limiter: &DeviceLimiter) {
        let now_ns = now_ns();
        limiter.bucket.count_collective(now_ns);
        for peer in self.peers(limiter, now_ns) {
            peer.wake_waiters(TOKENS | WINDOW);
        }
    }

    /// Time until which a launch on `limiter` waits for a bucket (ns), given its own bucket's time. With peers it is
    /// the latest of all their times. `None` if a peer may spin for a collective that comes behind this launch.
    pub(super) fn held_until(&self, limiter: &DeviceLimiter, own: Option<u64>, now_ns: u64) -> Option<u64> {
        let launched = limiter.bucket.collectives();
        let mut latest = own;
        for peer in self.peers(limiter, now_ns) {
            let in_flight = peer.in_flight(now_ns).1 > 0;
            if in_flight && peer.bucket.collectives() > launched {
                return None;
            }
            if let Verdict::At(at_ns) = peer.verdict(&peer.view(now_ns), now_ns) {
                latest = latest.max(Some(at_ns));
            }
        }
        latest
    }

    /// Whether launches on `limiter` wait for other buckets too.
    pub(super) fn has_peers(&self, limiter: &DeviceLimiter, now_ns: u64) -> bool {
        self.peers(limiter, now_ns).next().is_some()
    }

    fn peers(&self, limiter: &DeviceLimiter, now_ns: u64) -> impl Iterator<Item = &DeviceLimiter> {
        let own = limiter.position();
        let joint = self.limiters.len() > 1 && limiter.bucket.has_collectives(now_ns);
        self.limiters.iter().filter(move |peer| {
            joint && peer.position() != own && peer.is_metered() && peer.bucket.has_collectives(now_ns)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_are_known_by_their_names() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "_Z21ncclDevKernel_Generic18ncclDevKernelArgs4K",
            "ncclSymkDevKernel_AllReduce_LDMC_sum_f8e4m3",
            "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
        ] {
            assert!(is_collective_name(name.as_bytes()), "{name}");
        }
        for name in ["", "_Z", "_Z4", "gemm_nccl", "_Z4gemmPf", "_ZN4nccl4gemmEv"] {
            assert!(!is_collective_name(name.as_bytes()), "{name}");
        }
    }
}
