//! Turns the tables of `data/` into Rust tables: exported names, and the answers of `cuGetProcAddress`.
//!
//! For driver 550 the measured answers are used. A signature that only a newer toolkit declares gets its symbol by the
//! rule of all others: the n-th version of a name ends in `_vn`, a stream variant then in `_ptds` or `_ptsz`.
//!
//! `data/` has facts read off real NVIDIA software, for this and for tests:
//!
//! | file | content |
//! |---|---|
//! | `libcuda-550.163.01-exports.txt` | dynamic symbols of the driver library 550.163.01 (CUDA 12.4): `nm -D` letter and name |
//! | `libnvidia-ml-550.163.01-exports.txt` | the same for NVML |
//! | `libcuda-550.163.01-procaddress.tsv` | answers of that driver's `cuGetProcAddress`: base name, lowest CUDA version, flags (0 default, 1 legacy stream, 2 per-thread stream), exported symbol of the returned address |
//! | `driver-api-typedefs-12.9.tsv`, `-13.5.tsv` | entry points that the toolkit declares: base name, CUDA version of this signature, stream variant (`-`, `ptds`, `ptsz`) |
//! | `nvml-13-declared.txt` | function names that the NVML 13 header declares |
//!
//! Add a new CUDA function to `driver-api-typedefs-13.5.tsv`.
//!
//! Without a GPU that driver behaves so: `cuInit` returns 100 (no device). `cuGetProcAddress` works before `cuInit`, and its pointers equal
//! those of `dlsym`. An unknown name, one with a suffix (`cuMemAlloc_v2`) and the empty name give status 1 (symbol not found), a version
//! that is too old status 2: in the `_v2` form with result 0 and a null pointer, in the first form with result 500. A version above the
//! driver's is accepted. From version 12000 on, asking for `cuGetProcAddress` gives the `_v2` function.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, error::Error, fmt::Write as _, fs};

/// base name -> flags (0 default, 1 legacy, 2 per thread) -> lowest version -> symbol
type Answers = BTreeMap<String, BTreeMap<u8, BTreeMap<u32, String>>>;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=data");
    println!("cargo::rerun-if-changed=build.rs");
    let data = Path::new("data");
    let driver = exports(&data.join("libcuda-550.163.01-exports.txt"))?;
    let newer = newer_signatures(&data.join("driver-api-typedefs-13.5.tsv"), &driver.all)?;
    let mut answers = measured(&data.join("libcuda-550.163.01-procaddress.tsv"))?;
    add_newer(&mut answers, &newer);

    let mut functions = driver.all.clone();
    functions.extend(newer.iter().map(|signature| signature.symbol.clone()));
    let mut nvml = exports(&data.join("libnvidia-ml-550.163.01-exports.txt"))?.all;
    nvml.extend(fs::read_to_string(data.join("nvml-13-declared.txt"))?.lines().map(str::to_owned));

    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(
        out.join("names.rs"),
        table("CUDA_EXPORTS", "Every name that the simulated driver library exports, sorted.", &functions)?
            + &table(
                "CUDA_DATA_EXPORTS",
                "The exports of the simulated driver library that are data, not functions.",
                &driver.data,
            )?
            + &table(
                "NVML_EXPORTS",
                "Every function that the simulated NVML library exports, sorted.",
                &nvml,
            )?,
    )?;
    fs::write(out.join("answers.rs"), answers_table(&answers)?)?;
    Ok(())
}

struct Exports {
    all: BTreeSet<String>,
    data: BTreeSet<String>,
}

/// Reads a file of `nm -D` letters and names.
fn exports(path: &Path) -> Result<Exports, Box<dyn Error>> {
    let mut exports = Exports { all: BTreeSet::new(), data: BTreeSet::new() };
    for line in fs::read_to_string(path)?.lines() {
        let (letter, name) = line.split_once(' ').ok_or("a line is a letter and a name")?;
        exports.all.insert(name.to_owned());
        if letter != "T" {
            exports.data.insert(name.to_owned());
        }
    }
    Ok(exports)
}

struct Signature {
    base: String,
    version: u32,
    per_thread: bool,
    symbol: String,
}

/// The declared signatures whose symbol driver 550 does not export.
fn newer_signatures(path: &Path, driver: &BTreeSet<String>) -> Result<Vec<Signature>, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let mut rows = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split('\t');
        let (Some(base), Some(version), Some(variant)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(format!("{}: `{line}` has not three columns", path.display()).into());
        };
        let version: u32 = version.parse()?;
        rows.push((base, version, variant));
        if variant == "-" {
            versions.entry(base).or_default().insert(version);
        }
    }
    let mut newer = Vec::new();
    for (base, version, variant) in rows {
        let rank = versions.get(base).map_or(0, |all| all.range(..=version).count());
        let mut symbol = base.to_owned();
        if rank > 1 {
            write!(symbol, "_v{rank}")?;
        }
        if variant != "-" {
            write!(symbol, "_{variant}")?;
        }
        if !driver.contains(&symbol) {
            newer.push(Signature { base: base.to_owned(), version, per_thread: variant != "-", symbol });
        }
    }
    Ok(newer)
}

fn measured(path: &Path) -> Result<Answers, Box<dyn Error>> {
    let mut answers = Answers::new();
    for line in fs::read_to_string(path)?.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[base, version, flags, symbol] = fields.as_slice() else {
            return Err(format!("{}: `{line}` has not four columns", path.display()).into());
        };
        let by_version = answers.entry(base.to_owned()).or_default().entry(flags.parse()?).or_default();
        by_version.insert(version.parse()?, symbol.to_owned());
    }
    Ok(answers)
}

/// Adds the newer signatures. One without a stream variant answers every flag; the variant then replaces it for flag 2.
fn add_newer(answers: &mut Answers, newer: &[Signature]) {
    for signature in newer.iter().filter(|signature| !signature.per_thread) {
        for flags in 0..=2 {
            let by_flags = answers.entry(signature.base.clone()).or_default();
            by_flags.entry(flags).or_default().insert(signature.version, signature.symbol.clone());
        }
    }
    for signature in newer.iter().filter(|signature| signature.per_thread) {
        let by_flags = answers.entry(signature.base.clone()).or_default();
        by_flags.entry(2).or_default().insert(signature.version, signature.symbol.clone());
    }
}

fn table(name: &str, doc: &str, names: &BTreeSet<String>) -> Result<String, Box<dyn Error>> {
    let mut text = format!("/// {doc}\npub static {name}: &[&str] = &[\n");
    for item in names {
        writeln!(text, "    {item:?},")?;
    }
    text.push_str("];\n");
    Ok(text)
}

fn answers_table(answers: &Answers) -> Result<String, Box<dyn Error>> {
    let mut text = String::from("static ANSWERS: &[Row] = &[\n");
    for (base, by_flags) in answers {
        for (flags, by_version) in by_flags {
            for (version, symbol) in by_version {
                writeln!(
                    text,
                    "    Row {{ base: {base:?}, flags: {flags}, lowest: {version}, symbol: {symbol:?} }},"
                )?;
            }
        }
    }
    text.push_str("];\n");
    Ok(text)
}
