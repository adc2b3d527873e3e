//! Memory held only by exported descriptors counts while one of them is open, whatever happens to its maker (I18). Judged
//! by the simulated machine's exact record.

use std::fs;
use std::io::Write as _;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use vcuda_tests::{Door, Fixture, MIB, Running, app, eventually, holding, is_root, skip, text};

/// Contexts and the variable of the programs' module fit beside the pieces, without room for one more piece.
const MACHINE: &str = "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"8GiB\"\n";
const PIECE: u64 = 64 * MIB;
const FITTING: u64 = 4;
const QUOTA: u64 = FITTING * PIECE + 48 * MIB;

/// Requests twenty pieces: those that fit are granted, and one more after all descriptors are closed.
fn keeps_its_quota(how: &str, what: &str) {
    let fixture = Fixture::with_config(MACHINE);
    let empty = fixture.home().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let mut command = fixture.tenant(&["--memory", &format!("{QUOTA}B")], app("given_away", Door::Dlsym));
    command.args([how, what, &PIECE.to_string(), "20"]).arg(&empty).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    let kept = running.wait_for("kept");
    let peak = fixture.peak_bytes(0);
    assert!(peak <= QUOTA, "{how} {what}: {peak} of {QUOTA} bytes, {kept}");
    assert_eq!(kept, format!("kept {FITTING}"), "{how} {what}");
    assert_eq!(fixture.used_bytes() / PIECE, FITTING, "{how} {what}");
    writeln!(running.0.stdin.take().unwrap()).unwrap();
    running.wait_for("passed");
    assert!(running.finish().success());
}

#[test]
fn a_process_keeps_what_its_descriptors_keep() {
    keeps_its_quota("self", "file");
    keeps_its_quota("self", "range");
}

/// `/proc/locks` misses lines while other processes lock and unlock.
#[test]
fn whatever_others_lock_meanwhile() {
    keeps_its_quota("churn", "file");
}

/// No file of `/proc` is readable.
#[test]
fn wherever_its_root_is() {
    if !is_root() {
        return skip("given_away: only root may chroot");
    }
    // The simulated driver itself needs `/proc` to share a range.
    keeps_its_quota("chroot", "file");
}

/// The makers are dead; a process that never used the GPU has the descriptors.
#[test]
fn whoever_has_the_descriptors_when_its_maker_has_ended() {
    keeps_its_quota("children", "file");
    keeps_its_quota("children", "range");
}

/// Memory held by descriptors does not account for memory that another process takes itself.
#[test]
fn a_context_that_is_made_meanwhile_is_charged_too() {
    let fixture = Fixture::with_config(&MACHINE.replace("4MiB", "48MiB"));
    let tenant = fixture.keep("one", &["--memory", "1GiB"]);
    let mut command = tenant.command(app("given_away", Door::Dlsym));
    command.args(["self", "file", &PIECE.to_string(), "2"]).stdin(Stdio::piped());
    let mut keeper = Running::start(&mut command);
    keeper.wait_for("kept 2");
    let _other = holding(&mut tenant.command(app("hold", Door::Dlsym)), MIB);
    let (charged, taken) = (tenant.used_bytes(), fixture.used_bytes());
    assert!(charged >= taken, "{charged} bytes are charged, {taken} taken");
}

/// A process's descriptors of exported memory, as a process outside of the tenant would get them by a message: those with a
/// read lock.
fn taken_over(pid: u32) -> Vec<OwnedFd> {
    // SAFETY: takes two numbers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    assert!(process >= 0);
    let is_exported = |number: &i32| {
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
        info.lines().any(|line| line.contains("OFDLCK") && line.contains("READ"))
    };
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    open.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_exported)
        .map(|number: i32| {
            // SAFETY: takes three numbers.
            let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, number, 0) };
            assert!(taken >= 0);
            // SAFETY: the kernel has just made it, and nothing else owns it.
            unsafe { OwnedFd::from_raw_fd(i32::try_from(taken).unwrap()) }
        })
        .collect()
}

/// The manager is not told of a descriptor's end, which changes no file of the tenant.
#[test]
fn what_descriptors_kept_of_a_grant_is_not_shown_when_they_are_closed() {
    let fixture = Fixture::with_config(MACHINE);
    let _manager = fixture.manager();
    let tenant = fixture.keep("one", &["--memory", &format!("{QUOTA}B")]);
    let mut command = tenant.command(app("given_away", Door::Dlsym));
    command.args(["self", "file", &PIECE.to_string(), "2"]).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    assert_eq!(running.wait_for("kept"), "kept 2");
    let outside = taken_over(running.0.id());
    running.kill();
    eventually("it is shown", Duration::from_secs(10), || tenant.used_bytes() == 2 * PIECE);
    drop(outside);
    eventually("nothing is shown", Duration::from_secs(10), || tenant.used_bytes() == 0);
}

/// Pieces that a run of this name gets and leaves to this process, of two.
fn given_by_a_run(fixture: &Fixture, outside: &mut Vec<OwnedFd>) -> String {
    let quota = ["--name", "a", "--memory", &format!("{QUOTA}B")];
    let mut command = fixture.tenant(&quota, app("given_away", Door::Dlsym));
    command.args(["self", "file", &PIECE.to_string(), "2"]).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    let kept = running.wait_for("kept");
    outside.extend(taken_over(running.0.id()));
    running.kill();
    kept
}

/// Memory of the tenant by `vcuda smi` (bytes); `None` if there is no such tenant.
fn shown_bytes(fixture: &Fixture) -> Option<u64> {
    let smi = fixture.smi();
    let tenants = smi["gpus"][0]["tenants"].as_array().unwrap();
    let found = tenants.iter().find(|tenant| tenant["name"] == "a")?;
    found["memory_used_bytes"].as_u64()
}

#[test]
fn what_ended_runs_of_a_name_gave_to_others_stays_in_its_account() {
    for has_manager in [false, true] {
        let fixture = Fixture::with_config(MACHINE);
        let _manager = has_manager.then(|| fixture.manager());
        let mut outside = Vec::new();
        let kept = [(); 4].map(|()| given_by_a_run(&fixture, &mut outside));
        assert_eq!(kept, ["kept 2", "kept 2", "kept 0", "kept 0"], "{has_manager}");
        assert_eq!(fixture.used_bytes() / PIECE, FITTING);
        eventually("it is shown", Duration::from_secs(10), || shown_bytes(&fixture) == Some(FITTING * PIECE));
        if has_manager {
            eventually("it is told", Duration::from_secs(10), || {
                text(&fixture.output(["events"])).contains("VcudaMemoryLeft")
            });
        }
        drop(outside.split_off(2));
        assert_eq!(given_by_a_run(&fixture, &mut outside), "kept 2");
        outside.clear();
        eventually("nothing is left", Duration::from_secs(20), || shown_bytes(&fixture).is_none());
    }
}
