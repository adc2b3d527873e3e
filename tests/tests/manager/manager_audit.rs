//! The manager's findings about real processes on the simulated GPU, by NVML, by their roots and mapped files: unlimited
//! ones, ones with tampered mounts, ones with a deleted directory.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use serde_json::Value;
use vcuda_tests::{
    Commanded, Door, Fixture, GIB, GrantedContainer, MIB, Manager, Mounted, Running, app, holding, skip,
    soon, succeeded,
};

/// Memory of a program with its context (bytes).
const HELD: u64 = 200 * MIB;

fn create(fixture: &Fixture, name: &str) {
    fixture.grant(name, &["--memory", "2GiB", "--cores", "20"]);
}

fn granted_container<'b>(
    fixture: &'b Fixture,
    grant: &str,
    mounted: Mounted,
) -> Option<GrantedContainer<'b>> {
    let container = fixture.granted_container(grant, mounted);
    if container.is_none() {
        skip("containers under the manager: this user may not mount here (not root)");
    }
    container
}

fn is_told(fixture: &Fixture, what: &str) {
    soon(what, || fixture.events().contains(what));
}

fn findings(manager: &Manager<'_>, id: &str) -> f64 {
    manager.metric("vcuda_audit_findings", &format!("container=\"{id}\""))
}

/// Checks that a finding holds: it is in the snapshot after the report.
fn is_found(manager: &Manager<'_>, id: &str) {
    soon("it is a finding", || findings(manager, id) >= 1.0);
}

fn attached(manager: &Manager<'_>, id: &str) -> bool {
    manager.metric("vcuda_shim_attached", &format!("container=\"{id}\"")) > 0.5
}

fn unregistered_bytes(manager: &Manager<'_>) -> f64 {
    manager.metric("vcuda_audit_unregistered_bytes", "")
}

#[test]
fn a_process_of_no_tenant_is_found_with_its_bytes() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    create(&fixture, "web");
    let hold = app("hold", Door::Dlsym);
    let stranger = holding(&mut fixture.bare(&hold), HELD);
    is_told(&fixture, &format!("process {} uses GPU-", stranger.0.id()));
    assert!(fixture.events().contains("VcudaUnregistered"));
    soon("its bytes are told", || unregistered_bytes(&manager) >= HELD as f64);
    drop(stranger);
    soon("it is gone", || unregistered_bytes(&manager) == 0.0);
}

#[test]
fn a_container_by_its_mounts_and_what_tampers_with_them() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    create(&fixture, "web");
    create(&fixture, "other");
    let Some(web) = granted_container(&fixture, "web", Mounted::Directory) else {
        return;
    };
    // The normal case: it registers through the read-only mount, also from its own PID namespaces.
    let inner = ["--pid", "--fork", "--kill-child"];
    let mut limited = Commanded::start(&mut web.command_in(&inner, app("obey", Door::Dlsym)));
    limited.fills_to_the_byte();
    soon("it is attached", || attached(&manager, "web-1"));
    fixture.stdout(["set", "web", "--memory", "3GiB"]);
    assert_eq!(limited.info().1, 3 * GIB);
    let ps: Value = fixture.json(["ps", "--json"]);
    let seen = &ps["processes"][0];
    let host_pid = seen["pid"].as_u64().unwrap();
    assert_eq!(seen["tenant"], "web-1", "{ps}");
    assert!(host_pid > 2, "the host's number of it, not its own: {ps}");
    assert_eq!(findings(&manager, "web-1"), 0.0);
    is_found_without_the_library(&fixture, &manager, &web);
    is_found_with_limits_of_its_own(&fixture, &manager, &web);

    // Even root in the container can neither enter the neighbour's directory nor write its own limits.
    let script =
        "! echo x >/etc/vcuda/limits && ! rm /etc/vcuda/grant && ! touch /etc/vcuda/new && echo done";
    let tried = web.unlimited("sh").args(["-c", script]).output().unwrap();
    assert!(succeeded(&tried).contains("done"));
    assert_eq!(findings(&manager, "other-2"), 0.0);
    limited.fills_to_the_byte();
}

