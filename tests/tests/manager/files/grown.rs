//! `usage` that a process of its tenant makes longer, until the file system of all directories is full.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::time::Duration;

use vcuda_tests::{Fixture, Tmpfs, eventually};

use super::SMALL_CONTEXTS;

#[test]
fn a_usage_that_fills_the_file_system_is_cut_and_keeps_no_grant_from_others() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let Some(_disk) = Tmpfs::over(&fixture.runtime(), "size=24m,mode=700") else {
        return;
    };
    let _manager = fixture.manager();
    fixture.grant("greedy", &["--memory", "1GiB", "--cores", "20"]);
    fixture.grant("web", &["--memory", "1GiB", "--cores", "20"]);
    let path = fixture.runtime().join("vcuda/containers/greedy-1/usage");
    let made_bytes = fs::metadata(&path).unwrap().len();
    let fill = || {
        let mut usage = OpenOptions::new().append(true).open(&path).unwrap();
        while usage.write_all(&[1; 4096]).is_ok() {}
    };
    // Both need room at once, whenever the manager has looked last.
    fill();
    fixture.stdout(["set", "web", "--memory", "2GiB"]);
    fill();
    fixture.grant("new", &["--memory", "1GiB", "--cores", "20"]);
    fill();
    eventually("it is cut", Duration::from_secs(10), || fs::metadata(&path).unwrap().len() == made_bytes);
    let events = fixture.events();
    let told = events.lines().find(|line| line.contains("VcudaUsageGrown"));
    assert!(told.is_some_and(|line| line.contains("greedy-1")), "{events}");
}
