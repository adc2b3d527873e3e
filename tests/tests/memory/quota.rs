//! Memory quota: exact to the byte, for all kinds of allocation, over all processes of a tenant, through SIGKILL and live
//! changes (I7, I8, I9).

use std::process::Command;

use vcuda_tests::{Commanded, Door, Fixture, GIB, MIB, Running, app, skip, succeeded};

#[test]
fn every_kind_is_charged_by_every_door() {
    for door in Door::ALL {
        let fixture = Fixture::new();
        let mut command = fixture.tenant(&["--memory", "2GiB"], app("quota", door));
        succeeded(&command.arg((2 * GIB).to_string()).output().unwrap());
    }
}

#[test]
fn processes_of_one_name_share_one_quota() {
    let fixture = Fixture::new();
    let hold = app("hold", Door::Dlsym);
    let quota = ["--memory", "4GiB", "--name", "shared"];
    let mut first = Running::start(fixture.tenant(&quota, &hold).arg((2 * GIB).to_string()));
    assert_eq!(first.wait_for("holding"), format!("holding {} denied 0", 2 * GIB));
    let mut second =
        Running::start(fixture.tenant(&quota, &hold).arg((2 * GIB).to_string()).arg((GIB / 2).to_string()));
    assert_eq!(second.wait_for("holding"), format!("holding {} denied 1", GIB / 2));
}

#[test]
fn a_quota_changes_under_a_running_program() {
    let fixture = Fixture::new();
    let poll = app("poll_limit", Door::Dlsym);
    let mut tenant = Running::start(&mut fixture.tenant(&["--memory", "2GiB", "--name", "live"], poll));
    assert_eq!(tenant.wait_for("total"), format!("total {}", 2 * GIB));
    fixture.stdout(["set", "live", "--memory", "3GiB"]);
    assert_eq!(tenant.wait_for("total"), format!("total {}", 3 * GIB));
    // Below the used amount: nothing is taken away, nothing more is granted, and a warning says so.
    let set = fixture.output(["set", "live", "--memory", "256MiB"]);
    assert_eq!(succeeded(&set), "live resized to 256 MiB, no guarantee (what is left)\n");
    let warning = String::from_utf8_lossy(&set.stderr);
    assert!(warning.contains("more than 256 MiB: it keeps that"), "{warning}");
    assert_eq!(tenant.wait_for("total"), format!("total {}", 256 * MIB));
    assert_eq!(tenant.wait_for("alloc"), "alloc 2");
}

#[test]
fn an_injected_failure_of_the_driver_is_not_charged() {
    // The failing request depends on the driver's own allocations; it is one of these.
    let fixture = Fixture::with_config("[faults]\nfail_nth_allocation = 3\n");
    let sizes = [GIB, GIB, GIB, GIB].map(|bytes| bytes.to_string());
    let mut tenant =
        Running::start(fixture.tenant(&["--memory", "8GiB"], app("hold", Door::Dlsym)).args(sizes));
    assert_eq!(tenant.wait_for("holding"), format!("holding {} denied 1", 3 * GIB));
    let used = fixture.smi()["gpus"][0]["tenants"][0]["memory_used_bytes"].as_u64().unwrap();
    assert!((3 * GIB..4 * GIB).contains(&used), "{used}");
}

#[test]
fn what_a_dead_process_held_is_there_for_the_next_request() {
    let fixture = Fixture::new();
    let hold = app("hold", Door::Dlsym);
    let quota = ["--memory", "4GiB", "--name", "next"];
    let mut victim = Running::start(fixture.tenant(&quota, &hold).arg((2 * GIB).to_string()));
    victim.wait_for("holding");
    // It has checked shortly before, and asks at once after the death.
    let mut asks = Running::start(
        fixture
            .tenant(&quota, app("ask", Door::Dlsym))
            .arg((2 * GIB).to_string())
            .stdin(std::process::Stdio::piped()),
    );
    assert_eq!(asks.wait_for("asked"), "asked 2");
    victim.kill();
    std::io::Write::write_all(asks.0.stdin.as_mut().unwrap(), b"again\n").unwrap();
    assert_eq!(asks.wait_for("asked"), "asked 0");
}

/// An allocation that fits makes no system call in the shim, which reads memory through the kernel only to reclaim some
/// and to follow `limits`.
#[test]
fn an_allocation_that_fits_is_not_read_through_the_kernel() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let strace = |program: &Command| {
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-qq", "-e", "signal=none", "-e", "trace=process_vm_readv", "-o"])
            .arg(log.path())
            .arg(program.get_program())
            .args(program.get_args());
        strace
    };
    if !strace(&Command::new("true")).output().is_ok_and(|tried| tried.status.success()) {
        skip("quota: no strace that works here; scripts/test.sh installs it where apt-get can");
        return;
    }
    let fixture = Fixture::new();
    let mut command = strace(&fixture.tenant(&["--memory", "4GiB"], app("obey", Door::Dlsym)));
    fixture.environment(&mut command);
    let mut process = Commanded::start(&mut command);
    let reads = || std::fs::read_to_string(log.path()).unwrap().matches("process_vm_readv(").count();
    // Contexts, modules and the first check of `limits` use such reads.
    let before = reads();
    assert!(before > 0, "strace shows nothing");
    let begun = vcuda_region::clock::now_ns();
    for _ in 0..1000 {
        assert_eq!(process.alloc(MIB + 4096), Some(0));
    }
    // `limits` is read at most every 10 ms, however many allocations come meanwhile.
    let due = (vcuda_region::clock::now_ns() - begun) / 10_000_000 + 2;
    let read = reads() - before;
    assert!(read as u64 <= due, "{read} for 1000 allocations, where {due} are due");
}
