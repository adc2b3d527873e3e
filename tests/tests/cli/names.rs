//! Which tenant a name means: that of a run, a grant's id, or the name that a grant was made under.

use std::process::Output;

use vcuda_tests::{Door, Fixture, MIB, app, holding, succeeded, text};

fn vcuda(fixture: &Fixture, args: &[&str]) -> Output {
    fixture.vcuda(args).output().unwrap()
}

/// The whole text of a refusal with status 64.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(64), "{}", text(output));
    text(output)
}

#[test]
fn set_changes_neither_of_two_tenants_of_one_name() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    succeeded(&vcuda(&fixture, &["grant", "create", "web", "--memory", "2GiB"]));
    let set = |name: &str| vcuda(&fixture, &["set", name, "--memory", "3GiB"]);
    assert!(succeeded(&set("web")).starts_with("web-1 resized"));
    let mut run = fixture.tenant(&["--memory", "1GiB", "--name", "web"], app("hold", Door::Dlsym));
    let _run = holding(&mut run, 100 * MIB);
    let said = refused(&set("web"));
    assert!(
        said.contains("web (of `vcuda run`) and web-1 (a grant)"),
        "{said}"
    );
    assert!(succeeded(&set("web-1")).starts_with("web-1 resized"));
    let mut off = fixture.vcuda(["set", "web", "--memory", "3GiB"]);
    let said = succeeded(&off.env("VCUDA_MANAGER", "off").output().unwrap());
    assert!(said.starts_with("web resized"), "{said}");
}