/// The process's root has the tenant's limits.
fn is_found_without_the_library(fixture: &Fixture, manager: &Manager<'_>, web: &GrantedContainer<'_>) {
    let naked = holding(&mut web.unlimited(app("hold", Door::Dlsym)), HELD);
    is_told(fixture, &format!("process {} of web-1 uses GPU-", naked.0.id()));
    assert!(fixture.events().contains("VcudaNotAttached web-1"));
    is_found(manager, "web-1");
    drop(naked);
    soon("nothing is found any more", || findings(manager, "web-1") == 0.0);
}

/// Such limits belong to no tenant.
fn is_found_with_limits_of_its_own(fixture: &Fixture, manager: &Manager<'_>, web: &GrantedContainer<'_>) {
    let fake = fixture.runtime().join("fake");
    fs::create_dir(&fake).unwrap();
    for name in ["limits", "usage"] {
        fs::copy(web.directory().join(name), fake.join(name)).unwrap();
    }
    let script = r#"umount /etc/vcuda/usage && umount /etc/vcuda && mount --bind "$1" /etc/vcuda && shift && exec "$@""#;
    let mut cheat = web.command("sh");
    cheat.args(["-c", script, "cheat"]).arg(&fake);
    let cheat = holding(cheat.arg(app("hold", Door::Dlsym)), HELD);
    is_told(fixture, &format!("process {} uses GPU-", cheat.0.id()));
    soon("its bytes are told", || unregistered_bytes(manager) >= HELD as f64);
}

#[test]
fn who_cannot_reach_the_managers_socket_is_found() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    create(&fixture, "web");
    let Some(web) = granted_container(&fixture, "web", Mounted::Files) else {
        return;
    };
    let mut program = Commanded::start(&mut web.command(app("obey", Door::Dlsym)));
    program.fills_to_the_byte();
    assert_eq!(program.alloc(MIB), Some(0));
    is_told(&fixture, "VcudaNotRegistered web-1");
    is_found(&manager, "web-1");
    program.fills_to_the_byte();
}

#[test]
fn a_directory_that_is_deleted_under_a_container_does_not_hide_it() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    create(&fixture, "web");
    let hold = app("hold", Door::Dlsym);
    let in_grant = || fixture.in_grant("web", &hold);
    let outside = holding(&mut in_grant(), GIB);
    let inside = granted_container(&fixture, "web", Mounted::Directory)
        .map(|web| holding(&mut web.command(&hold), HELD));
    soon("they are attached", || attached(&manager, "web-1"));
    let directory = fixture.runtime().join("vcuda/containers/web-1");
    fs::remove_dir_all(&directory).unwrap();
    soon("it is made again", || directory.join("limits").exists());
    for program in [Some(&outside), inside.as_ref()].into_iter().flatten() {
        is_told(
            &fixture,
            &format!(
                "process {} of web-1 uses {} with files that were deleted",
                program.0.id(),
                fixture.uuid(0)
            ),
        );
    }
    assert!(fixture.events().contains("VcudaDetached web-1"));
    is_found(&manager, "web-1");
    let doctor = || fixture.output(["doctor", "--sim"]).stdout;
    soon("vcuda doctor says so", || String::from_utf8_lossy(&doctor()).contains("files that were deleted"));
    // The new directory has the whole quota again: NVML counts the memory of both.
    let again = holding(&mut in_grant(), GIB + HELD);
    is_told(&fixture, "VcudaOverLimit web-1");
    let over = || manager.metric("vcuda_audit_over_bytes", "container=\"web-1\"");
    soon("what both have", || over() >= HELD as f64);
    drop(again);
    // A manager that never saw the directory finds it too.
    manager.kill_and_restart();
    is_told(&fixture, &format!("process {} of web-1 uses", outside.0.id()));
    assert!(fixture.events().contains("VcudaDetached web-1"));
    drop((outside, inside));
    soon("nothing is found any more", || findings(&manager, "web-1") == 0.0);
}

