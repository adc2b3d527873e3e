//! Processes of one tenant in time namespaces (time_namespaces(7)): the times that they share are the host's.

use std::process::Command;

use vcuda_tests::{Door, Fixture, Running, app, skip};

const SECONDS: u64 = 4;
const CAP_PERMILLE: u64 = 100;
/// What may be saved before, and the kernels in flight at the end (ns).
const BEFORE_NS: u64 = 160_000_000;

/// GPU time of a tenant's two processes under a cap, of which the second lives in a namespace with this offset (s).
fn is_held(offset: &str) {
    let fixture = Fixture::new();
    let tenant = fixture.keep("shifted", &["--cores", "10"]);
    let program = app("saturate", Door::Dlsym);
    let (seconds, kernel) = (SECONDS.to_string(), "1000000");
    let mut shifted = tenant.command("unshare");
    shifted.args(["--time", "--monotonic", offset]).arg(&program).args([&seconds, kernel]);
    let mut plain = tenant.command(&program);
    plain.args([&seconds, kernel]);
    let mut launched = 0;
    let mut running: Vec<Running> = [&mut plain, &mut shifted].map(Running::start).into();
    for one in &mut running {
        let line = one.wait_for("launched");
        let count: u64 = line.split(' ').next_back().unwrap().parse().unwrap();
        assert!(count > 10, "{offset}: {line}");
        launched += count;
    }
    let most = SECONDS * CAP_PERMILLE + BEFORE_NS / 1_000_000;
    assert!(launched <= most, "{offset}: {launched} kernels of 1 ms in {SECONDS} s under a cap of 10 %");
}

/// All of `vcuda run` lives in the namespace, its arbiter too, which judges by shared times whether a process still settles its work.
fn is_held_with_its_arbiter(offset: &str) {
    let fixture = Fixture::new();
    let tenant = fixture.tenant(&["--cores", "10"], app("saturate", Door::Dlsym));
    let mut shifted = Command::new("unshare");
    fixture.environment(&mut shifted);
    shifted.args(["--time", "--monotonic", offset]).arg(tenant.get_program()).args(tenant.get_args());
    let line = Running::start(shifted.args([&SECONDS.to_string(), "1000000"])).wait_for("launched");
    let launched: u64 = line.split(' ').next_back().unwrap().parse().unwrap();
    let due = SECONDS * CAP_PERMILLE;
    assert!((due * 7 / 10..=due + BEFORE_NS / 1_000_000).contains(&launched), "{offset}: {line}");
}

#[test]
fn an_offset_of_the_clock_changes_no_share() {
    let tried = Command::new("unshare").args(["--time", "--monotonic", "7", "true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        return skip("time namespaces: unshare --time is not permitted or not known here");
    }
    for offset in ["100000", "-10"] {
        is_held(offset);
        is_held_with_its_arbiter(offset);
    }
}
