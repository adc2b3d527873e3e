//! The crate's tables, compared with the files of `data/` row by row.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a malformed table fails the test")]

use std::collections::BTreeSet;
use vcuda_driver_api::lookup::{Answer, base_names, symbol_for};
use vcuda_driver_api::{cuda, names, nvml};

const PROC_ADDRESS: &str = include_str!("../../data/libcuda-550.163.01-procaddress.tsv");
const TYPEDEFS: [&str; 2] = [
    include_str!("../../data/driver-api-typedefs-12.9.tsv"),
    include_str!("../../data/driver-api-typedefs-13.5.tsv"),
];
const CUDA_EXPORTS: &str = include_str!("../../data/libcuda-550.163.01-exports.txt");
const NVML_EXPORTS: &str = include_str!("../../data/libnvidia-ml-550.163.01-exports.txt");
const NVML_DECLARED: &str = include_str!("../../data/nvml-13-declared.txt");

/// Base name, lowest version, flags and symbol of each measured row.
fn measured() -> Vec<(&'static str, i32, u64, &'static str)> {
    let row = |line: &'static str| {
        let fields: Vec<&str> = line.split('\t').collect();
        (fields[0], fields[1].parse().unwrap(), fields[2].parse().unwrap(), fields[3])
    };
    PROC_ADDRESS.lines().map(row).collect()
}

fn exported(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines().map(|line| line.split_once(' ').unwrap().1)
}

#[test]
fn every_measured_answer_is_given() {
    let rows = measured();
    assert_eq!(rows.len(), PROC_ADDRESS.lines().count());
    for &(base, lowest, flags, symbol) in &rows {
        assert_eq!(symbol_for(base, lowest, flags), Answer::Symbol(symbol), "{base} {lowest} {flags}");
        let before = rows
            .iter()
            .filter(|row| row.0 == base && row.2 == flags && row.1 < lowest)
            .max_by_key(|row| row.1)
            .map_or(Answer::VersionTooOld, |row| Answer::Symbol(row.3));
        assert_eq!(symbol_for(base, lowest - 1, flags), before, "{base} below {lowest} {flags}");
    }
}

/// Up to CUDA 12.4 only the measured rows answer.
#[test]
fn newer_signatures_change_no_older_answer() {
    let rows = measured();
    for base in base_names() {
        for flags in 0..=2 {
            let measured = rows
                .iter()
                .filter(|row| row.0 == base && row.2 == flags)
                .max_by_key(|row| row.1)
                .map_or(Answer::VersionTooOld, |row| Answer::Symbol(row.3));
            assert_eq!(symbol_for(base, 12040, flags), measured, "{base} {flags}");
        }
    }
}

#[test]
fn newer_signatures_have_their_symbols() {
    for (base, version, flags, symbol) in [
        ("cuMemcpyBatchAsync", 12080, 0, "cuMemcpyBatchAsync"),
        ("cuMemcpyBatchAsync", 13000, 1, "cuMemcpyBatchAsync_v2"),
        ("cuMemcpyBatchAsync", 13050, 2, "cuMemcpyBatchAsync_v2_ptsz"),
        ("cuCtxCreate", 12040, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
        ("cuGraphAddNode", 13040, 2, "cuGraphAddNode_v3"),
        ("cuMemSetMemPool", 13000, 0, "cuMemSetMemPool"),
        ("cuGetProcAddress", 11080, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ] {
        assert_eq!(symbol_for(base, version, flags), Answer::Symbol(symbol), "{base} {version} {flags}");
    }
    assert_eq!(symbol_for("cuMemcpyBatchAsync", 12070, 0), Answer::VersionTooOld);
}

#[test]
fn unknown_names_are_not_found() {
    for name in ["", "cuNoSuchFunction", "cuMemAlloc_v2", "cuStreamQuery_ptsz", "cu", "nvmlInit", "zz"] {
        assert_eq!(symbol_for(name, 12040, 0), Answer::NotFound, "{name}");
    }
}

#[test]
fn every_answer_is_exported() {
    for base in base_names() {
        for flags in 0..=2 {
            for version in [0, 2000, 3020, 4000, 7000, 11000, 12000, 12040, 12080, 12090, 13000, 13050] {
                if let Answer::Symbol(symbol) = symbol_for(base, version, flags) {
                    assert!(names::is_cuda_export(symbol), "{symbol}");
                }
            }
        }
    }
}

#[test]
fn names_hold_all_exports() {
    assert!(names::CUDA_EXPORTS.is_sorted() && names::NVML_EXPORTS.is_sorted());
    assert!(exported(CUDA_EXPORTS).all(names::is_cuda_export));
    assert!(exported(NVML_EXPORTS).chain(NVML_DECLARED.lines()).all(names::is_nvml_export));
    assert_eq!(
        names::CUDA_DATA_EXPORTS.len(),
        CUDA_EXPORTS.lines().filter(|line| !line.starts_with('T')).count()
    );
}

/// A typed name is exported by driver 550, or is one of the newer declared signatures.
#[test]
fn typed_names_exist() {
    let declared: BTreeSet<&str> =
        TYPEDEFS.iter().flat_map(|file| file.lines()).map(|line| line.split('\t').next().unwrap()).collect();
    for name in cuda::TYPED {
        assert!(names::is_cuda_export(name), "{name}");
        let base = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let base = base.rsplit_once("_v").map_or(base, |(base, _)| base);
        assert!(exported(CUDA_EXPORTS).any(|export| export == *name) || declared.contains(base), "{name}");
    }
    for name in nvml::TYPED {
        assert!(names::is_nvml_export(name), "{name}");
    }
    let once: BTreeSet<_> = cuda::TYPED.iter().collect();
    assert_eq!(once.len(), cuda::TYPED.len(), "a name has one prototype");
}
