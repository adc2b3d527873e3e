//! Libraries that use the driver by themselves, opened in all ways: linked against it or opening it, plainly, with
//! `RTLD_DEEPBIND`, in their own namespace. Calls that reach the shim are refused beyond the quota. All others are charged
//! as overhead once measured, and named in the log and by `vcuda doctor`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use vcuda_tests::{Door, Fixture, GIB, Running, app, compile, release_dir, succeeded};

const QUOTA: [&str; 2] = ["--memory", "2GiB"];

/// Builds the libraries: `asks` opens the driver itself; `lazy` and `now` are linked against it, bound lazily and at once.
fn plugins(folder: &Path) -> [PathBuf; 3] {
    std::os::unix::fs::symlink(release_dir().join("libvcuda_simulator_cuda.so"), folder.join("libcuda.so"))
        .unwrap();
    let links = format!("-L{}", folder.display());
    let library = |name: &str, arguments: &[&str]| {
        let path = folder.join(format!("lib{name}.so"));
        compile(&path, &[&["-shared", "-fPIC"], arguments].concat(), "plugin.c");
        path
    };
    let linked = ["-DPLUGIN_LINKED", links.as_str(), "-lcuda"];
    [
        library("asks", &[]),
        library("lazy", &[&linked[..], &["-Wl,-z,lazy"]].concat()),
        library("now", &[&linked[..], &["-Wl,-z,now,-z,relro"]].concat()),
    ]
}

/// Builds the program, which exports its own functions as a plugin host does.
fn host(folder: &Path) -> PathBuf {
    let path = folder.join("host");
    compile(&path, &["-DVIA_DLSYM", "-rdynamic", "-lpthread"], "plugins.c");
    path
}

#[test]
fn a_plugin_is_limited_however_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (host, plugins) = (host(folder.path()), plugins(folder.path()));
    let limit = (2 * GIB).to_string();
    let fixture = Fixture::new();
    for plugin in &plugins {
        for how in ["plain", "deep"] {
            succeeded(&fixture.bare(&host).arg(plugin).args([how, "0"]).output().unwrap());
            let tenant = fixture.tenant(&QUOTA, &host).arg(plugin).args([how, &limit]).output().unwrap();
            succeeded(&tenant);
        }
        // By name only: the loader's search path finds it.
        let mut tenant = fixture.tenant(&QUOTA, &host);
        tenant.arg(plugin.file_name().unwrap()).args(["deep", &limit]);
        succeeded(&tenant.env("LD_LIBRARY_PATH", folder.path()).output().unwrap());
    }
}

#[test]
fn what_a_driver_in_another_namespace_takes_is_charged_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let (host, plugins) = (host(folder.path()), plugins(folder.path()));
    let fixture = Fixture::new();
    let log = fixture.runtime().join("log");
    let [asks, _, now] = &plugins;
    for plugin in [asks, now] {
        succeeded(&fixture.bare(&host).arg(plugin).args(["apart", "0"]).output().unwrap());
        let mut tenant = fixture.tenant(&QUOTA, &host);
        tenant.arg(plugin).args(["apart", &(2 * GIB).to_string()]).env("VCUDA_LOG", &log);
        succeeded(&tenant.output().unwrap());
        let words = std::fs::read_to_string(&log).unwrap();
        assert_eq!(words.matches("a second driver is loaded").count(), 1, "{words}");
        std::fs::remove_file(&log).unwrap();
    }
}

/// A driver in its own namespace bypasses the shim: `vcuda doctor` names it while it is loaded.
#[test]
fn doctor_tells_of_a_driver_in_another_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let (host, plugins) = (host(folder.path()), plugins(folder.path()));
    let fixture = Fixture::new();
    let seen = || {
        let findings = fixture.findings();
        let words = findings.iter().map(|finding| finding["seen"].as_str().unwrap().to_owned());
        words.filter(|words| words.contains("past the shim")).collect::<Vec<_>>()
    };
    for (how, expected) in [("deep", 0), ("apart", 1)] {
        let mut tenant = fixture.tenant(&QUOTA, &host);
        tenant.arg(&plugins[2]).args([how, &(2 * GIB).to_string(), "wait"]);
        let mut tenant = Running::ready(&mut tenant, "took");
        let seen = seen();
        assert_eq!(seen.len(), expected, "{how}: {seen:?}");
        let pid = format!("process {} gets past the shim: a second driver", tenant.0.id());
        assert!(seen.iter().all(|words| words.contains(&pid)), "{seen:?}");
        drop(tenant.0.stdin.take());
        tenant.wait_for("passed plugins");
    }
}

