//! The daemon's life: configuration, signals, end. Its work has other tests.
#![expect(clippy::disallowed_methods, reason = "durations, by the wall clock")]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vcuda_machine::{Faults, Xid};
use vcuda_tests::{Fixture, Running, eventually, succeeded, text};

#[test]
fn sigterm_ends_it_with_status_0() {
    let fixture = Fixture::new();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut manager = fixture.manager();
        manager.signal(signal);
        assert_eq!(manager.finish().code(), Some(0), "{}", manager.log());
    }
}

#[test]
fn one_that_was_started_with_signals_blocked_can_be_ended() {
    let fixture = Fixture::new();
    let manager = fixture.manager_command(&[]);
    let mut command = Command::new("env");
    fixture.environment(&mut command);
    command.arg("--block-signal=HUP,INT,TERM").arg(manager.get_program()).args(manager.get_args());
    let mut manager = Running::start(&mut command);
    let socket = fixture.runtime().join("vcuda/manager.sock");
    eventually("it listens", Duration::from_secs(20), || socket.exists());
    manager.signal(libc::SIGTERM);
    eventually("it ends", Duration::from_secs(20), || manager.0.try_wait().unwrap().is_some());
}

#[test]
fn a_wrong_configuration_starts_nothing() {
    let fixture = Fixture::new();
    let file = fixture.runtime().join("m.toml");
    for (content, line) in [
        ("[admission]\nreserve = \"many\"\n", "m.toml:2: 'many': not a number"),
        ("\n[nothing]\n", "m.toml:2: unknown field `nothing`"),
    ] {
        fs::write(&file, content).unwrap();
        for check in [vec!["--check".to_owned()], Vec::new()] {
            let mut command = fixture.manager_command(&check);
            let output = command.arg("--config").arg(&file).output().unwrap();
            assert_eq!(output.status.code(), Some(64), "{}", text(&output));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.starts_with("vcuda-manager: ") && said.contains(line), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        assert!(!fixture.runtime().join("vcuda/manager.sock").exists());
    }
    fs::write(&file, "[admission]\nreserve = \"1Gi\"\n").unwrap();
    for (library, said) in [
        (None, "exit status: 0"),
        (Some("/nothing.so"), "exit status: 64\nvcuda-manager: shim_library /nothing.so: No such file"),
        (
            Some("/dev/null"),
            "exit status: 64\nvcuda-manager: shim_library /dev/null: not an ELF shared library",
        ),
    ] {
        let mut command = fixture.manager_command(&["--check".to_owned()]);
        command.arg("--config").arg(&file).args(library.iter().flat_map(|path| ["--shim-library", path]));
        let output = text(&command.output().unwrap());
        assert!(output.replace("\n\n", "\n").trim().starts_with(said), "{output}");
    }
}

/// The configuration is right, but the system refuses: status 1, and a service manager tries again.
#[test]
fn a_state_directory_that_cannot_be_made_is_status_1() {
    let fixture = Fixture::new();
    let state = fixture.home().join("state");
    fs::write(&state, "").unwrap();
    let output = fixture.manager_command(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!(
        "vcuda-manager: {}: File exists (os error 17); the manager's directories have to be there, and the manager's alone (--root, --state)",
        state.display()
    );
    assert_eq!(said.lines().last(), Some(expected.as_str()), "{said}");
    assert!(!fixture.runtime().join("vcuda/manager.sock").exists());
}

#[test]
fn sighup_reads_the_configuration_again() {
    let fixture = Fixture::new();
    let file = fixture.runtime().join("m.toml");
    fs::write(&file, "").unwrap();
    let mut manager = fixture.manager_with(&["--config", file.to_str().unwrap()]);
    let says = |what: &str| {
        eventually(what, Duration::from_secs(20), || manager.log().contains(what));
    };
    fs::write(&file, "[audit]\ninterval = \"7 weeks\"\n").unwrap();
    manager.signal(libc::SIGHUP);
    says("the configuration stays as it is");
    fs::write(&file, "[audit]\ninterval = \"2s\"\n[log]\nfilter = \"debug\"\n").unwrap();
    manager.signal(libc::SIGHUP);
    says("audit.interval has changed, which takes effect with the next start");
    says("the configuration was read again");
    manager.signal(libc::SIGTERM);
    assert_eq!(manager.finish().code(), Some(0));
}

#[test]
fn one_that_starts_with_an_nvml_that_hangs_answers_and_can_be_ended() {
    let fixture = Fixture::new();
    succeeded(&fixture.bare("true").output().unwrap());
    let hangs = Faults { hangs: true, ..Faults::default() };
    hangs.write(&fixture.machine()).unwrap();
    let mut manager = fixture.manager();
    fixture.stdout(["grant", "list"]);
    let create = || fixture.output(["grant", "create", "a", "--memory", "1GiB"]);
    let refused = text(&create());
    assert!(refused.contains("NVML has not answered yet"), "{refused}");
    manager.signal(libc::SIGTERM);
    eventually("it ends", Duration::from_secs(20), || {
        manager.log().contains("ending") && !Path::new(&format!("/proc/{}/exe", manager.pid())).exists()
    });
    assert_eq!(manager.finish().code(), Some(0), "{}", manager.log());
    drop(manager);
    // A manager that begins to answer is used.
    let _manager = fixture.manager();
    Faults::default().write(&fixture.machine()).unwrap();
    eventually("GPUs are given out", Duration::from_secs(20), || create().status.success());
}

#[test]
fn a_service_manager_is_told_that_it_is_ready_alive_and_ending() {
    let fixture = Fixture::new();
    let socket = fixture.runtime().join("notify");
    let told = UnixDatagram::bind(&socket).unwrap();
    told.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Waits for this notification; returns those before it.
    let until = |word: &str| {
        let mut before = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let read = told.recv(&mut bytes);
            assert!(read.is_ok(), "no {word} after {before:?}");
            let said = String::from_utf8_lossy(&bytes[..read.unwrap()]).into_owned();
            if said.lines().any(|line| line == word) {
                return before;
            }
            before.push(said);
        }
    };
    // Twice within this time (us).
    let variables = [("NOTIFY_SOCKET", socket.as_path()), ("WATCHDOG_USEC", Path::new("200000"))];
    let mut manager = fixture.manager_under(&variables);
    assert_eq!(until("READY=1"), [""; 0], "nothing is said before it is ready");
    until("WATCHDOG=1");
    until("WATCHDOG=1");
    manager.signal(libc::SIGHUP);
    until("RELOADING=1");
    until("READY=1");
    manager.signal(libc::SIGTERM);
    until("STOPPING=1");
    assert_eq!(manager.finish().code(), Some(0), "{}", manager.log());
}

/// As in `vcuda-manager & vcuda grant create ...`.
#[test]
fn a_command_waits_for_a_manager_that_was_just_started() {
    let fixture = Fixture::new();
    let begun = Instant::now();
    let said = fixture.refusal(["grant", "list"], 69);
    assert!(said.contains("no manager runs here"), "{said}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    // A second is little for the start of a manager on a busy machine.
    let is_served = |_| {
        let mut command = fixture.vcuda(["grant", "list", "--json"]);
        let mut waiting = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let _manager = fixture.manager();
        waiting.wait().unwrap().success()
    };
    assert!((0..20).any(is_served));
}

#[test]
fn a_manager_that_hangs_is_told_by_every_command() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    manager.signal(libc::SIGSTOP);
    let start = |command: &[&str]| {
        let mut waiting = fixture.vcuda(command);
        waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for waiting in [&["grant", "list"][..], &["events"], &["usage"]].map(start) {
        let output = waiting.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{}", text(&output));
        let said = text(&output);
        for words in ["has not answered yet", "does not answer within 10 s; its log says more"] {
            assert!(said.contains(words), "{said}");
        }
    }
    manager.signal(libc::SIGCONT);
}

/// With neither option nor configuration: as built, and as installed.
#[test]
fn shim_and_program_beside_the_manager_are_what_containers_get() {
    let fixture = Fixture::new();
    let mut command = fixture.manager_command(&[]);
    let _manager = Running::start(command.env_remove("VCUDA_MANAGER_PROGRAM"));
    let lib = fixture.home().join("state/lib");
    let has = |start: &str| {
        let files = fs::read_dir(&lib).into_iter().flatten();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(start)).count() == 1
    };
    eventually("both are installed", Duration::from_secs(20), || has("libvcuda_shim-") && has("vcuda-"));
}

#[test]
fn what_a_person_should_look_into_is_logged_and_outlives_a_restart() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let mut manager = fixture.manager();
    let gpu = fixture.uuid(0);
    let xids = vec![Xid { gpu, xid: 79 }];
    let faults = Faults { xids, ..Faults::default() };
    faults.write(&fixture.machine()).unwrap();
    eventually("the failure is logged", Duration::from_secs(20), || {
        let log = manager.log();
        log.lines().any(|line| line.contains("ERROR") && line.contains("XID 79"))
    });
    // What a new manager finds again is counted on the event of the one before.
    let events = || {
        let told = fixture.stdout(["events", "--json"]);
        let uncounted = told.lines().map(|line| line.split(",\"count\":").next().unwrap());
        uncounted.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = events();
    assert!(before.iter().any(|event| event.contains("VcudaGpuUnhealthy")), "{before:#?}");
    manager.kill_and_restart();
    let after = events();
    assert!(after.starts_with(&before), "{after:#?}");
}