/// Checks that the manager ends this process of the container `web` and reports it.
fn is_ended(fixture: &Fixture, mut naked: Running) {
    let pid = naked.0.id();
    let mut status = None;
    soon("it is ended", || {
        status = naked.0.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().signal(), Some(libc::SIGKILL));
    is_told(fixture, &format!("process {pid} of web-1 used a GPU without its limits and was ended"));
    assert!(fixture.events().contains("VcudaNotAttached web-1"), "{}", fixture.events());
}

#[test]
fn a_process_without_its_limits_is_ended_where_the_operator_wants_that_and_no_other_is() {
    let fixture = Fixture::new();
    let file = fixture.runtime().join("manager.toml");
    let act = |action: &str| fs::write(&file, format!("[audit]\naction = \"{action}\"\n")).unwrap();
    act("kill");
    let manager = fixture.manager_with(&["--config", file.to_str().unwrap()]);
    create(&fixture, "web");
    create(&fixture, "other");
    let containers = ["web", "other"].map(|grant| granted_container(&fixture, grant, Mounted::Directory));
    let [Some(web), Some(other)] = containers else {
        return;
    };
    let hold = app("hold", Door::Dlsym);
    let mut beside = Commanded::start(&mut web.command(app("obey", Door::Dlsym)));
    beside.fills_to_the_byte();
    let mut neighbour = Commanded::start(&mut other.command(app("obey", Door::Dlsym)));
    neighbour.fills_to_the_byte();
    // The owner is unknown: it is reported, and lives.
    let stranger = holding(&mut fixture.bare(&hold), HELD);

    is_ended(&fixture, holding(&mut web.unlimited(&hold), HELD));
    let killed = || manager.metric("vcuda_audit_killed_total", "");
    soon("it is counted", || killed() == 1.0);
    is_told(&fixture, &format!("process {} uses GPU-", stranger.0.id()));
    for program in [&mut beside, &mut neighbour] {
        program.fills_to_the_byte();
    }

    // From now on it is only reported.
    act("report");
    manager.signal(libc::SIGHUP);
    soon("the configuration is read again", || manager.log().contains("read again"));
    let lives = |running: &Running| fs::read_link(format!("/proc/{}/exe", running.0.id())).is_ok();
    let reported = holding(&mut web.unlimited(&hold), HELD);
    is_told(&fixture, &format!("process {} of web-1 uses GPU-", reported.0.id()));
    is_found(&manager, "web-1");
    // A process cannot hide by ending its main thread, after which the kernel shows none of its facts.
    let mut headless = web.unlimited(app("leaves", Door::Dlsym));
    let mut headless = Running::start(headless.args(["waits", "memory"]));
    headless.wait_for("waiting");
    is_told(&fixture, &format!("process {} of web-1 uses GPU-", headless.0.id()));
    assert!(lives(&reported) && lives(&stranger), "{}", fixture.events());
    assert_eq!(killed(), 1.0, "{}", fixture.events());
}

#[test]
fn a_tenant_that_floods_registration_and_one_that_forks_hide_no_other() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    create(&fixture, "hostile");
    create(&fixture, "other");
    let script = "import socket,sys,itertools\nprint('floods',flush=True)\nheld=[]\nfor n in itertools.count():\n try:\n  s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n  s.setblocking(False)\n  s.connect(sys.argv[1])\n  if n%3==0: s.send(b'x'*(n%300+1))\n  held.append(s)\n except OSError: pass\n held=held[-500:]";
    let socket = fixture.runtime().join("vcuda/containers/hostile-1/manager.sock");
    let mut flood = Command::new("python3");
    flood.args(["-c", script]).arg(&socket);
    let mut flood = Running::start(&mut flood);
    flood.wait_for("floods");
    let malformed = || manager.metric("vcuda_registrations_total", "result=\"malformed\"");
    soon("it is refused again and again", || malformed() > 100.0);
    let run = |grant: &str, program: &str| fixture.in_grant(grant, app(program, Door::Dlsym));
    let other = holding(&mut run("other", "hold"), HELD);
    soon("its neighbour is attached", || attached(&manager, "other-2"));
    let ps = || fixture.stdout(["ps"]);
    soon("and shown", || ps().contains(&other.0.id().to_string()));
    drop(flood);
    // The container itself is served again.
    let own = holding(&mut run("hostile", "hold"), HELD);
    soon("it is attached", || attached(&manager, "hostile-1"));
    // A forked child holds nothing, and its end does not affect its parent.
    succeeded(&run("hostile", "fork").output().unwrap());
    assert!(attached(&manager, "hostile-1"));
    soon("one process is left", || {
        manager.metric("vcuda_container_processes", "container=\"hostile-1\"") == 1.0
    });
    assert_eq!(findings(&manager, "hostile-1"), 0.0, "{}", fixture.events());
    drop((own, other));
}
