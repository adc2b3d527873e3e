//! Checks inside a container: each part that the device plugin's specification adds, as this process sees it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use vcuda_region::directory::MANAGED;
use vcuda_region::limits::{Limits, OpenError};
use vcuda_region::registration::SOCKET;
use vcuda_region::slots::Usage;

use super::Finding;
use super::probe::SHIM;

/// File with the libraries that glibc's loader preloads into every program (ld.so(8)).
const PRELOAD: &str = "/etc/ld.so.preload";
const PRELOAD_BYTES: u64 = 64 << 10;
const AGAIN: &str = "delete the pod; if a new one is the same, a volume of the pod or the container runtime hides what the CDI specification mounts";

/// Paths of the parts in a container; tests use others.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    preload: PathBuf,
    directory: PathBuf,
    devices: PathBuf,
}

impl Places {
    /// The paths in a real container.
    pub(crate) fn real() -> Places {
        Places { preload: PRELOAD.into(), directory: MANAGED.into(), devices: "/dev".into() }
    }

    /// Whether the loader's configuration names the shim, which marks a container even if its limits are missing.
    pub(super) fn has_preload(&self) -> bool {
        read(&self.preload).is_ok_and(|text| text.contains(SHIM))
    }
}

fn read(preload: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(preload)?.take(PRELOAD_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Findings for all links of a granted container, in the order in which a start needs them.
pub(super) fn findings(places: &Places, has_real_driver: bool) -> Vec<Finding> {
    let mut findings = vec![preload(places), limits(places), usage(places), manager(places)];
    findings.extend(has_real_driver.then(|| nodes(places)).into_iter().flatten());
    findings
}

/// Check of the file that names the shim, and of the named library.
pub(crate) fn preload(places: &Places) -> Finding {
    const LINK: &str = "preload file";
    let path = places.preload.display();
    let text = match read(&places.preload) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let seen = format!("{path} is not there: no program loads the shim");
            return Finding::broken(LINK, seen, AGAIN);
        }
        Err(error) => return Finding::broken(LINK, format!("{path}: {error}"), AGAIN),
    };
    // Names are separated by white space and colons (ld.so(8)).
    let mut names = text.split(|mark: char| mark.is_whitespace() || mark == ':');
    let Some(library) = names.find(|name| name.contains(SHIM)) else {
        let seen = format!("{path} does not name the shim: it is the image's, or a volume's, and hides ours");
        return Finding::broken(LINK, seen, AGAIN);
    };
    match File::open(library) {
        Ok(_) => Finding::ok(LINK, format!("{path} names {library}")),
        Err(error) => Finding::broken("shim library", format!("{path} names {library}: {error}"), AGAIN),
    }
}

pub(crate) fn limits(places: &Places) -> Finding {
    const LINK: &str = "limits";
    match Limits::read(&places.directory) {
        Ok(limits) => {
            let gpus: Vec<String> = limits.devices().map(|(_, uuid)| uuid.to_string()).collect();
            Finding::ok(LINK, format!("of {}", gpus.join(", ")))
        }
        Err(error) => unusable(LINK, &error),
    }
}

/// Check of `usage`, which the container's processes write.
pub(crate) fn usage(places: &Places) -> Finding {
    const LINK: &str = "usage";
    match Usage::open(&places.directory) {
        Ok(_) => Finding::ok(LINK, "can be written"),
        Err(error) => unusable(LINK, &error),
    }
}

fn unusable(link: &str, error: &OpenError) -> Finding {
    let remedy = match error {
        OpenError::Version { .. } => {
            "library and manager are of different releases: start the container again"
        }
        _ => AGAIN,
    };
    Finding::broken(link, format!("{error}: programs get no GPU memory"), remedy)
}

/// Check of the manager's socket. Limits hold without it.
fn manager(places: &Places) -> Finding {
    const LINK: &str = "manager.sock";
    let path = places.directory.join(SOCKET);
    let shown = path.display();
    let is_socket = fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        return Finding::note(
            LINK,
            format!("{shown} is not there: this container's processes register with no manager"),
            "limits hold without; has the manager run since the node's start, and is the whole directory mounted?",
        );
    }
    let connected = UnixAddr::new(&path).and_then(|address| {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let own = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        connect(own.as_raw_fd(), &address)
    });
    match connected {
        Ok(()) => Finding::ok(LINK, "the manager listens"),
        Err(error) => Finding::note(
            LINK,
            format!("{shown}: {error}: the manager does not listen now"),
            "limits hold without; processes register when it is back",
        ),
    }
}

