//! Comparison of the built library's symbols with those of real drivers.
#![allow(clippy::unwrap_used, reason = "a test ends where its tools fail")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use vcuda_driver_api::names::CUDA_EXPORTS;

/// Path of the library beside the test: a test alone does not build this kind of library.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.ancestors().nth(2).unwrap().join("libvcuda_simulator_cuda.so");
    assert!(library.exists(), "no {}: run `scripts/build-tests.sh` first", library.display());
    library
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).arg(library()).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn exports_are_the_names_of_real_drivers() {
    let exported: BTreeSet<String> = output("nm", &["-D", "--defined-only"])
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect();
    let wanted: BTreeSet<String> = CUDA_EXPORTS.iter().map(|name| (*name).to_owned()).collect();
    let missing: Vec<_> = wanted.difference(&exported).collect();
    let foreign: Vec<_> = exported.difference(&wanted).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    assert!(foreign.is_empty(), "exported, but no driver has it: {foreign:?}");
}

#[test]
fn own_references_bind_inside_and_the_name_is_the_drivers() {
    let dynamic = output("readelf", &["-d"]);
    assert!(dynamic.contains("Library soname: [libcuda.so.1]"), "{dynamic}");
    assert!(dynamic.contains("SYMBOLIC"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    let undefined = output("nm", &["-D", "--undefined-only"]);
    assert!(!undefined.lines().any(|line| line.trim_start().starts_with("U cu")), "{undefined}");
}
