//! Every door of I4 leads to the hook of every row, and names that are not hooked keep their meaning.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Output};

use vcuda_tests::doors::questions;
use vcuda_tests::table::{Row, row_names, rows};
use vcuda_tests::{Door, Fixture, app, release_dir, succeeded};

#[test]
fn every_route_leads_every_row_to_the_shim() {
    let fixture = Fixture::new();
    let table = fixture.runtime().join("table");
    std::fs::write(&table, questions(&BTreeMap::new())).unwrap();
    let program = app("doors", Door::Dlsym);
    let bare = succeeded(&fixture.bare(&program).arg(&table).output().unwrap());

    // Two names of one function in the driver share one hook, which must serve both.
    let rows: BTreeMap<String, Row> = rows().into_iter().map(|row| (row.name.clone(), row)).collect();
    let mut twins = BTreeMap::new();
    for line in bare.lines().filter_map(|line| line.strip_prefix("TWIN ")) {
        let (name, twin) = line.split_once(' ').unwrap();
        assert_eq!(rows[name].module, rows[twin].module, "{line}");
        assert_eq!(is_per_thread(name), is_per_thread(twin), "{line}");
        twins.insert(name.to_owned(), twin.to_owned());
    }
    std::fs::write(&table, questions(&twins)).unwrap();

    let tenant = succeeded(
        &fixture
            .tenant(&["--memory", "1GiB"], &program)
            .arg(&table)
            .arg("libvcuda_shim.so")
            .output()
            .unwrap(),
    );
    assert!(tenant.contains(&format!("passed doors: {} rows", rows.len())), "{tenant}");
}

/// Whether stream 0 is the thread's default stream in this function.
fn is_per_thread(name: &str) -> bool {
    name.ends_with("_ptsz") || name.ends_with("_ptds")
}

/// In a program linked against the driver, the loader binds each name.
#[test]
fn linked_names_are_the_shims() {
    let fixture = Fixture::new();
    let rows = row_names();
    let folder = fixture.runtime();
    for (simulated, name) in
        [("libvcuda_simulator_cuda.so", "libcuda.so"), ("libvcuda_simulator_nvml.so", "libnvidia-ml.so")]
    {
        std::os::unix::fs::symlink(release_dir().join(simulated), folder.join(name)).unwrap();
    }
    let mut source = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n".to_owned();
    for row in &rows {
        writeln!(source, "extern int {row}(void);").unwrap();
    }
    source += "int main(void)\n{\n    Dl_info info;\n";
    for row in &rows {
        writeln!(
            source,
            "    printf(\"{row} %s\\n\", dladdr((void *){row}, &info) ? info.dli_fname : \"?\");"
        )
        .unwrap();
    }
    source += "    return 0;\n}\n";
    let (code, program) = (folder.join("linked.c"), folder.join("linked"));
    std::fs::write(&code, source).unwrap();
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-fPIE", "-o"]).arg(&program).arg(&code);
    cc.arg("-L").arg(&folder).args(["-lcuda", "-lnvidia-ml", "-ldl"]);
    succeeded(&cc.arg("-Wl,--allow-shlib-undefined").output().unwrap());

    let of_driver = |row: &str| match row.starts_with("nvml") {
        true => "/libnvidia-ml.so.1",
        false => "/libcuda.so.1",
    };
    let tenant = fixture.tenant(&["--memory", "1GiB"], &program).output().unwrap();
    are_of(&rows, &fixture.bare(&program).output().unwrap(), of_driver);
    are_of(&rows, &tenant, |_| "/libvcuda_shim.so");
}

/// Checks that the loader bound each row to a library of this name.
fn are_of(rows: &[String], output: &Output, library: impl Fn(&str) -> &'static str) {
    let bound = succeeded(output);
    let names = bound.lines().map(|line| line.split_once(' ').unwrap());
    assert!(names.clone().map(|(row, _)| row).eq(rows), "{bound}");
    let elsewhere: Vec<_> = names.filter(|(row, file)| !file.ends_with(library(row))).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
}
