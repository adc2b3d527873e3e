//! The files that shim and manager share: on a real file system, with real processes, and damaged.
#![cfg(not(any(loom, miri)))]

mod directory;
mod flips;
mod hostile;
mod kept;
mod ledger_model;
mod storm;

/// The directory of a tenant with this quota on one GPU, in a root of its own.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn made(config: vcuda_quota::DeviceConfig) -> (tempfile::TempDir, vcuda_region::directory::Directory) {
    let root = tempfile::tempdir().unwrap();
    let uuid = vcuda_region::GpuUuid::from_bytes([1; 16]);
    let tenant = vcuda_region::directory::Tenant::new("a", vec![(uuid, config)]);
    let now_ns = vcuda_region::clock::now_ns();
    let directory =
        vcuda_region::directory::Directory::create(root.path(), &tenant, b"", None, now_ns).unwrap();
    (root, directory)
}
