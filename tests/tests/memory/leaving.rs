//! Programs whose main thread ends by `pthread_exit` while they use a GPU: they end as without the shim, obey signals, and
//! keep their quota (I1, I3).

use std::os::unix::process::ExitStatusExt as _;

use vcuda_tests::{Door, Fixture, Running, app, soon, text};

const QUOTA: [&str; 4] = ["--memory", "2GiB", "--cores", "50"];
const KINDS: [&str; 2] = ["memory", "launches"];

/// With only the shim's threads left, the process ends, with the application's exit handlers and status 0. The driver's own
/// thread for checkpoints would keep it, with the shim and without.
#[test]
fn the_last_thread_of_the_application_ends_the_process() {
    let fixture = Fixture::with_config("[driver]\ncheckpoint_bytes_per_us = 0\n");
    let program = app("leaves", Door::Dlsym);
    for how in ["alone", "pending", "worker"] {
        for kind in KINDS {
            let bare = fixture.bare(&program).args([how, kind]).output().unwrap();
            assert!(bare.status.success(), "{}", text(&bare));
            let mut tenant = Running::start(fixture.tenant(&QUOTA, &program).args([how, kind]));
            soon("the process has ended", || !tenant.is_alive());
            let mut said = String::new();
            while let Ok(line) = tenant.next_line() {
                said += &(line + "\n");
            }
            let end = tenant.finish();
            assert_eq!(
                (said.as_str(), end),
                (String::from_utf8(bare.stdout).unwrap().as_str(), bare.status),
                "{how} {kind}"
            );
        }
    }
    assert_eq!(fixture.used_bytes(), 0);
}

/// A signal for the process is delivered to the application's threads, never to the shim's.
#[test]
fn a_process_without_its_main_thread_obeys_signals() {
    let fixture = Fixture::new();
    let program = app("leaves", Door::Dlsym);
    for (how, expected) in [("waits", (None, Some(libc::SIGTERM))), ("handled", (Some(7), None))] {
        for mut command in [fixture.bare(&program), fixture.tenant(&QUOTA, &program)] {
            let mut running = Running::start(command.args([how, "launches"]));
            running.wait_for("waiting");
            running.signal(libc::SIGTERM);
            soon("the process has ended", || !running.is_alive());
            let end = running.finish();
            assert_eq!((end.code(), end.signal()), expected, "{how}");
            if how == "handled" {
                running.wait_for_line("which thread ran the handler", |line| line == "handled");
            }
        }
    }
}
