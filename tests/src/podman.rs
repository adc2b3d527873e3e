//! Containers started by podman, which reads CDI specifications by the same library as containerd and CRI-O
//! (`container-device-interface`; the version of 2022 in Debian 12).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::kubelet::Started;
use crate::{Fixture, release_dir, skip, text};

/// Own mount namespace: specifications at podman's path, and this machine's userland below a writable directory, for mount
/// points. Podman's default resource limits may exceed this machine's.
const SCRIPT: &str = r#"
set -eu
scratch=$1 cdi=$2
shift 2
mkdir -p /var/run/cdi
mount --bind "$cdi" /var/run/cdi
mount -t tmpfs tmpfs "$scratch/over"
mkdir "$scratch/over/upper" "$scratch/over/work"
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$scratch/over/upper,workdir=$scratch/over/work" "$scratch/root/usr"
exec podman --storage-driver=vfs --root "$scratch/storage" --runroot "$scratch/run" --cgroup-manager=cgroupfs \
    run --rm --runtime runc --network=none --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 "$@"
"#;

/// Runs this command as root in a container with these devices; `None` if podman does not work.
pub fn run(fixture: &Fixture, started: &Started, args: &[&str]) -> Option<Output> {
    let devices = started.names.iter().map(|name| format!("--device={name}"));
    run_with(fixture, &devices.collect::<Vec<_>>(), args)
}

/// Runs this command as root in a container with these options of podman; `None` if podman does not work.
pub fn run_with(fixture: &Fixture, options: &[String], args: &[&str]) -> Option<Output> {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("root");
    for folder in ["over", "root/usr", "root/etc", "root/tmp", "root/var"] {
        fs::create_dir_all(scratch.path().join(folder)).unwrap();
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
            symlink(target, root.join(link)).unwrap();
        }
    }
    let mount = |from: &Path, to: &str| format!("--volume={}:{to}", from.display());
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "bash", "-c", SCRIPT, "podman"])
        .args([scratch.path(), &fixture.cdi()])
        .arg(mount(&release_dir().join("test-apps"), "/app:ro"))
        .arg(mount(&fixture.machine(), "/machine"))
        .args(["--env=VCUDA_SIM=/machine", "--env=NVIDIA_VISIBLE_DEVICES=all"]);
    command.args(options);
    command.args(["--rootfs".as_ref(), root.as_os_str()]).args(args);
    let output = command.stdin(Stdio::null()).output().unwrap();
    // Podman itself failed (podman-run(1)). If it starts without our devices and not with them, that is our fault.
    let is_refused = matches!(output.status.code(), Some(125..=127));
    if is_refused && (options.is_empty() || run_with(fixture, &[], &["true"]).is_none()) {
        let words = text(&output).replace('\n', " ");
        skip(&format!("podman does not work here: {words}"));
        return None;
    }
    Some(output)
}
