//! Frees of unknown addresses reach the driver, which answers, and change no counter.

use vcuda_tests::{Door, Fixture, app, succeeded};

#[test]
fn a_free_of_what_is_not_there_is_the_drivers_to_answer() {
    let fixture = Fixture::new();
    let program = app("wrong_frees", Door::Dlsym);
    let bare = succeeded(&fixture.bare(&program).output().unwrap());
    let tenant = succeeded(&fixture.tenant(&["--memory", "79GiB"], &program).output().unwrap());
    assert!(!bare.contains("moved"), "the driver's own books moved:\n{bare}");
    let differences: Vec<String> = bare
        .lines()
        .zip(tenant.lines())
        .filter(|(bare, tenant)| bare != tenant)
        .map(|(bare, tenant)| format!("bare   {bare}\ntenant {tenant}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(bare.lines().count(), tenant.lines().count());
    vcuda_tests::eventually("nothing is left on the GPU", std::time::Duration::from_secs(1), || {
        fixture.used_bytes() == 0
    });
}
