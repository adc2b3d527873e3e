//! Coverage gate: every name of the driver is hooked or passed for a reason, and `docs/generated/coverage.md` lists them.

use std::sync::Once;

use vcuda_tests::coverage::{Coverage, Passed, remove_hooked};
use vcuda_tests::workspace;

/// Whether files are to be written rather than compared.
fn updates() -> bool {
    std::env::var_os("VCUDA_UPDATE").is_some()
}

fn tree() -> Coverage {
    static UPDATED: Once = Once::new();
    UPDATED.call_once(|| {
        if updates() {
            remove_hooked();
        }
    });
    Coverage::of_the_tree()
}

#[test]
fn every_name_is_hooked_or_passed_for_a_reason() {
    let problems = tree().problems();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_takes_memory_is_passed_only_if_that_costs_nothing() {
    let doors = tree().open_doors();
    assert!(doors.is_empty(), "{}", doors.join("\n"));
}

#[test]
fn the_page_is_up_to_date() {
    let path = workspace().join("docs/generated/coverage.md");
    let page = tree().page();
    if updates() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/generated/coverage.md is stale: run `VCUDA_UPDATE=1 cargo test -p vcuda-tests --test interposition coverage::`"
    );
}

/// The gate detects each kind of mistake: a correct tree is broken in one place at a time.
#[test]
fn a_mistake_is_found() {
    let right = tree();
    assert_eq!(right.problems(), [""; 0]);
    let broken = |breaking: fn(&mut Coverage)| {
        let mut tree = right.clone();
        breaking(&mut tree);
        tree
    };
    let finds = |tree: &Coverage, name: &str| {
        assert!(
            tree.problems().iter().any(|problem| problem.contains(name)),
            "{name}: {:?}",
            tree.problems()
        );
    };

    // A row missing in the hook table.
    finds(&broken(|tree| tree.hooked.retain(|row| row.name != "cuMemAlloc_v2")), "cuMemAlloc_v2");
    // A new name in a newer driver.
    finds(
        &broken(|tree| {
            tree.known.insert("cuMemAlloc_v9".to_owned());
        }),
        "cuMemAlloc_v9",
    );
    // A hooked name that is passed, a name passed twice, a passed name that does not exist.
    for name in ["cuMemAlloc_v2", "cuMemcpy", "cuMemAllocNothing"] {
        let mut tree = right.clone();
        tree.passed.push(Passed {
            kind: "host".to_owned(),
            title: "broken".to_owned(),
            reason: "none".to_owned(),
            names: vec![name.to_owned()],
        });
        finds(&tree, name);
    }
    // A memory function passed for a reason that may have a cost.
    let mut tree = broken(|tree| tree.hooked.retain(|row| row.name != "cuMemCreate"));
    tree.passed.push(Passed {
        kind: "unseen".to_owned(),
        title: "broken".to_owned(),
        reason: "none".to_owned(),
        names: vec!["cuMemCreate".to_owned()],
    });
    assert_eq!(tree.problems(), [""; 0]);
    assert!(tree.open_doors().iter().any(|door| door.contains("cuMemCreate (takes)")));
    // A missing reason, an unknown kind.
    finds(&broken(|tree| tree.passed[0].reason.clear()), "no reason");
    finds(&broken(|tree| "whatever".clone_into(&mut tree.passed[0].kind)), "whatever");
}
