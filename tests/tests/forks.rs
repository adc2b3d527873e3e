//! Children of a process that uses the GPU: by fork, vfork, posix_spawn, as daemons, as Python makes them. At whatever
//! moment they begin, they do not hang, and are neither charged nor credited for their parent (I3).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use vcuda_tests::{Bed, Door, MIB, Running, app, eventually, succeeded};

const QUOTA: [&str; 6] = ["--memory", "4GiB", "--cores", "80", "--name", "forking"];

#[test]
fn children_forked_while_threads_are_inside_hooks() {
    let forks = if std::env::var_os("VCUDA_SOAK").is_some() {
        "20000"
    } else {
        "800"
    };
    let bed = Bed::new();
    let program = app("forks", Door::Dlsym);
    succeeded(&bed.bare(&program).arg("100").output().unwrap());
    let mut command = bed.tenant(&QUOTA, &program);
    let mut parent = Running::start(command.arg(forks).stdin(Stdio::piped()));
    parent.wait_for("children done");
    // A child that tried every hook still lives: the container is its parent alone.
    let pid = u64::from(parent.0.id());
    let mut tenant = bed.smi()["gpus"][0]["tenants"][0].clone();
    // Programs that a daemon started may take a moment to end.
    eventually("the parent is alone", Duration::from_secs(10), || {
        tenant = bed.smi()["gpus"][0]["tenants"][0].clone();
        tenant["processes"].as_array().unwrap().len() == 1
    });
    assert_eq!(tenant["processes"][0]["pid"], pid, "{tenant}");
    let charged = tenant["memory_used_bytes"].as_u64().unwrap();
    assert_eq!(charged, tenant["processes"][0]["memory_used_bytes"]);
    let taken = bed.used_bytes();
    assert!(
        charged.abs_diff(taken) <= 64 * MIB,
        "the container counts {charged}, the GPU {taken}"
    );
    writeln!(parent.0.stdin.take().unwrap()).unwrap();
    parent.wait_for("passed forks");
    assert!(parent.finish().success());
    eventually("all memory is back", Duration::from_secs(1), || {
        bed.used_bytes() == 0
    });
}
