//! What the shim must leave alone: programs without CUDA (I2, I3).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::process::Command;

use vcuda_tests::{Bed, release_dir, succeeded};

#[test]
fn a_program_without_cuda_notices_nothing() {
    let bed = Bed::new();
    let script = "ls /proc/self/fd | wc -l; grep Threads: /proc/self/status; echo out; echo err >&2; exit 3";
    let plain = Command::new("bash").args(["-c", script]).output().unwrap();
    let mut preloaded = Command::new("bash");
    preloaded
        .args(["-c", script])
        .env("LD_PRELOAD", release_dir().join("libvcuda_shim.so"));
    let preloaded = preloaded.env("VCUDA_DIR", bed.runtime()).output().unwrap();
    assert_eq!(
        (&plain.stdout, &plain.stderr, plain.status),
        (&preloaded.stdout, &preloaded.stderr, preloaded.status)
    );
    // `vcuda run` hands its command one open descriptor, by which the tenant's directory lives as long as any process.
    let script =
        "ls -l /proc/self/fd | grep -v containers/quiet | wc -l; grep Threads: /proc/self/status; exit 3";
    let plain = Command::new("bash").args(["-c", script]).output().unwrap();
    let quota = ["--memory", "1GiB", "--cores", "10", "--name", "quiet"];
    let tenant = bed.tenant(&quota, "bash").args(["-c", script]).output().unwrap();
    assert_eq!(
        (&plain.stdout, &plain.stderr, plain.status),
        (&tenant.stdout, &tenant.stderr, tenant.status)
    );
}

#[test]
fn it_is_silent_where_its_environment_is_nonsense() {
    for (name, value) in [
        ("VCUDA_DIR", "/no/such/place"),
        ("VCUDA_MEMORY", "rubbish"),
        ("VCUDA_LOG", "/proc/no/log"),
    ] {
        let out = Command::new("true")
            .env("LD_PRELOAD", release_dir().join("libvcuda_shim.so"))
            .env(name, value)
            .output()
            .unwrap();
        assert!(out.status.success() && out.stdout.is_empty() && out.stderr.is_empty());
    }
}

#[test]
fn python_and_threads_work_under_it() {
    let bed = Bed::new();
    let code = "import threading, ctypes, subprocess, multiprocessing as m\n\
                t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n\
                print(ctypes.CDLL(None).getpid() > 0, subprocess.run(['true']).returncode)\n";
    let out = succeeded(
        &bed.tenant(&["--memory", "1GiB"], "python3")
            .args(["-c", code])
            .output()
            .unwrap(),
    );
    assert_eq!(out, "thread\nTrue 0\n");
}

#[test]
fn the_built_library_is_as_the_design_says() {
    let root = vcuda_tests::workspace();
    succeeded(
        &Command::new(root.join("scripts/check-shim.sh"))
            .arg(release_dir())
            .output()
            .unwrap(),
    );
}
