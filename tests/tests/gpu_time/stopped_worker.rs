//! A tenant that stops the shim's worker thread: launches settle the work of their own streams, and the cap holds (I16).

use std::fs;
use std::time::Duration;

use vcuda_tests::{Door, Fixture, Running, app, eventually, skip};

const SECONDS: u64 = 4;

/// The thread of a process with this name.
fn thread_named(pid: u32, name: &str) -> Option<libc::pid_t> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    threads.map(|entry| entry.path()).find_map(|path| {
        let found = fs::read_to_string(path.join("comm")).ok()?;
        let id = path.file_name()?.to_str()?.parse().ok()?;
        (found.trim() == name).then_some(id)
    })
}

#[test]
fn a_stopped_worker_frees_no_launch() {
    let fixture = Fixture::new();
    let tenant = fixture.keep("stops", &["--cores", "10"]);
    let mut program = tenant.command(app("saturate", Door::Dlsym));
    let mut running = Running::start(program.args([&SECONDS.to_string(), "1000000"]));
    running.wait_for("started");
    let mut worker = None;
    eventually("the worker runs", Duration::from_secs(5), || {
        worker = thread_named(running.0.id(), "vcuda-worker");
        worker.is_some()
    });
    let worker = worker.unwrap();
    let trace = |request: libc::c_uint| {
        // SAFETY: asks for a stop of another process's thread; no address is given.
        unsafe { libc::ptrace(request, worker, 0, 0) }
    };
    if trace(libc::PTRACE_SEIZE) != 0 {
        return skip("a stopped worker: ptrace is not permitted");
    }
    // Stays stopped until this thread lets it go.
    assert_eq!(trace(libc::PTRACE_INTERRUPT), 0);
    let line = running.wait_for("launched");
    // A thread that is traced ends only once its tracer has seen that: its stop, and then its end.
    for _ in 0..2 {
        // SAFETY: waits for the thread that this thread traces; no status is asked for.
        unsafe { libc::waitpid(worker, core::ptr::null_mut(), libc::__WALL) };
    }
    let launched: u64 = line.split(' ').next_back().unwrap().parse().unwrap();
    println!("{launched} kernels of 1 ms in {SECONDS} s under a cap of 10 %");
    // What may be saved before, and what runs before the worker is stopped.
    assert!((SECONDS * 80..=SECONDS * 100 + 200).contains(&launched), "{line}");
}
