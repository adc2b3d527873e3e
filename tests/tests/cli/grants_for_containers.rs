//! What `vcuda` says of grants in containers: how to start one, and only once why none can be started.

use std::fs;

use vcuda_tests::{Fixture, Manager, text};

/// A manager with a folder for devices, on a node without the driver's files.
fn without_driver(fixture: &Fixture) -> Manager<'_> {
    let (file, cdi) = (fixture.home().join("manager.toml"), fixture.home().join("cdi"));
    fs::create_dir(fixture.home().join("empty")).unwrap();
    let root = fixture.home().join("empty").display().to_string();
    fs::write(&file, format!("[cdi]\ndriver_root = \"{root}\"\n")).unwrap();
    let paths = [&file, &cdi].map(|path| path.to_str().unwrap().to_owned());
    fixture.manager_with(&["--config", &paths[0], "--cdi", &paths[1]])
}

fn create(fixture: &Fixture, name: &str) -> String {
    fixture.grant(name, &["--memory", "1GiB"])
}

#[test]
fn where_no_container_can_be_started_doctor_and_log_say_why_once_and_no_creation_does() {
    let fixture = Fixture::new();
    let manager = without_driver(&fixture);
    for name in ["one", "two", "three"] {
        let said = create(&fixture, name);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.ends_with(&format!("; vcuda run --grant {name} -- CMD\n")), "{said}");
    }
    let doctor = fixture.output(["doctor", "--sim"]);
    let said = text(&doctor);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("CDI devices")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(
        lines[0].starts_with("note") && lines[0].contains("no libcuda.so.1 in the driver's root"),
        "{said}"
    );
    let log = manager.log();
    let told = log.matches("no device for container engines: no libcuda.so.1").count();
    assert_eq!(told, 1, "{log}");
    // A user that asks for a container is told.
    let refused = fixture.output(["docker-args", "one"]);
    assert!(text(&refused).contains("no libcuda.so.1"), "{}", text(&refused));
}

#[test]
fn a_grant_without_a_device_is_started_by_docker_args() {
    let fixture = Fixture::new();
    let _manager = fixture.manager_for_containers("cdi");
    assert!(
        create(&fixture, "web").contains("in a container: podman run --device vcuda.io/grant=web IMAGE\n")
    );
    // CDI does not allow this name.
    let said = create(&fixture, "web-");
    assert!(said.contains("in a container: docker run $(vcuda docker-args web-) IMAGE\n"), "{said}");
    fixture.stdout(["docker-args", "web-"]);
    let doctor = text(&fixture.output(["doctor", "--sim"]));
    assert!(!doctor.contains("CDI devices"), "{doctor}");
}

#[test]
fn doctor_says_what_keeps_grants_from_having_a_device() {
    let fixture = Fixture::new();
    let (file, folder) = (fixture.home().join("manager.toml"), fixture.home().join("cdi"));
    fs::write(&file, "[cdi]\ninject = \"toolkit-env\"\n").unwrap();
    let folder = folder.to_str().unwrap();
    for (name, args, why) in [
        ("a", &["--cdi", folder, "--shim-library", "/nothing"][..], "no shim library installed"),
        ("b", &["--cdi", "/proc/nothing"], "the manager cannot write to /proc/nothing"),
    ] {
        let config = ["--config", file.to_str().unwrap()];
        let _manager = fixture.manager_with(&[config.as_slice(), args].concat());
        create(&fixture, name);
        let said = text(&fixture.output(["doctor", "--sim"]));
        let line = said.lines().find(|line| line.contains("CDI devices"));
        assert!(line.is_some_and(|line| line.contains(why)), "{said}");
        fixture.stdout(["grant", "release", name]);
    }
}
