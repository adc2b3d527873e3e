//! Common parts of the fuzz targets: a tenant's directory, and how fuzzer's bytes become damage to its files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;
use vcuda_region::GpuUuid;
use vcuda_region::clock::now_ns;
use vcuda_region::directory::{Directory, Tenant};
use vcuda_quota::DeviceConfig;

/// The tenant's GPU.
pub const UUID: GpuUuid = GpuUuid::from_bytes([1; 16]);
/// Its memory limit in bytes.
pub const LIMIT_BYTES: u64 = 1 << 30;
/// Its share in thousandths.
pub const CAP_PERMILLE: u32 = 300;

/// A tenant's directory in a scratch folder.
#[derive(Debug)]
pub struct Container {
    _root: TempDir,
    directory: Directory,
}

impl Container {
    /// A new one, with sound files.
    pub fn new() -> Self {
        let root = tempfile::Builder::new()
            .permissions(PermissionsExt::from_mode(0o700))
            .tempdir()
            .expect("a scratch folder can be made");
        let tenant = Tenant {
            name: "tenant".to_owned(),
            devices: vec![(UUID, DeviceConfig::new(LIMIT_BYTES, CAP_PERMILLE))],
            is_suspendable: true,
            memory_wait_ms: None,
        };
        let directory =
            Directory::create(root.path(), &tenant, b"", None, now_ns()).expect("the tenant can be made");
        Container { _root: root, directory }
    }

    /// Where the files are.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Default for Container {
    fn default() -> Self {
        Self::new()
    }
}

/// Damages `file`: the first byte of `bytes` may cut it; the rest are places (3 bytes) and lengths (1 byte), each
/// followed by what is written there.
pub fn scribble(file: &mut Vec<u8>, bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else {
        return;
    };
    while let [a, b, c, length, tail @ ..] = rest {
        let (written, after) = tail.split_at(usize::from(*length).min(tail.len()));
        let place = usize::from(*a) | usize::from(*b) << 8 | usize::from(*c) << 16;
        let at = place % file.len().max(1);
        for (byte, new) in file.iter_mut().skip(at).zip(written) {
            *byte = *new;
        }
        rest = after;
    }
    match first {
        0..=199 => {}
        200..=227 => file.truncate(usize::from(first - 200) * 8),
        _ => file.truncate(file.len() * usize::from(first - 227) / 32),
    }
}
