use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::*;

/// A root with a driver of Debian's kind: versioned files, names that link to them, and alternatives.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let libraries = root.path().join("usr/lib/x86_64-linux-gnu");
    fs::create_dir_all(libraries.join("nvidia")).unwrap();
    fs::create_dir_all(root.path().join("usr/bin")).unwrap();
    fs::create_dir_all(root.path().join("etc/alternatives")).unwrap();
    for name in ["libcuda.so.580.1", "libnvidia-ml.so.580.1", "libnvidia-gpucomp.so.580.1"] {
        fs::write(libraries.join("nvidia").join(name), "").unwrap();
    }
    symlink("nvidia/libnvidia-gpucomp.so.580.1", libraries.join("libnvidia-gpucomp.so.580.1")).unwrap();
    symlink("/etc/alternatives/libcuda", libraries.join("libcuda.so.1")).unwrap();
    symlink(
        "/usr/lib/x86_64-linux-gnu/nvidia/libcuda.so.580.1",
        root.path().join("etc/alternatives/libcuda"),
    )
    .unwrap();
    symlink("nvidia/libnvidia-ml.so.580.1", libraries.join("libnvidia-ml.so.1")).unwrap();
    fs::write(libraries.join("libc.so.6"), "").unwrap();
    fs::write(root.path().join("usr/bin/nvidia-smi"), "").unwrap();
    root
}

fn host_of(bound: &[DriverFile], container: &str) -> Option<String> {
    bound
        .iter()
        .find(|file| file.container == Path::new(container))
        .map(|file| file.host.display().to_string())
}

#[test]
fn a_driver_is_found_through_alternatives_and_bound_by_the_names_that_programs_ask_for() {
    let root = root();
    let bound = find(Path::new("/run/nvidia/driver"), root.path()).unwrap();
    let cuda = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/nvidia/libcuda.so.580.1";
    for name in ["/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"]
    {
        assert_eq!(host_of(&bound, name).as_deref(), Some(cuda), "{name}");
    }
    assert!(host_of(&bound, "/usr/lib64/libnvidia-gpucomp.so.580.1").is_some());
    assert_eq!(
        host_of(&bound, "/usr/bin/nvidia-smi").as_deref(),
        Some("/run/nvidia/driver/usr/bin/nvidia-smi")
    );
    assert!(bound.iter().all(|file| !file.host.ends_with("libc.so.6")), "{bound:?}");
}

#[test]
fn without_its_library_there_is_no_driver() {
    let root = root();
    fs::remove_file(root.path().join("etc/alternatives/libcuda")).unwrap();
    let said = find(Path::new("/"), root.path()).unwrap_err().to_string();
    assert!(said.contains("libcuda.so.1") && said.contains("driver.root"), "{said}");
}

#[test]
fn links_do_not_lead_out_of_the_root() {
    let root = root();
    let outside = tempfile::NamedTempFile::new().unwrap();
    let link = root.path().join("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
    for target in [
        outside.path().to_owned(),
        Path::new("../../../../../../../../../..").join(outside.path().strip_prefix("/").unwrap()),
    ] {
        fs::remove_file(&link).unwrap();
        symlink(target, &link).unwrap();
        let said = find(Path::new("/"), root.path()).unwrap_err().to_string();
        assert!(said.contains("libnvidia-ml.so.1"), "{said}");
    }
    // A link to itself.
    fs::remove_file(&link).unwrap();
    symlink("libnvidia-ml.so.1", &link).unwrap();
    assert!(find(Path::new("/"), root.path()).is_err());
}

/// The kernel follows 40 links and no more, so that a circle ends.
#[test]
fn forty_links_are_followed() {
    let root = tempfile::tempdir().unwrap();
    let link = |number: u32| root.path().join(format!("link-{number}"));
    fs::write(link(0), "").unwrap();
    for number in 1..=41 {
        symlink(format!("link-{}", number - 1), link(number)).unwrap();
    }
    let resolved = |name: &str| resolve(root.path(), Path::new(name));
    assert_eq!(resolved("link-40"), Some("link-0".into()));
    assert_eq!(resolved("link-41"), None);
    symlink("circle", root.path().join("circle")).unwrap();
    assert_eq!(resolved("circle"), None);
}

/// A cache of one library, in both formats.
fn cache(flags: u32, with_old: bool) -> Vec<u8> {
    let mut newer = b"glibc-ld.so.cache1.1".to_vec();
    let strings = b"libcuda.so.1\0/opt/driver/libcuda.so.1\0";
    newer.extend(1_u32.to_le_bytes());
    newer.extend(u32::try_from(strings.len()).unwrap().to_le_bytes());
    newer.resize(48, 0);
    for word in [flags, 72, 72 + 13, 0, 0, 0] {
        newer.extend(word.to_le_bytes());
    }
    newer.extend(strings);
    if !with_old {
        return newer;
    }
    let mut both = b"ld.so-1.7.0\0".to_vec();
    both.extend(1_u32.to_le_bytes());
    both.resize(both.len() + 12, 0xff);
    both.resize(both.len().next_multiple_of(8), 0);
    both.extend(newer);
    both
}

#[test]
fn both_formats_of_the_cache_are_read() {
    for with_old in [false, true] {
        let read = cache::libraries(&cache(0x0303, with_old)).unwrap();
        assert_eq!(read, [("libcuda.so.1".to_owned(), "opt/driver/libcuda.so.1".into())]);
    }
    // 32-bit programs' libraries are not ours.
    assert_eq!(cache::libraries(&cache(0x0003, false)).unwrap(), []);
}

#[test]
fn a_damaged_cache_is_refused_or_read_as_less() {
    let whole = cache(0x0303, true);
    for length in 0..whole.len() {
        assert!(cache::libraries(&whole[..length]).is_err(), "{length}");
    }
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0xff;
        // The result does not matter; the reader must end.
        let _ = cache::libraries(&flipped);
    }
}

#[test]
fn the_cache_of_this_machine_has_its_c_library() {
    let Ok(bytes) = fs::read("/etc/ld.so.cache") else {
        // A system without glibc, such as Alpine.
        return;
    };
    let read = cache::libraries(&bytes).unwrap();
    let listed = Command::new("ldconfig").arg("-p").output();
    let Ok(listed) = listed else { return };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for line in listed.lines().filter(|line| line.contains("(libc6,x86-64)")) {
        let (name, path) = line.trim().split_once(" (").unwrap();
        let path = path.rsplit_once("=> /").unwrap().1;
        assert!(read.contains(&(name.to_owned(), path.into())), "{line}");
    }
}
