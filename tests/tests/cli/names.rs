//! Which tenant a name means: that of a run, a grant's id, or the name that a grant was made under.

use std::process::Output;
use std::time::Duration;

use vcuda_tests::{Door, Fixture, MIB, Running, app, eventually, holding, succeeded, text};

fn vcuda(fixture: &Fixture, args: &[&str]) -> Output {
    fixture.output(args)
}

/// The whole text of a refusal with status 64.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(64), "{}", text(output));
    text(output)
}

#[test]
fn no_run_has_the_name_of_a_grant() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    succeeded(&vcuda(&fixture, &["grant", "create", "web", "--memory", "2GiB"]));
    for name in ["web", "web-1"] {
        let said = refused(&fixture.tenant(&["--memory", "1GiB", "--name", name], "true").output().unwrap());
        assert!(said.contains(&format!("--name {name}: web-1 is a grant")), "{said}");
    }
    let set = |name: &str| vcuda(&fixture, &["set", name, "--memory", "3GiB"]);
    let _run = holding(
        &mut fixture.tenant(&["--memory", "1GiB", "--name", "own"], app("hold", Door::Dlsym)),
        100 * MIB,
    );
    assert!(succeeded(&set("web")).starts_with("web-1 resized"));
    assert!(succeeded(&set("own")).starts_with("own resized"));
    let said = refused(&vcuda(&fixture, &["grant", "create", "own", "--memory", "1GiB"]));
    assert!(said.contains("own has it"), "{said}");
}

#[test]
fn events_of_a_container_are_found_by_its_name_too() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    let events = |name: &str| vcuda(&fixture, &["events", "--container", name]);
    assert!(refused(&events("nope")).contains("there is none"));
    succeeded(&vcuda(&fixture, &["grant", "create", "web", "--memory", "1GiB"]));
    let said = refused(&events("nope"));
    assert!(said.contains("nope: no such container; there are: web-1"), "{said}");
    let run = ["run", "--sim", "--grant", "web", "--"];
    let mut beyond = fixture.vcuda(run);
    beyond.arg(app("hold", Door::Dlsym)).arg((4096 * MIB).to_string());
    let mut beyond = Running::start(&mut beyond);
    beyond.wait_for("holding");
    eventually("the denial is told", Duration::from_secs(60), || {
        succeeded(&events("web")).contains("VcudaMemoryDenied web-1")
    });
    assert_eq!(succeeded(&events("web-1")), succeeded(&events("web")));
    // One that has ended has events still.
    drop(beyond);
    succeeded(&vcuda(&fixture, &["grant", "release", "web", "--force"]));
    assert!(succeeded(&events("web-1")).contains("VcudaMemoryDenied web-1"));
}
