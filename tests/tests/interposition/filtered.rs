//! A program that is killed for any system call that docs/limits.md does not name.

use vcuda_tests::{Fixture, compile, skip, succeeded, workspace};

/// The calls that a filter must allow, by the documentation: `SYS_close, ...`.
fn documented() -> String {
    let page = std::fs::read_to_string(workspace().join("docs/limits.md")).unwrap();
    let entry =
        page.split("\n* ").find(|entry| entry.starts_with("**A seccomp filter that kills**")).unwrap();
    let names: Vec<_> = entry.split('`').skip(1).step_by(2).map(|name| format!("SYS_{name}")).collect();
    assert!(names.len() > 30, "{entry}");
    names.join(", ")
}

#[test]
fn a_filter_that_allows_what_is_documented_kills_no_tenant() {
    if !cfg!(target_arch = "x86_64") {
        return skip("filtered: other processors have other calls");
    }
    let fixture = Fixture::new();
    let program = fixture.home().join("filtered");
    let allowed = format!("-DALLOWED={}", documented());
    compile(&program, &["-DVIA_DLSYM", &allowed, "-lpthread"], "filtered.c");
    succeeded(&fixture.bare(&program).output().unwrap());
    for cores in ["50", "100"] {
        let quota = ["--memory", "1GiB", "--cores", cores];
        succeeded(&fixture.tenant(&quota, &program).output().unwrap());
    }
}
