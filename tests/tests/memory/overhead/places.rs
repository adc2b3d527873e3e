//! Memory figures after one context, for each driver profile: on the host, and in containers with and without a manager.

use std::process::{Command, Stdio};

use vcuda_tests::{
    Commanded, Door, Fixture, GIB, GrantedContainer, MIB, Manager, Mounted, Running, app, eventually, skip,
    succeeded,
};

/// Allowed difference (bytes), as NVML rounds a process's memory to 2 MiB.
pub(crate) const ROUNDING: u64 = 4 * MIB;
pub(crate) const PROFILES: [&str; 6] = ["h200-580", "a100-535-container", "t4-470", "gb10", "wsl2", "mps"];
/// Size of a context on `a100-535-container` (bytes).
pub(crate) const CONTEXT_BYTES: u64 = 410 * MIB;
/// Options for a PID namespace.
const APART: [&str; 3] = ["-pf", "--mount-proc", "--kill-child"];

/// A machine with this driver, and further lines of its file.
pub(crate) fn machine(profile: &str, lines: &str) -> Fixture {
    Fixture::with_config(&format!("profile = \"{profile}\"\n{lines}\n"))
}

/// Used memory as reported to the process (bytes).
pub(crate) fn used(process: &mut Commanded) -> u64 {
    let (left, total) = process.info();
    total - left
}

/// Asserts that the process sees the GPU's actual use.
pub(crate) fn assert_exact(fixture: &Fixture, process: &mut Commanded, what: &str) {
    let (told, given) = (used(process), fixture.used_bytes());
    assert!(told.abs_diff(given) <= ROUNDING, "{what}: {told} of {given}");
}

/// `obey` as a tenant of the host.
pub(crate) fn on_host(fixture: &Fixture, quota: &str) -> Command {
    let mut command = fixture.tenant(&["--memory", quota], app("obey", Door::Dlsym));
    command.stdin(Stdio::piped());
    command
}

/// `obey` as a tenant in its own PID namespace without a manager. `None` if this user cannot make one.
pub(crate) fn apart(fixture: &Fixture, quota: &str) -> Option<Command> {
    isolated(fixture, &on_host(fixture, quota))
}

/// The tenant's command in its own PID namespace. `None` if this user cannot make one.
pub(crate) fn isolated(fixture: &Fixture, tenant: &Command) -> Option<Command> {
    let works = Command::new("unshare").args(APART).arg("true").output();
    if !works.is_ok_and(|output| output.status.success()) {
        skip("overhead: unshare --pid does not work here");
        return None;
    }
    // The host's PID namespace is that of the machine's first process.
    succeeded(&fixture.bare(app("nvml_list", Door::Dlsym)).output().unwrap());
    let mut command = Command::new("unshare");
    fixture.environment(&mut command);
    command.args(APART).arg(tenant.get_program()).args(tenant.get_args());
    Some(command)
}

/// A tenant granted by the fixture's manager. `None` if this user cannot mount.
pub(crate) fn granted<'b>(fixture: &'b Fixture, name: &str, quota: &str) -> Option<GrantedContainer<'b>> {
    fixture.grant(name, &["--memory", quota, "--cores", "10"]);
    let room = fixture.granted_container(name, Mounted::Directory);
    if room.is_none() {
        skip("overhead: this user may not mount here");
        return None;
    }
    // The socket is made shortly after the directory.
    let room = room?;
    eventually("its socket", std::time::Duration::from_secs(20), || {
        room.directory().join("manager.sock").exists()
    });
    Some(room)
}

/// A command in a granted container, in its own PID namespace.
pub(crate) fn within(room: &GrantedContainer<'_>, program: &str) -> Command {
    room.command_in(&APART, app(program, Door::Dlsym))
}

/// Checks the figures after a context and after an array, at once.
fn is_exact_at_once(fixture: &Fixture, mut command: Command, what: &str) {
    let mut process = Commanded::start(&mut command);
    assert_exact(fixture, &mut process, what);
    assert_eq!(process.alloc(100 * MIB), Some(0));
    assert_exact(fixture, &mut process, what);
}

