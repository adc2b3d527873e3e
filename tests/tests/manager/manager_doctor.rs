//! What `vcuda doctor` says of a manager in trouble: the cause, once.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use vcuda_machine::Faults;
use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, holding, release_dir, soon, succeeded, text};

fn doctor(fixture: &Fixture) -> String {
    text(&fixture.output(["doctor", "--sim"]))
}

#[test]
fn a_driver_that_is_gone_is_told_once_and_not_that_it_tells_no_xids() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let manager = fixture.manager();
    let gone = Faults { driver_gone: true, ..Faults::default() };
    gone.write(&fixture.machine()).unwrap();
    soon("each GPU is told", || doctor(&fixture).matches("fell off the bus").count() == 2);
    // Time in which the listener for XIDs asks the lost GPUs again.
    sleep(Duration::from_secs(2));
    let said = doctor(&fixture);
    assert!(!said.contains("XID"), "{said}");
    // NVML is opened anew after 10 more looks, one every two seconds.
    soon("the driver is told", || manager.log().contains("VcudaNvmlFailed"));
    let said = doctor(&fixture);
    assert_eq!(said.matches("NVIDIA driver is not loaded").count(), 1, "{said}");
    let first = said.lines().find(|line| !line.starts_with("ok") && line.contains("manager"));
    let is_cause = |line: &str| line.starts_with("broken") && line.contains("NVIDIA driver is not loaded");
    assert!(first.is_some_and(is_cause) && !said.contains("XID"), "{said}");
}

#[test]
fn a_process_that_has_outlived_its_grant_is_told_with_it() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    fixture.stdout(["grant", "create", "web", "--memory", "2GiB"]);
    let hold = holding(&mut fixture.in_grant("web", app("hold", Door::Dlsym)), GIB);
    fixture.stdout(["grant", "release", "web", "--force"]);
    let (told, mut said) = (format!("process {} (hold", hold.0.id()), String::new());
    soon("it is told", || {
        said = doctor(&fixture);
        said.contains(&told)
    });
    assert!(said.contains("has outlived web-1") && !said.contains("of no tenant"), "{said}");
}

#[test]
fn a_configuration_that_was_refused_is_told_until_it_is_mended() {
    let fixture = Fixture::new();
    let file = fixture.home().join("manager.toml");
    fs::write(&file, "").unwrap();
    let manager = fixture.manager_with(&["--config", file.to_str().unwrap()]);
    let is_told = || doctor(&fixture).contains("configuration: ");
    assert!(!is_told());
    fs::write(&file, "[audit]\ninterval = \"7 weeks\"\n").unwrap();
    manager.signal(libc::SIGHUP);
    soon("the refusal is told", is_told);
    let said = doctor(&fixture);
    let line = said.lines().find(|line| line.contains("configuration: ")).unwrap();
    assert!(
        line.starts_with("note")
            && line.contains("manager.toml")
            && line.contains("the one before stays in force"),
        "{said}"
    );
    fixture.stdout(["doctor", "--sim"]);
    fs::write(&file, "").unwrap();
    manager.signal(libc::SIGHUP);
    soon("the refusal is withdrawn", || !is_told());
}

#[test]
fn a_gpu_that_is_not_listed_after_a_restart_is_told_with_its_grants_and_cordon() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let mut manager = fixture.manager();
    let gpu = fixture.uuid(0);
    fixture.grant("web", &["--memory", "2GiB", "--gpu", "0"]);
    fixture.stdout(["gpu", "cordon", "0"]);
    assert!(doctor(&fixture).contains("ok      tenant web-1"), "{}", doctor(&fixture));
    manager.end();
    Faults { absent: vec![gpu.clone()], ..Faults::default() }.write(&fixture.machine()).unwrap();
    manager.start_again();
    let told = format!("1 grant(s) are on a GPU that NVML does not list: {gpu}");
    soon("it is told", || doctor(&fixture).contains(&told));
    let said = fixture.refusal(["doctor", "--sim"], 1);
    let starts =
        |word: &str, part: &str| said.lines().any(|line| line.starts_with(word) && line.contains(part));
    assert!(starts("broken", &told) && starts("note", "tenant web-1") && !starts("ok", "web-1"), "{said}");
    assert_eq!(manager.metric("vcuda_inventory_problem", ""), 1.0);
    let told_in = |text: &str| text.matches(&told).count();
    assert_eq!((told_in(&manager.log()), told_in(&fixture.events())), (1, 1), "{}", manager.log());
    assert_eq!(told_in(&fixture.stdout(["gpu", "list"])), 1);
    for command in ["smi", "ps"] {
        let output = fixture.output([command]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((told_in(&said), said.lines().count()), (1, 1), "{command}: {said}");
    }
    // Both can be taken back, by the UUID.
    fixture.stdout(["grant", "release", "web", "--force"]);
    fixture.stdout(["gpu", "uncordon", &gpu]);
    soon("all is well", || manager.metric("vcuda_inventory_problem", "") == 0.0);
    fixture.stdout(["doctor", "--sim"]);
}

