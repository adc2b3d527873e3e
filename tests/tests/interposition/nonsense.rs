//! Invalid arguments get the driver's own answer: every row of the hook table is called with every kind of wrong argument,
//! without shim and as a tenant. Both runs must return the same and write to the same places (I1). The calls are generated
//! from the prototypes (`src/bin/nonsense/`), so new rows are covered automatically.

use std::collections::BTreeSet;

use vcuda_tests::table::row_names;
use vcuda_tests::{Fixture, GIB, succeeded};

/// Below the GPU's 80 GiB, with room for many contexts.
const QUOTA_BYTES: u64 = 79 * GIB;

#[test]
fn before_the_driver_is_initialised() {
    same_answers("nothing");
}

#[test]
fn without_a_context() {
    same_answers("started");
}

#[test]
fn with_a_context() {
    same_answers("context");
}

/// Most of the time passes in waits for the memory of processes that have ended, so the rows are tried on several machines at once.
fn same_answers(stage: &str) {
    let rows = row_names();
    std::thread::scope(|scope| {
        for some in rows.chunks(rows.len().div_ceil(4)) {
            scope.spawn(move || same_answers_of(some, stage));
        }
    });
}

fn same_answers_of(rows: &[String], stage: &str) {
    let fixture = Fixture::new();
    let program = env!("CARGO_BIN_EXE_nonsense");
    let bare = succeeded(&fixture.bare(program).arg(stage).args(rows).output().unwrap());
    let quota = ["--memory", "79GiB", "--cores", "50"];
    let tenant = succeeded(&fixture.tenant(&quota, program).arg(stage).args(rows).output().unwrap());

    let tried: BTreeSet<&str> = bare.lines().filter_map(|line| Some(line.split_once('(')?.0)).collect();
    let missing: Vec<&String> = rows.iter().filter(|row| !tried.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "no call was made of {missing:?}");
    // The simulated driver answers every call.
    let crashes: Vec<&str> = bare.lines().filter(|line| line.contains("ended")).collect();
    assert!(crashes.is_empty(), "the driver itself fails:\n{}", crashes.join("\n"));

    assert_eq!(bare.lines().count(), tenant.lines().count());
    let differences: Vec<String> = bare
        .lines()
        .zip(tenant.lines())
        .filter(|(bare, tenant)| bare != tenant && !is_refused_for_its_size(bare, tenant))
        .map(|(bare, tenant)| format!("bare   {bare}\ntenant {tenant}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(fixture.used_bytes(), 0, "nothing is left on the GPU");
}

/// Whether a call that exceeds the quota is also wrong in another way: it is undefined which error is returned, and the
/// quota is checked first. Otherwise the lines must agree.
fn is_refused_for_its_size(bare: &str, tenant: &str) -> bool {
    let (Some((call, bare)), Some((same_call, tenant))) = (bare.split_once(" = "), tenant.split_once(" = "))
    else {
        return false;
    };
    let (Some((bare, wrote)), Some((tenant, also_wrote))) = (bare.split_once(','), tenant.split_once(','))
    else {
        return false;
    };
    let asks_too_much = call
        .split(['(', ',', ' ', ')'])
        .filter_map(|argument| u64::from_str_radix(argument.strip_prefix("0x")?, 16).ok())
        .any(|number| number > QUOTA_BYTES);
    call == same_call && wrote == also_wrote && bare != "0" && tenant == "2" && asks_too_much
}