/// Check of the GPUs' device files: the granted ones and no others.
fn nodes(places: &Places) -> Vec<Finding> {
    const LINK: &str = "GPU device files";
    // Damaged limits are reported by their own check.
    let Ok(limits) = Limits::read(&places.directory) else {
        return Vec::new();
    };
    let granted = limits.devices().count();
    let names: Vec<String> = fs::read_dir(&places.devices)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let is_gpu = |name: &&String| {
        let number = name.strip_prefix("nvidia").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let gpus = names.iter().filter(is_gpu).count();
    let missing: Vec<&str> = ["nvidiactl", "nvidia-uvm"]
        .into_iter()
        .filter(|needed| !names.iter().any(|name| name == needed))
        .collect();
    let seen = format!("{gpus} of {granted} GPUs in {}", places.devices.display());
    if !missing.is_empty() {
        return vec![Finding::broken(
            LINK,
            format!("{seen}; {} missing", missing.join(" and ")),
            "with plugin.inject toolkit-*: is NVIDIA's runtime the pod's runtime class? else: are they in the node's /dev (nvidia-modprobe -u -c0)?",
        )];
    }
    if gpus > granted {
        return vec![Finding::note(
            LINK,
            format!("{seen}: more than were granted"),
            "is the pod privileged, or does NVIDIA's runtime add GPUs? Programs are limited on the granted ones, and get no memory on others",
        )];
    }
    if gpus < granted {
        return vec![Finding::broken(
            LINK,
            seen,
            "a GPU has left the node, or the runtime lacks rights to it: delete the pod",
        )];
    }
    vec![Finding::ok(LINK, seen)]
}

#[cfg(test)]
mod tests {
    use vcuda_quota::DeviceConfig;
    use vcuda_region::GpuUuid;
    use vcuda_region::directory::{Directory, Tenant};

    use super::*;
    use crate::doctor::Health;

    struct Inside {
        root: tempfile::TempDir,
        places: Places,
    }

    /// A container without faults.
    fn inside() -> Inside {
        let root = tempfile::tempdir().unwrap();
        let tenant =
            Tenant::new("web-1", vec![(GpuUuid::from_bytes([7; 16]), DeviceConfig::new(1 << 30, 300))]);
        let made = Directory::create(root.path(), &tenant, b"{}", None, 1).unwrap();
        let directory = made.path().to_owned();
        let library = root.path().join("libvcuda_shim-1.so");
        let (preload, devices) = (root.path().join("ld.so.preload"), root.path().join("dev"));
        fs::write(&library, "").unwrap();
        fs::write(&preload, format!("{}\n", library.display())).unwrap();
        fs::create_dir(&devices).unwrap();
        for name in ["nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-caps"] {
            fs::write(devices.join(name), "").unwrap();
        }
        Inside { root, places: Places { preload, directory, devices } }
    }

    /// Links that are not well, with their state.
    fn not_ok(inside: &Inside) -> Vec<(String, Health)> {
        let findings = findings(&inside.places, true);
        findings
            .into_iter()
            .filter(|one| one.health != Health::Ok && one.link != "manager.sock")
            .map(|one| (one.link, one.health))
            .collect()
    }

    #[test]
    fn each_broken_link_is_named() {
        assert_eq!(not_ok(&inside()), []);
        type Break = (&'static str, Health, fn(&Inside));
        let breaks: [Break; 9] = [
            ("preload file", Health::Broken, |one| {
                fs::remove_file(&one.places.preload).unwrap();
            }),
            ("preload file", Health::Broken, |one| {
                fs::write(&one.places.preload, "/usr/lib/libjemalloc.so.2\n").unwrap();
            }),
            ("shim library", Health::Broken, |one| {
                fs::remove_file(one.root.path().join("libvcuda_shim-1.so")).unwrap();
            }),
            ("limits", Health::Broken, |one| {
                fs::write(one.places.directory.join("limits"), "damaged").unwrap();
            }),
            ("usage", Health::Broken, |one| {
                fs::remove_file(one.places.directory.join("usage")).unwrap();
            }),
            ("usage", Health::Broken, |one| {
                fs::write(one.places.directory.join("usage"), "").unwrap();
            }),
            ("GPU device files", Health::Broken, |one| {
                fs::remove_file(one.places.devices.join("nvidia-uvm")).unwrap();
            }),
            ("GPU device files", Health::Broken, |one| {
                fs::remove_file(one.places.devices.join("nvidia3")).unwrap();
            }),
            ("GPU device files", Health::Note, |one| {
                fs::write(one.places.devices.join("nvidia4"), "").unwrap();
            }),
        ];
        for (link, health, how) in breaks {
            let one = inside();
            how(&one);
            assert_eq!(not_ok(&one), [(link.to_owned(), health)]);
        }
    }

    #[test]
    fn a_manager_that_is_away_is_no_broken_link() {
        let inside = inside();
        assert_eq!(manager(&inside.places).health, Health::Note);
        // A socket left behind by a killed process.
        let address = UnixAddr::new(&inside.places.directory.join(SOCKET)).unwrap();
        let listen = || {
            let own = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
            nix::sys::socket::bind(own.as_raw_fd(), &address).unwrap();
            own
        };
        let bound = listen();
        assert!(manager(&inside.places).seen.contains("does not listen"));
        nix::sys::socket::listen(&bound, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
        assert_eq!(manager(&inside.places).health, Health::Ok);
    }
}