#[test]
fn a_ledger_that_cannot_be_written_is_broken_and_one_that_was_rebuilt_is_told_until_a_cordon() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    let create = |name: &str| fixture.output(["grant", "create", name, "--memory", "1GiB"]);
    succeeded(&create("web"));
    // The ledger's new file cannot be made.
    let new = manager.state().join("ledger.json.new");
    fs::create_dir(&new).unwrap();
    assert!(!create("other").status.success());
    let said = fixture.refusal(["doctor", "--sim"], 1);
    let is_told =
        |line: &str| line.starts_with("broken  manager") && line.contains("cannot write the ledger");
    assert!(said.lines().any(is_told), "{said}");
    fs::remove_dir(&new).unwrap();
    succeeded(&create("other"));
    fixture.stdout(["doctor", "--sim"]);

    manager.end();
    fs::write(manager.state().join("ledger.json"), "damaged").unwrap();
    manager.start_again();
    let said = fixture.stdout(["doctor", "--sim"]);
    let is_told = |line: &str| {
        line.starts_with("note    manager")
            && line.contains("cordons are lost and must be set again")
            && line.contains("ledger.json.damaged-")
    };
    assert!(said.lines().any(is_told), "{said}");
    fixture.stdout(["gpu", "cordon", "0"]);
    assert!(!doctor(&fixture).contains("cordons are lost"));
}

/// A state folder in which the shim cannot be installed at the manager's start: here, as its place is taken.
#[test]
fn a_shim_that_cannot_be_installed_is_told_and_installed_once_there_is_room() {
    let fixture = Fixture::new();
    let library = release_dir().join("libvcuda_shim.so");
    let place = fixture.home().join("state/lib");
    fs::create_dir(place.parent().unwrap()).unwrap();
    fs::write(&place, "").unwrap();
    let manager = fixture.manager_with(&["--shim-library", library.to_str().unwrap()]);
    let said = fixture.refusal(["doctor", "--sim"], 1);
    let why = "shim: new containers get no shim";
    let is_told = |line: &str| {
        line.starts_with("broken  manager") && line.contains(why) && line.contains("make room there")
    };
    assert!(said.lines().any(is_told), "{said}");
    let ready = manager.page("/readyz");
    assert!(ready.contains("503") && ready.contains(why), "{ready}");
    let events = fixture.events();
    assert!(events.contains("error   VcudaShimFailed: new containers get no shim"), "{events}");
    fs::remove_file(&place).unwrap();
    soon("it is installed", || manager.page("/readyz").contains("200 OK"));
    assert!(fs::read_dir(&place).unwrap().count() >= 2);
    fixture.stdout(["doctor", "--sim"]);
}

#[test]
fn of_one_tenant_its_gpus_its_quota_and_its_processes_are_told() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let _manager = fixture.manager();
    let uuids = [0, 1].map(|index: usize| fixture.uuid(index));
    fixture.grant("web", &["--memory", "1GiB", "--gpu", "0"]);
    fixture.grant("other", &["--memory", "1GiB", "--gpu", "1"]);
    let idle = fixture.stdout(["doctor", "web"]);
    assert!(idle.starts_with("ok      tenant web-1            no process of it uses a GPU\n"), "{idle}");
    fixture.stdout(["gpu", "cordon", "0"]);
    let mut program = fixture.in_grant("web", app("hold", Door::Dlsym));
    let program = program.arg((2048 * MIB).to_string());
    let program = holding(program, 100 * MIB);
    let said = fixture.stdout(["doctor", "web"]);
    for part in [
        "ok      tenant web-1            1 process(es), running\n",
        &format!("note    GPU {}  no new tenant gets it: cordoned\n", uuids[0]),
        "1 allocation(s) denied because they would not have fitted\n        -> vcuda set web-1 --memory SIZE",
        "ok      suspendable ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let others = |said: &str| said.contains(&uuids[1]) || said.contains("other-2");
    assert!(!others(&said), "{said}");
    Faults { lost: vec![uuids[0].clone()], ..Faults::default() }.write(&fixture.machine()).unwrap();
    let ill = format!("broken  GPU {}  no new tenant gets it: unhealthy: ", uuids[0]);
    let doctor = |name: &str| text(&fixture.output(["doctor", name]));
    soon("its GPU is ill", || doctor("web").contains(&ill));
    let said = doctor("web");
    assert!(said.contains("-> if it is so for more than a minute: end its programs"), "{said}");
    assert!(!doctor("other").contains(&uuids[0]), "{}", doctor("other"));
    drop(program);
}

/// It asks for no memory, and so needs no room, and nothing is refused.
#[test]
fn a_tenant_that_is_full_is_well_and_nothing_is_refused_by_asking() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    let tenant = fixture.keep("full", &["--memory", "1GiB"]);
    let full = (GIB - 480 * MIB).to_string();
    let mut program = Running::ready(tenant.command(app("hold", Door::Dlsym)).arg(&full), "holding");
    let own = tenant.command(release_dir().join("vcuda")).arg("doctor").output().unwrap();
    assert!(own.status.success() && text(&own).contains("limit seen by CUDA"), "{}", text(&own));
    fixture.stdout(["doctor", "--sim"]);
    program.kill();
    assert!(!fixture.events().contains("VcudaMemoryDenied"), "{}", fixture.events());
}
