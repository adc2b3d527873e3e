//! Memory held only by exported descriptors counts while one of them is open, whatever happens to its maker (I18). Judged
//! by the simulated machine's exact record.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::io::Write as _;
use std::process::Stdio;

use vcuda_tests::{Door, Fixture, MIB, Running, app, holding, skip};

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
    let mut command = fixture.tenant(
        &["--memory", &format!("{QUOTA}B")],
        app("given_away", Door::Dlsym),
    );
    command
        .args([how, what, &PIECE.to_string(), "20"])
        .arg(&empty)
        .stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    let kept = running.wait_for("kept");
    let peak = fixture.report()["gpus"][0]["memory_peak_bytes"].as_u64().unwrap();
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
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
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
    command
        .args(["self", "file", &PIECE.to_string(), "2"])
        .stdin(Stdio::piped());
    let mut keeper = Running::start(&mut command);
    keeper.wait_for("kept 2");
    let _other = holding(&mut tenant.command(app("hold", Door::Dlsym)), MIB);
    let (charged, taken) = (tenant.used_bytes(), fixture.used_bytes());
    assert!(charged >= taken, "{charged} bytes are charged, {taken} taken");
}
