//! Look-ups at unusual times and by unusual callers: while the loader works, by functions that precede the C library's, by
//! a driver that looks itself up (I4).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use vcuda_tests::{Door, Fixture, GIB, app, compile, release_dir, succeeded, text};

const QUOTA: [&str; 4] = ["--memory", "2GiB", "--cores", "50"];

fn shim() -> PathBuf {
    release_dir().join("libvcuda_shim.so")
}

/// Compiles a library from a list of names, passed by `-DLIST`.
fn compile_list(folder: &Path, source: &str, names: &BTreeSet<String>, arguments: &[&str]) -> PathBuf {
    let list = folder.join(format!("{source}.list"));
    let mut lines = String::new();
    for name in names {
        writeln!(lines, "X({name})").unwrap();
    }
    std::fs::write(&list, lines).unwrap();
    let library = folder.join(format!("lib{source}.so"));
    let definition = format!("-DLIST=\"{}\"", list.display());
    compile(
        &library,
        &[&["-shared", "-fPIC", &definition], arguments].concat(),
        &format!("interposed/{source}"),
    );
    library
}

/// Symbols of a library's table that satisfy `holds`, without versions.
fn symbols(library: &Path, of: &str, holds: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let table = succeeded(&Command::new("nm").args(["-D", of]).arg(library).output().unwrap());
    let names = table.lines().filter_map(|line| line.split_whitespace().last());
    names.map(|name| name.split('@').next().unwrap().to_owned()).filter(|name| holds(name)).collect()
}

/// Checks that a command without shim, and with it before and behind the other library, has the same output and end.
fn unchanged(line: &[&str], folder: &Path, other: Option<&Path>) {
    let run = |preload: &[&Path]| {
        let preload: Vec<_> = preload.iter().map(|path| path.to_str().unwrap()).collect();
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).current_dir(folder);
        if !preload.is_empty() {
            command.env("LD_PRELOAD", preload.join(":"));
        }
        command.output().unwrap()
    };
    let (shim, other) = (shim(), other.as_slice());
    let bare = run(other);
    for preload in [[other, &[&shim]].concat(), [&[shim.as_path()], other].concat()] {
        let preloaded = run(&preload);
        let same = (&bare.stdout, &bare.stderr, bare.status)
            == (&preloaded.stdout, &preloaded.stderr, preloaded.status);
        assert!(same, "{preload:?} {line:?}\n{}\n{}", text(&bare), text(&preloaded));
    }
}

/// Output of a tenant that checks its quota, with the library loaded before the shim and behind it.
fn quota_in_either_order(library: &Path) -> [String; 2] {
    let fixture = Fixture::new();
    ["$0:$LD_PRELOAD", "$LD_PRELOAD:$0"].map(|preload| {
        let script = format!("export LD_PRELOAD={preload}; exec \"$@\"");
        let mut tenant = fixture.tenant(&QUOTA, "sh");
        tenant.args(["-c", &script]).arg(library).arg(app("quota", Door::Dlsym)).arg((2 * GIB).to_string());
        succeeded(&tenant.output().unwrap())
    })
}

/// The loader calls it before it has relocated the shim.
#[test]
fn an_indirect_function_that_asks_for_symbols() {
    let folder = tempfile::tempdir().unwrap();
    for binding in ["-Wl,-z,lazy", "-Wl,-z,now"] {
        compile(&folder.path().join("libearly.so"), &["-shared", "-fPIC", binding], "interposed/early.c");
        let links = format!("-L{}", folder.path().display());
        let path = format!("-Wl,-rpath,{}", folder.path().display());
        compile(
            &folder.path().join("early"),
            &[&links, "-learly", &path, binding],
            "interposed/early_main.c",
        );
        let said = succeeded(&Command::new(folder.path().join("early")).output().unwrap());
        assert_eq!(said, "resolved 1\n");
        unchanged(&["./early"], folder.path(), None);
        unchanged(&["/lib64/ld-linux-x86-64.so.2", "./early"], folder.path(), None);
    }
}

/// Every function that the shim imports is in another library, which finds the real one by `dlsym`; `dlsym` itself calls
/// none.
#[test]
fn a_library_before_every_function_that_the_shim_calls() {
    // Functions of loader and compiler, not called by other code.
    const OTHERS: [&str; 2] = ["__tls_get_addr", "__cxa_finalize"];
    let folder = tempfile::tempdir().unwrap();
    let names = symbols(&shim(), "--undefined-only", |name| {
        !name.starts_with("_ITM")
            && !name.starts_with("__gmon")
            && name != "_r_debug"
            && !OTHERS.contains(&name)
    });
    assert!(names.len() > 50, "{names:?}");
    let library = compile_list(folder.path(), "all.c", &names, &[]);
    let ask = "import ctypes; print(hasattr(ctypes.CDLL(None), 'cuMemAlloc_v2'), hasattr(ctypes.CDLL(None), 'nvmlInit'))";
    for line in [&["ls", "/"][..], &["python3", "-c", ask], &["sh", "-c", "(exit 3); echo $?"]] {
        unchanged(line, folder.path(), Some(&library));
    }
    // With a driver, the quota is the same.
    quota_in_either_order(&library);
}

