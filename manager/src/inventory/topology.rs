//! Position of a GPU by the kernel's `/sys`: its PCI root and NUMA node.

use std::path::{Component, Path};

/// Name of a GPU's directory under `/sys/bus/pci/devices`. NVML writes 8 digits of the domain, in upper case.
pub(crate) fn sysfs_name(bus_id: &str) -> String {
    let lower = bus_id.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 => match domain.strip_prefix("0000") {
            Some(short) => format!("{short}:{rest}"),
            None => lower,
        },
        _ => lower,
    }
}

/// PCI root above the device, such as `pci0000:3a`; `None` if `/sys` has no such device.
pub(crate) fn pci_root(sysfs: &Path, name: &str) -> Option<String> {
    let device = sysfs.join("bus/pci/devices").join(name).canonicalize().ok()?;
    let roots = device.components().filter_map(|component| match component {
        Component::Normal(part) => part.to_str().filter(|part| part.starts_with("pci")),
        _ => None,
    });
    roots.map(str::to_owned).next()
}

/// NUMA node of the device; `None` if the kernel knows none (it says -1).
pub(crate) fn numa_node(sysfs: &Path, name: &str) -> Option<u32> {
    let file = sysfs.join("bus/pci/devices").join(name).join("numa_node");
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Lowest node in a bit set of nodes, in words of 64 bits.
pub(crate) fn lowest(nodes: &[u64]) -> Option<u32> {
    let (word, bits) = (0_u32..).zip(nodes).find(|(_, bits)| **bits != 0)?;
    Some(word * 64 + bits.trailing_zeros())
}

/// FP32 cores per multiprocessor as NVML counts them (CUDA C++ Programming Guide, "Arithmetic Instructions"), for GPUs that
/// do not tell their multiprocessors; `None` for later ones.
pub(crate) fn cores_per_multiprocessor(capability: (u32, u32)) -> Option<u32> {
    match capability {
        (3, _) => Some(192),
        (6 | 8, 0) | (7, _) => Some(64),
        (5 | 6 | 8 | 9 | 10 | 12, _) => Some(128),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels() {
        assert_eq!(sysfs_name("00000000:3A:00.0"), "0000:3a:00.0");
        assert_eq!(sysfs_name("0000:3a:00.0"), "0000:3a:00.0");
        assert_eq!(sysfs_name("10000000:01:00.0"), "10000000:01:00.0", "a domain of a VMD");
    }

    #[test]
    fn a_device_is_found_below_its_root() {
        let place = tempfile::tempdir().unwrap();
        let name = "0000:3b:00.0";
        let device = place.path().join("devices/pci0000:3a/0000:3a:01.0").join(name);
        std::fs::create_dir_all(&device).unwrap();
        std::fs::create_dir_all(place.path().join("bus/pci/devices")).unwrap();
        std::os::unix::fs::symlink(&device, place.path().join("bus/pci/devices").join(name)).unwrap();
        assert_eq!(pci_root(place.path(), name).as_deref(), Some("pci0000:3a"));
        assert_eq!(numa_node(place.path(), name), None);
        std::fs::write(device.join("numa_node"), "-1\n").unwrap();
        assert_eq!(numa_node(place.path(), name), None);
        std::fs::write(device.join("numa_node"), "1\n").unwrap();
        assert_eq!(numa_node(place.path(), name), Some(1));
        assert_eq!(pci_root(place.path(), "0000:00:00.0"), None);
    }

    #[test]
    fn the_lowest_node_counts() {
        assert_eq!(lowest(&[0, 0]), None);
        assert_eq!(lowest(&[0b100]), Some(2));
        assert_eq!(lowest(&[0, 1]), Some(64));
    }
}
