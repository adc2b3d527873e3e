//! Every door of I4 leads every row of the hook table to its hook, and names that are not hooked keep their meaning.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use vcuda_driver_api::lookup::{Answer, base_names, symbol_for};
use vcuda_tests::table::{Row, row_names, rows};
use vcuda_tests::{Bed, Door, app, release_dir, succeeded};

/// The versions at which the driver's interface changed, and one beyond.
const VERSIONS: std::ops::RangeInclusive<i32> = 20..=140;

/// How `cuGetProcAddress` is asked for each symbol: base name, version, flags.
fn questions() -> BTreeMap<&'static str, (&'static str, i32, u64)> {
    let mut questions = BTreeMap::new();
    for base in base_names() {
        for version in VERSIONS.map(|tenths| tenths / 10 * 1000 + tenths % 10 * 10) {
            for flags in 0..=2 {
                if let Answer::Symbol(symbol) = symbol_for(base, version, flags) {
                    questions.entry(symbol).or_insert((base, version, flags));
                }
            }
        }
    }
    questions
}

/// A line for each row: what `apps/doors.c` reads. `twins` are rows whose function is another row's too.
fn write_table(path: &Path, twins: &BTreeMap<String, String>) {
    let questions = questions();
    let mut table = String::new();
    for name in row_names() {
        let (base, version, flags) = questions.get(name.as_str()).copied().unwrap_or(("-", 0, 0));
        assert!(
            base != "-" || name.starts_with("nvml"),
            "no version and flags of cuGetProcAddress answer {name}"
        );
        let twin = twins.get(&name).unwrap_or(&name);
        writeln!(table, "{name} {base} {version} {flags} {twin}").unwrap();
    }
    std::fs::write(path, table).unwrap();
}

#[test]
fn every_route_leads_every_row_to_the_shim() {
    let bed = Bed::new();
    let table = bed.runtime().join("table");
    write_table(&table, &BTreeMap::new());
    let program = app("doors", Door::Dlsym);
    let bare = succeeded(&bed.bare(&program).arg(&table).output().unwrap());

    // Two names of one function in the driver lead to one hook, which must do for both.
    let rows: BTreeMap<String, Row> = rows().into_iter().map(|row| (row.name.clone(), row)).collect();
    let mut twins = BTreeMap::new();
    for line in bare.lines().filter_map(|line| line.strip_prefix("TWIN ")) {
        let (name, twin) = line.split_once(' ').unwrap();
        assert_eq!(rows[name].module, rows[twin].module, "{line}");
        assert_eq!(is_per_thread(name), is_per_thread(twin), "{line}");
        twins.insert(name.to_owned(), twin.to_owned());
    }
    write_table(&table, &twins);

    let tenant = succeeded(
        &bed.tenant(&["--memory", "1GiB"], &program)
            .arg(&table)
            .arg("libvcuda_shim.so")
            .output()
            .unwrap(),
    );
    assert!(
        tenant.contains(&format!("passed doors: {} rows", rows.len())),
        "{tenant}"
    );
}

/// Whether stream 0 is the thread's own in this function.
fn is_per_thread(name: &str) -> bool {
    name.ends_with("_ptsz") || name.ends_with("_ptds")
}

/// A program that is linked against the driver: the loader itself binds each name.
#[test]
fn linked_names_are_the_shims() {
    let bed = Bed::new();
    let rows = row_names();
    let folder = bed.runtime();
    for (simulated, name) in [
        ("libvcuda_simulator_cuda.so", "libcuda.so"),
        ("libvcuda_simulator_nvml.so", "libnvidia-ml.so"),
    ] {
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

    for (output, library) in [
        (bed.bare(&program).output().unwrap(), ""),
        (
            bed.tenant(&["--memory", "1GiB"], &program).output().unwrap(),
            "libvcuda_shim.so",
        ),
    ] {
        let bound = succeeded(&output);
        assert_eq!(bound.lines().count(), rows.len());
        let elsewhere: Vec<&str> = bound.lines().filter(|line| !line.ends_with(library)).collect();
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
    }
}
