//! The hook table as a whole. `scripts/check-shim.sh` checks that its rows are the library's exports.

use std::collections::BTreeSet;
use std::process::Command;

use vcuda_tests::table::{row_names, rows};
use vcuda_tests::{release_dir, succeeded};

#[test]
fn every_row_is_a_function_of_the_driver() {
    let mut exports = BTreeSet::new();
    for library in ["libvcuda_simulator_cuda.so", "libvcuda_simulator_nvml.so"] {
        let listed = Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(release_dir().join(library))
            .output()
            .unwrap();
        exports.extend(
            succeeded(&listed)
                .lines()
                .filter_map(|line| Some(line.split_whitespace().next_back()?.split('@').next()?.to_owned())),
        );
    }
    let missing: Vec<String> = row_names().into_iter().filter(|name| !exports.contains(name)).collect();
    assert!(missing.is_empty(), "not exported by the simulated driver: {missing:?}");
}

/// Variants differ from their base functions only in the default stream, which the table derives from the name.
#[test]
fn a_variant_has_the_handler_of_its_base_function() {
    let rows = rows();
    let mut variants = 0;
    for row in &rows {
        let stripped = row.name.strip_suffix("_ptsz");
        let Some(base) = stripped.or(row.name.strip_suffix("_ptds")) else {
            continue;
        };
        variants += 1;
        let base = rows.iter().find(|other| other.name == base);
        let base = base.unwrap_or_else(|| panic!("{}: its base function has no row", row.name));
        assert_eq!((&row.module, &row.handler), (&base.module, &base.handler), "{}", row.name);
    }
    assert!(variants > 50, "{variants}");
}
