//! Runs each benchmark as briefly as possible, without judging its figures.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::process::Command;

fn brief(program: &str, rows: &[&str]) {
    let output = Command::new(program).arg("--brief").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}\n{said}{wrong}", output.status);
    for row in rows {
        assert!(said.contains(row), "no row {row:?} in\n{said}");
    }
}

#[test]
fn cost() {
    let rows = ["64 slots", "a pool in use", "cuMemAllocAsync", "preloaded"];
    brief(env!("CARGO_BIN_EXE_cost"), &rows);
}

#[test]
fn contention() {
    brief(env!("CARGO_BIN_EXE_contention"), &["does nothing", "simulated", "many to one"]);
}

#[test]
fn starts() {
    brief(env!("CARGO_BIN_EXE_starts"), &["99 % of 8", "does nothing", "simulated"]);
}

#[test]
fn peers() {
    brief(env!("CARGO_BIN_EXE_peers"), &["block tokens, NVML", "block tokens, AIMD", "weighted Jain"]);
}

#[test]
fn node() {
    brief(env!("CARGO_BIN_EXE_node"), &["6 attached", "a process in each", "Grants/Create and Release"]);
}
