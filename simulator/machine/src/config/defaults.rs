//! Default values, and values derived from the directory: UUIDs, PCI addresses.

use super::{
    ClockKind, Config, DriverProfile, FaultConfig, FunctionFault, GpuConfig, KernelConfig, RING_ENTRIES,
    profile,
};

impl Default for Config {
    /// The machine of the default profile, with one GPU.
    fn default() -> Self {
        // Cannot fail: the profiles are part of the program, and tests read all of them.
        Config::of_profile(profile::DEFAULT).unwrap_or_else(|_| Config::without_profile())
    }
}

impl Config {
    /// Values that no profile gives. Every profile gives the keys that are empty here.
    pub(super) fn without_profile() -> Self {
        Config {
            profile: String::new(),
            clock: ClockKind::Real,
            driver_version: String::new(),
            cuda_version: 0,
            context_bytes: 0,
            module_bytes: 0,
            green_context_bytes: 4 << 20,
            granularity_bytes: 0,
            slice_ns: 0,
            switch_ns: 0,
            queue_depth: RING_ENTRIES,
            sample_ns: 166_666_667,
            accounting: false,
            persistence: true,
            // PCIe 5.0 x16 and HBM3 in round figures.
            copy_bytes_per_us: 50_000,
            device_copy_bytes_per_us: 1_500_000,
            copy_latency_ns: 2_000,
            kernels: KernelConfig::default(),
            faults: FaultConfig::default(),
            nvlinks: Vec::new(),
            driver: DriverProfile::default(),
            gpus: vec![GpuConfig::default()],
        }
    }
}

impl Default for KernelConfig {
    fn default() -> Self {
        KernelConfig {
            default_ns: 5_000,
            default_ns_per_wave: 2_000,
            work_ns_per_iteration: 10,
            duration_ns: Default::default(),
        }
    }
}

impl Default for FunctionFault {
    /// `CUDA_ERROR_OUT_OF_MEMORY` at no call.
    fn default() -> Self {
        FunctionFault { nth: None, every: None, code: 2 }
    }
}

impl Default for GpuConfig {
    fn default() -> Self {
        GpuConfig {
            name: "Simulated GPU 80GiB".into(),
            uuid: String::new(),
            memory_bytes: 80 << 30,
            sms: 132,
            compute_capability: "9.0".into(),
            clock_mhz: 1980,
            memory_clock_mhz: 2619,
            memory_bus_bits: 5120,
            l2_bytes: 50 << 20,
            integrated: false,
            pci_bus_id: String::new(),
            numa_node: 0,
            power_limit_mw: 700_000,
        }
    }
}

impl Config {
    /// Fills in empty fields: UUIDs from `seed` (the machine's directory) and index, PCI addresses from the index.
    pub(crate) fn fill(&mut self, seed: &[u8]) {
        for (index, gpu) in (0u64..).zip(self.gpus.iter_mut()) {
            if gpu.uuid.is_empty() {
                gpu.uuid = uuid(seed, index);
            }
            if gpu.pci_bus_id.is_empty() {
                gpu.pci_bus_id = format!("0000:{:02x}:00.0", 0x17 + index * 0x10 % 0xe0);
            }
        }
    }
}

/// A UUID in the form of version 4, determined by seed and index.
fn uuid(seed: &[u8], index: u64) -> String {
    let high = fnv1a(fnv1a(FNV, seed), &index.to_le_bytes());
    let low = fnv1a(high, b"low");
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
    let (d, e) = (((low >> 48) & 0x3fff) | 0x8000, low & 0xffff_ffff_ffff);
    format!("GPU-{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
}

pub(crate) const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, continued from `hash`.
pub(crate) fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    let mixed = bytes.iter().fold(hash, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    mixed ^ (mixed >> 29)
}
