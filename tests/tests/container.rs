//! A real container (runc) with the three things that docs/containers.md names: the shim by /etc/ld.so.preload, `limits`
//! read-only and `usage` writable under /etc/vcuda. Its quota holds also under `env -i`, on a read-only root, as nobody.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use vcuda_tests::{Bed, Door, GIB, Running, app, release_dir, skip, succeeded, text};

/// A bundle whose root is this machine's own userland, read-only.
fn bundle(bed: &Bed, tenant: &Path, args: &[&str], uid: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("rootfs");
    for folder in [
        "etc/vcuda",
        "proc",
        "dev",
        "tmp",
        "sim",
        "machine",
        "usr",
        "app",
        "shim",
    ] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
    }
    for file in ["etc/vcuda/limits", "etc/vcuda/usage", "etc/ld.so.preload"] {
        fs::write(root.join(file), "").unwrap();
    }
    let preload = dir.path().join("preload");
    fs::write(&preload, "/shim/libvcuda_shim.so\n").unwrap();
    let simulator = dir.path().join("sim");
    fs::create_dir(&simulator).unwrap();
    for (library, name) in [("cuda", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1")] {
        let from = release_dir().join(format!("libvcuda_simulator_{library}.so"));
        fs::copy(from, simulator.join(name)).unwrap();
    }
    let bind = |from: &Path, to: &str, mode: &str| json!({"destination": to, "source": from, "type": "bind", "options": ["rbind", mode]});
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false, "user": {"uid": uid, "gid": uid}, "args": args, "cwd": "/", "noNewPrivileges": true,
            "env": ["PATH=/usr/bin:/bin", "VCUDA_SIM=/machine", "LD_LIBRARY_PATH=/sim"],
        },
        "root": {"path": root, "readonly": true},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            bind(Path::new("/usr"), "/usr", "ro"),
            bind(&release_dir(), "/shim", "ro"),
            bind(&release_dir().join("test-apps"), "/app", "ro"),
            bind(&simulator, "/sim", "ro"),
            bind(&bed.machine(), "/machine", "rw"),
            bind(&preload, "/etc/ld.so.preload", "ro"),
            bind(&tenant.join("limits"), "/etc/vcuda/limits", "ro"),
            bind(&tenant.join("usage"), "/etc/vcuda/usage", "rw"),
        ],
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}]},
    });
    fs::write(
        dir.path().join("config.json"),
        serde_json::to_vec(&config).unwrap(),
    )
    .unwrap();
    dir
}

/// Runs the container to its end; `None` where there is no runtime that works here.
fn contain(bundle: &Path, name: &str) -> Option<std::process::Output> {
    let id = format!("vcuda-test-{name}-{}", std::process::id());
    let output = Command::new("runc")
        .arg("--root")
        .arg(bundle.join("state"))
        .args(["run", "-b"])
        .arg(bundle)
        .arg(id)
        .output();
    match output {
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("runc run failed") => {
            skip(&format!(
                "container: runc does not work here: {}",
                text(&output).replace('\n', " ")
            ));
            None
        }
        Ok(output) => Some(output),
        Err(error) => {
            skip(&format!(
                "container: no runc ({error}); scripts/test.sh installs it where apt-get can"
            ));
            None
        }
    }
}

#[test]
fn a_containers_quota_holds() {
    let bed = Bed::new();
    let quota = app("quota", Door::Dlsym);
    let hold = app("hold", Door::Dlsym);
    let inside = |program: &Path| format!("/app/{}", program.file_name().unwrap().to_string_lossy());
    // The directory lives as long as its keeper.
    let _keeper = Running::start(
        bed.tenant(&["--memory", "2GiB", "--cores", "50", "--name", "web"], "sleep")
            .arg("120"),
    );
    let tenant = bed.runtime().join("vcuda/containers/web");
    vcuda_tests::eventually(
        "the tenant's directory",
        std::time::Duration::from_secs(5),
        || tenant.join("usage").exists(),
    );
    succeeded(&bed.bare("true").output().unwrap());
    let (quota, hold) = (inside(&quota), inside(&hold));
    let limit = (2 * GIB).to_string();
    let Some(output) = contain(bundle(&bed, &tenant, &[&quota, &limit], 0).path(), "root") else {
        return;
    };
    assert!(succeeded(&output).contains("passed"));
    // No environment: the preload file and /etc/vcuda still hold. The program waits, so it is stopped by a time limit.
    let wiped = [
        "timeout",
        "3",
        "env",
        "-i",
        "LD_LIBRARY_PATH=/sim",
        "VCUDA_SIM=/machine",
        "VCUDA_DIR=/tmp",
        &hold,
        &limit,
    ];
    let output = contain(bundle(&bed, &tenant, &wiped, 0).path(), "wiped").unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("holding 0 denied 1"),
        "{}",
        text(&output)
    );
    // What the container used is gone with it, and the host saw it under the tenant's name.
    let smi: Value = bed.smi();
    assert_eq!(smi["gpus"][0]["tenants"][0]["name"], "web");
    assert_eq!(smi["gpus"][0]["tenants"][0]["memory_used_bytes"], 0);
}
