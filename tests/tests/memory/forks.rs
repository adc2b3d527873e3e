//! Children of a process that uses the GPU: by fork, vfork, posix_spawn, as daemons, by Python. Whenever they begin, they
//! do not hang, and are neither charged nor credited for their parent (I3).

use std::io::Write as _;
use std::time::Duration;

use vcuda_tests::table::row_names;
use vcuda_tests::{Door, Fixture, MIB, Running, app, eventually, is_root, succeeded};

const QUOTA: [&str; 6] = ["--memory", "4GiB", "--cores", "80", "--name", "forking"];

#[test]
fn children_forked_while_threads_are_inside_hooks() {
    let forks = if std::env::var_os("VCUDA_SOAK").is_some() { "20000" } else { "320" };
    let fixture = Fixture::new();
    let program = app("forks", Door::Dlsym);
    succeeded(&fixture.bare(&program).arg("100").output().unwrap());
    let mut command = fixture.tenant(&QUOTA, &program);
    let mut parent = Running::ready(command.arg(forks), "children done");
    // A child that called every hook still lives: only its parent is in the tenant.
    let pid = u64::from(parent.0.id());
    let mut tenant = fixture.smi()["gpus"][0]["tenants"][0].clone();
    // Programs started by a daemon may take a moment to end.
    eventually("the parent is alone", Duration::from_secs(10), || {
        tenant = fixture.smi()["gpus"][0]["tenants"][0].clone();
        tenant["processes"].as_array().unwrap().len() == 1
    });
    assert_eq!(tenant["processes"][0]["pid"], pid, "{tenant}");
    let charged = tenant["memory_used_bytes"].as_u64().unwrap();
    assert_eq!(charged, tenant["processes"][0]["memory_used_bytes"]);
    let taken = fixture.used_bytes();
    assert!(charged.abs_diff(taken) <= 64 * MIB, "the container counts {charged}, the GPU {taken}");
    writeln!(parent.0.stdin.take().unwrap()).unwrap();
    parent.wait_for("passed forks");
    assert!(parent.finish().success());
    eventually("all memory is back", Duration::from_secs(1), || fixture.used_bytes() == 0);
}

/// Every row of the hook table, called by threads and in children; new rows are included automatically.
#[test]
fn children_forked_while_threads_are_inside_any_hook() {
    let fixture = Fixture::new();
    let program = env!("CARGO_BIN_EXE_nonsense");
    let rows = row_names();
    for mut command in [fixture.bare(program), fixture.tenant(&QUOTA, program)] {
        let said = succeeded(&command.arg("forks").args(&rows).output().unwrap());
        assert!(said.ends_with("functions, 0 children did not end well\n"), "{said}");
    }
    assert_eq!(fixture.used_bytes(), 0);
}

/// The shim holds no descriptor, so none can be closed under it.
#[test]
fn a_process_that_closes_every_descriptor_goes_on() {
    let fixture = Fixture::new();
    let program = app("closes", Door::Dlsym);
    for mut command in [fixture.bare(&program), fixture.tenant(&QUOTA, &program)] {
        succeeded(&command.arg(fixture.machine()).output().unwrap());
    }
}

/// A daemon closes its inherited descriptors and its starter ends. When it later uses the GPU, it has the quota of its
/// start, although commands that remove dead tenants ran between.
#[test]
fn a_daemon_finds_its_quota_later() {
    let fixture = Fixture::new();
    let hold = app("hold", Door::Dlsym);
    let script = format!(
        "(trap '' HUP; exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; setsid sh -c 'echo $$ >{0}.pid; while [ ! -e {0}.go ]; do sleep 0.05; done; \
         exec {1} 1073741824 8589934592 >{0}.out' </dev/null >/dev/null 2>&1 &)",
        fixture.runtime().join("daemon").display(),
        hold.display()
    );
    succeeded(&fixture.tenant(&QUOTA, "sh").args(["-c", &script]).output().unwrap());
    let file = |name: &str| fixture.runtime().join(format!("daemon.{name}"));
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap_or_default();
    eventually("the daemon", Duration::from_secs(5), || read("pid").ends_with('\n'));
    // Removes dead tenants.
    assert_eq!(fixture.smi()["gpus"][0]["tenants"][0]["name"], "forking");
    std::fs::write(file("go"), "").unwrap();
    eventually("its memory", Duration::from_secs(10), || read("out").contains("holding"));
    let pid: i32 = read("pid").trim().parse().unwrap();
    // SAFETY: ends the daemon that this test started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    assert_eq!(read("out"), "holding 1073741824 denied 1\n");
    eventually("the tenant is gone", Duration::from_secs(5), || {
        fixture.smi()["gpus"][0]["tenants"].as_array().unwrap().is_empty()
    });
}

/// `vcuda run` by root for a command of another user, who cannot open the directory's path.
#[test]
fn a_command_of_another_user_has_the_quota() {
    use std::os::unix::fs::PermissionsExt as _;
    if !is_root() {
        vcuda_tests::skip("another user's command: needs root");
        return;
    }
    let fixture = Fixture::new();
    succeeded(&fixture.bare("true").output().unwrap());
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    // The simulated GPU and the links to its driver are open to all, as a real one's are; the tenant's directory is not.
    let run = fixture.runtime();
    std::fs::create_dir_all(run.join("vcuda")).unwrap();
    for folder in [run.parent().unwrap(), &run, &run.join("vcuda")] {
        open(folder);
    }
    let mut chmod = std::process::Command::new("chmod");
    succeeded(&chmod.args(["-R", "a+rwX"]).arg(fixture.machine()).output().unwrap());
    let quota = app("quota", Door::Dlsym);
    let user = ["--reuid=123456", "--regid=123456", "--clear-groups", "--bounding-set=-all"];
    let mut tenant = fixture.tenant(&["--memory", "2GiB", "--name", "lent"], "setpriv");
    tenant.args(user).arg(&quota).arg((2u64 << 30).to_string());
    let output = tenant.output().unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("cannot be preloaded") {
        vcuda_tests::skip(
            "another user's command: this checkout lies where other users cannot read the shim",
        );
        return;
    }
    assert_eq!(succeeded(&output), "passed quota\n");
    // No other user can enter the directory itself.
    let mode = std::fs::metadata(run.join("vcuda/containers")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o700);
}

/// The clients of `tests/tests/programs/clients.rs`, with Python's ways of making children.
#[test]
fn pythons_multiprocessing() {
    let python = vcuda_tests::workspace().join("target/clients/bin/python");
    let found = std::process::Command::new(&python).args(["-c", "import cuda.bindings.driver"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        vcuda_tests::skip(
            "multiprocessing: no cuda-bindings in target/clients (scripts/fetch-clients.sh does where PyPI answers)",
        );
        return;
    }
    let script = vcuda_tests::workspace().join("tests/clients/forking.py");
    let fixture = Fixture::new();
    for way in ["fork", "spawn", "late"] {
        for mut command in [fixture.bare(&python), fixture.tenant(&QUOTA, &python)] {
            command.arg(&script).arg(way).env("PYTHONDONTWRITEBYTECODE", "1");
            assert_eq!(succeeded(&command.output().unwrap()), format!("passed {way}\n"));
        }
    }
}