/// No bypass is recorded if no call was missed.
#[test]
fn a_plugin_that_was_caught_is_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (host, plugins) = (host(folder.path()), plugins(folder.path()));
    let fixture = Fixture::new();
    let log = fixture.runtime().join("log");
    let mut tenant = fixture.tenant(&QUOTA, &host);
    tenant.arg(&plugins[1]).args(["deep", &(2 * GIB).to_string()]).env("VCUDA_LOG", &log);
    succeeded(&tenant.output().unwrap());
    assert!(!std::fs::read_to_string(&log).unwrap().contains("past the shim"));
}

/// An address of no known function, and the driver's private tables: they pass unchanged, each is logged once, and `vcuda
/// doctor` names the address.
#[test]
fn unknown_functions_that_the_driver_gives_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so.1");
    compile(&library, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"], "strange.c");
    let code = "import ctypes\n\
        lib = ctypes.CDLL('libcuda.so.1')\n\
        address, found = ctypes.c_void_p(), ctypes.c_int()\n\
        def get(name):\n\
        \x20   assert lib.cuGetProcAddress_v2(name, ctypes.byref(address), 12000, ctypes.c_uint64(0), ctypes.byref(found)) == 0\n\
        \x20   return address.value\n\
        hidden = get(b'cuMemAlloc')\n\
        assert get(b'cuMemAlloc') == hidden and get(b'cuMemFree') == hidden\n\
        get(b'cuDeviceGetName')\n\
        for id in [b'a' * 16, b'b' * 16, b'a' * 16]:\n\
        \x20   assert lib.cuGetExportTable(ctypes.byref(address), id) == 0 and address.value\n\
        print('asked', flush=True)\n\
        input()\n";
    let fixture = Fixture::new();
    let log = fixture.runtime().join("log");
    let mut tenant = fixture.tenant(&["--memory", "2GiB", "--name", "strange"], "env");
    tenant
        .arg(format!("LD_LIBRARY_PATH={}", folder.path().display()))
        .args(["python3", "-c", code])
        .env("VCUDA_LOG", &log)
        .stdin(Stdio::piped());
    let mut tenant = Running::start(&mut tenant);
    tenant.wait_for("asked");
    let words = std::fs::read_to_string(&log).unwrap();
    assert_eq!(words.matches("an unknown address").count(), 1, "{words}");
    assert_eq!(words.matches("cuGetExportTable").count(), 2, "{words}");
    let findings = fixture.findings();
    let told = |finding: &&serde_json::Value| {
        finding["link"] == "tenant strange"
            && finding["seen"]
                .as_str()
                .unwrap()
                .contains("gets past the shim: cuGetProcAddress gave an unknown address")
    };
    assert_eq!(findings.iter().filter(told).count(), 1, "{findings:?}");
}

/// A process into which the loader apparently could not load the shim: it runs without, with no descriptor left.
#[test]
fn doctor_names_the_limit_that_keeps_the_loader_from_the_library() {
    let fixture = Fixture::new();
    let tenant = fixture.keep("short", &["--memory", "1GiB"]);
    let seen = || {
        let doctor = fixture.output(["doctor", "--sim", "--json"]);
        let findings: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let findings = findings["findings"].as_array().unwrap().iter();
        let broken = findings.filter(|one| one["health"] == "broken" && one["link"] == "tenant short");
        let seen: Vec<_> = broken.map(|one| one["seen"].as_str().unwrap().to_owned()).collect();
        (seen, doctor.status.success())
    };
    assert_eq!(seen(), (vec![], true));
    let mut command = tenant.command(app("hold", Door::Dlsym));
    // Without the driver's front, too, which comes first.
    let paths = tenant.variable("LD_LIBRARY_PATH").split_once(':').unwrap().1.to_owned();
    command.env_remove("LD_PRELOAD").env("LD_LIBRARY_PATH", paths);
    let mut escaped = Running::start(&mut command);
    escaped.wait_for("holding");
    let pid = escaped.0.id();
    let without = format!("process {pid} runs without the shim");
    assert_eq!(seen(), (vec![format!("{without}: it is not limited")], false));
    let limit = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
    // SAFETY: the limit is valid for reading; the old one is not asked for.
    let set = unsafe {
        libc::prlimit(pid.try_into().unwrap(), libc::RLIMIT_NOFILE, &raw const limit, core::ptr::null_mut())
    };
    assert_eq!(set, 0);
    let why = "(it has a limit of 3 open files, which can keep the loader from it)";
    assert_eq!(seen(), (vec![format!("{without} {why}: it is not limited")], false));
}
