//! Environment variables of the simulated driver, each read in one place; `VCUDA_SIM` belongs to `vcuda-machine`.

/// GPUs that are visible to this process (CUDA C++ Programming Guide, "CUDA Environment Variables").
pub(crate) const ENV_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Order of the visible GPUs (same page): `FASTEST_FIRST` (default) or `PCI_BUS_ID`.
pub(crate) const ENV_DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";

/// A variable's value; `None` if it is unset or not text.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
