//! What `vcuda doctor` says of a manager in trouble: the cause, once.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use vcuda_machine::Faults;
use vcuda_tests::{Fixture, eventually, succeeded, text};

const SOON: Duration = Duration::from_secs(40);

fn doctor(fixture: &Fixture) -> String {
    text(&fixture.vcuda(["doctor", "--sim"]).output().unwrap())
}

#[test]
fn a_driver_that_is_gone_is_told_once_and_not_that_it_tells_no_xids() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let manager = fixture.manager();
    let gone = Faults { driver_gone: true, ..Faults::default() };
    gone.write(&fixture.machine()).unwrap();
    eventually("each GPU is told", SOON, || doctor(&fixture).matches("fell off the bus").count() == 2);
    // Time in which the listener for XIDs asks the lost GPUs again.
    sleep(Duration::from_secs(2));
    let said = doctor(&fixture);
    assert!(!said.contains("XID"), "{said}");
    // NVML is opened anew after 10 more looks, one every two seconds.
    eventually("the driver is told", SOON, || manager.log().contains("VcudaNvmlFailed"));
    let said = doctor(&fixture);
    assert_eq!(said.matches("NVIDIA driver is not loaded").count(), 1, "{said}");
    let first = said.lines().find(|line| !line.starts_with("ok") && line.contains("manager"));
    let is_cause = |line: &str| line.starts_with("broken") && line.contains("NVIDIA driver is not loaded");
    assert!(first.is_some_and(is_cause) && !said.contains("XID"), "{said}");
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
    eventually("the refusal is told", SOON, is_told);
    let said = doctor(&fixture);
    let line = said.lines().find(|line| line.contains("configuration: ")).unwrap();
    assert!(
        line.starts_with("note")
            && line.contains("manager.toml")
            && line.contains("the one before stays in force"),
        "{said}"
    );
    succeeded(&fixture.vcuda(["doctor", "--sim"]).output().unwrap());
    fs::write(&file, "").unwrap();
    manager.signal(libc::SIGHUP);
    eventually("the refusal is withdrawn", SOON, || !is_told());
}