#[test]
fn one_context_is_charged_on_the_host() {
    for profile in PROFILES {
        let fixture = machine(profile, "");
        is_exact_at_once(&fixture, on_host(&fixture, "2GiB"), profile);
    }
}

#[test]
fn one_context_is_charged_in_a_container_without_a_manager() {
    for profile in PROFILES {
        let fixture = machine(profile, "");
        let Some(command) = apart(&fixture, "2GiB") else {
            return;
        };
        is_exact_at_once(&fixture, command, profile);
    }
}

#[test]
fn one_context_is_charged_in_a_container_with_a_manager() {
    for profile in PROFILES {
        let fixture = machine(profile, "");
        let _manager = fixture.manager();
        let Some(room) = granted(&fixture, "a", "2GiB") else {
            return;
        };
        is_exact_at_once(&fixture, within(&room, "obey"), profile);
    }
}

/// Neighbours that allocate and free repeatedly.
pub(crate) fn churns(fixture: &Fixture) -> [Running; 2] {
    ["1", "2"].map(|seed| {
        let mut churn = Running::start(fixture.bare(app("churn", Door::Dlsym)).arg(seed));
        churn.wait_for("started");
        churn
    })
}

/// Ends a process of the fixture's only tenant, and waits for that. In its own PID namespace, a killed process ends a
/// little later than the one that started it, and counts until then.
pub(crate) fn end(fixture: &Fixture, process: Commanded) {
    drop(process);
    eventually("its end", std::time::Duration::from_secs(20), || {
        let all = fixture.smi();
        let tenants = all["gpus"][0]["tenants"].as_array().unwrap();
        tenants.iter().all(|tenant| tenant["memory_used_bytes"] == 0)
    });
    // The lock that shows the tenant's death is released after the memory.
    std::thread::sleep(std::time::Duration::from_millis(100));
}

/// No figure includes neighbours' memory, if the host's NVML reports each process.
#[test]
fn neighbours_are_in_no_figure_where_a_manager_tells() {
    for profile in ["a100-535-container", "t4-470", "gb10", "mps"] {
        let fixture = machine(profile, "");
        let _manager: Manager<'_> = fixture.manager();
        let Some(room) = granted(&fixture, "a", "2GiB") else {
            return;
        };
        // Size of a context.
        let context_bytes = {
            let mut alone = Running::start(&mut fixture.bare(app("hold", Door::Dlsym)));
            alone.wait_for("holding");
            fixture.used_bytes()
        };
        eventually("it is gone", std::time::Duration::from_secs(5), || fixture.used_bytes() == 0);
        let _neighbours = churns(&fixture);
        for _ in 0..3 {
            let mut process = Commanded::start(&mut within(&room, "obey"));
            let told = used(&mut process);
            assert!(told.abs_diff(context_bytes) <= ROUNDING, "{profile}: {told} of {context_bytes}");
            end(&fixture, process);
        }
    }
}

/// Contexts made at the same time in several tenants are each charged to their own.
#[test]
fn first_contexts_at_the_same_moment_are_charged_right() {
    let fixture = machine("a100-535-container", "");
    let _manager = fixture.manager();
    let names = ["a", "b", "c", "d", "e", "f"];
    let Some(rooms) = names.iter().map(|name| granted(&fixture, name, "600MiB")).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    for round in 0..2 {
        let commands = rooms.iter().map(|room| within(room, "obey"));
        let running: Vec<Running> =
            commands.map(|mut command| Running::start(command.stdin(Stdio::piped()))).collect();
        for mut running in running {
            running.wait_for("ready");
            let mut process = Commanded(running);
            let told = used(&mut process);
            assert!(told.abs_diff(CONTEXT_BYTES) <= ROUNDING, "round {round}: {told}");
        }
        // A process killed in its own namespace ends a little later than the one that started it, and counts until then.
        eventually("the GPU is free again", std::time::Duration::from_secs(20), || fixture.used_bytes() == 0);
        // The lock that shows the tenant's death is released after the memory.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(fixture.peak_bytes(0) <= 6 * GIB);
}