/// WSL2's driver: its functions find themselves in a second library by `dlsym`, and its `cuGetProcAddress` returns
/// addresses there.
#[test]
fn a_driver_that_looks_itself_up() {
    let folder = tempfile::tempdir().unwrap();
    let second = release_dir().join("libvcuda_simulator_cuda.so");
    let names = symbols(&second, "--defined-only", |name| name.starts_with("cu"));
    let driver = compile_list(folder.path(), "behind.c", &names, &["-Wl,-soname,libcuda.so.1"]);
    std::fs::rename(driver, folder.path().join("libcuda.so.1")).unwrap();
    let fixture = Fixture::new();
    let limit = (2 * GIB).to_string();
    let script = "export LD_LIBRARY_PATH=$0:$LD_LIBRARY_PATH; exec \"$@\"";
    for door in Door::ALL {
        let mut tenant = fixture.tenant(&QUOTA, "sh");
        tenant.args(["-c", script]).arg(folder.path()).arg(app("quota", door)).arg(&limit);
        succeeded(&tenant.env("VCUDA_BEHIND", &second).output().unwrap());
    }
}

/// Functions that came after driver 470 (CUDA 11.4), by the beginnings of their names (`cuda.h` of each release).
const AFTER_470: [&str; 7] = [
    "cuGreenCtx",
    "cuMulticast",
    "cuLibrary",
    "cuKernel",
    "cuLaunchKernelEx",
    "cuCheckpoint",
    "cuCtxCreate_v4",
];

/// An old driver: look-ups tell the truth of what it lacks, but for a weak symbol (docs/limits.md).
#[test]
fn a_driver_that_lacks_newer_functions() {
    let folder = tempfile::tempdir().unwrap();
    let second = release_dir().join("libvcuda_simulator_cuda.so");
    let is_old = |name: &str| name.starts_with("cu") && !AFTER_470.iter().any(|new| name.starts_with(new));
    let names = symbols(&second, "--defined-only", is_old);
    let driver = compile_list(folder.path(), "behind.c", &names, &["-Wl,-soname,libcuda.so.1"]);
    std::fs::rename(driver, folder.path().join("libcuda.so.1")).unwrap();
    let fixture = Fixture::new();
    let [bare, tenant] = ["unset LD_PRELOAD;", ""].map(|preload| {
        let script = format!("export LD_LIBRARY_PATH=$0:$LD_LIBRARY_PATH; {preload} exec \"$@\"");
        let mut tenant = fixture.tenant(&QUOTA, "sh");
        tenant.args(["-c", &script]).arg(folder.path()).arg(app("weak", Door::Link));
        succeeded(&tenant.env("VCUDA_BEHIND", &second).output().unwrap())
    });
    assert_eq!((bare.trim(), tenant.trim()), ("0 0 0", "1 0 0"));
}

/// A profiler's library that answers for the driver with itself: the application calls it, and it the shim, whichever of
/// the two is loaded first.
#[test]
fn a_profiler_that_stands_in_for_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let driver = release_dir().join("libvcuda_simulator_cuda.so");
    let names = symbols(&driver, "--defined-only", |name| name.starts_with("cu"));
    let library = compile_list(folder.path(), "injected.c", &names, &[]);
    for said in quota_in_either_order(&library) {
        assert!(said.contains("through the injected library"), "{said}");
    }
}

/// A user's tracer, preloaded by the user's own `LD_PRELOAD`: it sees every call, and the quota holds.
#[test]
fn a_users_own_preloaded_library_sees_the_calls_and_the_quota_holds() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcounts.so");
    compile(&library, &["-shared", "-fPIC"], "interposed/counts.c");
    let fixture = Fixture::new();
    let said = |preload: Option<&Path>| {
        let mut tenant = fixture.tenant(&QUOTA, app("counted", Door::Link));
        tenant.envs(preload.map(|library| ("LD_PRELOAD", library)));
        succeeded(&tenant.output().unwrap())
    };
    let alone = said(None);
    let blocks: usize = alone.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((24..32).contains(&blocks) && alone.contains("refusal 2 "), "{alone}");
    // The refused one is an allocation, too.
    let seen = format!("seen {} allocations 30 launches\n", blocks + 1);
    assert_eq!(said(Some(&library)), format!("{alone}{seen}"));
}
