//! Programs without CUDA, which the shim must not affect (I2, I3). Output and status are those without the shim, and it
//! opens no file, makes no thread and prints nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use vcuda_tests::{Fixture, is_root, release_dir, skip, succeeded, text, workspace};

fn shim() -> PathBuf {
    release_dir().join("libvcuda_shim.so")
}

/// A command: program and arguments.
type Line<'a> = &'a [&'a str];

fn command(line: Line<'_>) -> Command {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn same(line: Line<'_>, plain: &Output, limited: &Output) {
    assert_eq!(
        (&plain.stdout, &plain.stderr, plain.status),
        (&limited.stdout, &limited.stderr, limited.status),
        "{line:?}\n{}\n{}",
        text(plain),
        text(limited)
    );
}

/// Compares runs without shim, with it preloaded, and as a tenant: the same output and end. If system calls can be traced,
/// the same files, threads and processes too.
fn unchanged(line: Line<'_>) {
    let fixture = Fixture::new();
    let plain = command(line).output().unwrap();
    let mut preloaded = command(line);
    preloaded.env("LD_PRELOAD", shim()).env("VCUDA_DIR", fixture.runtime());
    same(line, &plain, &preloaded.output().unwrap());
    let mut tenant = fixture.tenant(&["--memory", "1GiB", "--cores", "10"], line[0]);
    tenant.args(&line[1..]).env("PYTHONDONTWRITEBYTECODE", "1");
    same(line, &plain, &tenant.output().unwrap());
    let (Some(plain), Some(preloaded)) = (traced(line, None), traced(line, Some(&shim()))) else {
        skip("transparent: no strace that works here; scripts/test.sh installs it where apt-get can");
        return;
    };
    assert!(plain.values().sum::<usize>() > 0);
    assert_eq!(plain, preloaded, "{line:?}");
}

/// Number of times that each file was opened, and that each kind of thread or process was made, without the loading of the
/// shim.
fn traced(line: Line<'_>, preload: Option<&Path>) -> Option<BTreeMap<String, usize>> {
    const CALLS: &str = "trace=execve,open,openat,openat2,creat,clone,clone3,fork,vfork,socket,socketpair,pipe,pipe2,\
                         eventfd2,memfd_create,timerfd_create,signalfd4,epoll_create1,inotify_init1,userfaultfd,\
                         sigaltstack,setitimer,prctl";
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "signal=none", "-e", CALLS, "-o"]).arg(log.path());
    if let Some(library) = preload {
        // For the program only, not for strace.
        strace.arg("-E").arg(format!("LD_PRELOAD={}", library.display()));
    }
    let output = strace.args(line).env("PYTHONDONTWRITEBYTECODE", "1").output().ok()?;
    let calls = std::fs::read_to_string(log.path()).unwrap();
    if !calls.contains("execve(") {
        assert!(!output.status.success(), "strace said nothing");
        return None;
    }
    let mut counts = BTreeMap::new();
    for call in calls.lines() {
        // Lines are "PID call(arguments) = result". The second half of an interrupted call, "PID <... call resumed>", is
        // ignored, unless the call was repeated: a fork restarts when a child's end arrives in it.
        let call = call.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        if call.contains("ERESTART") {
            if let Some(name) = call.strip_prefix("<... ").and_then(|rest| rest.split(' ').next()) {
                *counts.entry(format!("{name} ")).or_insert(1) -= 1;
            }
            continue;
        }
        let Some((name, arguments)) = call.split_once('(') else {
            continue;
        };
        if name.starts_with('<') || arguments.contains("libvcuda_shim.so") && name != "execve" {
            continue;
        }
        let path = arguments.split('"').nth(1).unwrap_or_default();
        // The search of PATH does not depend on the shim; an execve line contains the environment's size.
        *counts.entry(format!("{name} {path}")).or_default() += 1;
    }
    Some(counts)
}

/// Compiles a program of `tests/apps`, if this machine's compiler can.
fn compiled(folder: &Path, source: &str, arguments: &[&str]) -> Option<String> {
    let path = folder.join(format!("{source}-{}", arguments.len()));
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-O1", "-o"]).arg(&path).args(arguments).arg(workspace().join("tests/apps").join(source));
    let output = cc.output().unwrap();
    if !output.status.success() {
        skip(&format!("transparent: {source} with {arguments:?} does not compile here"));
        return None;
    }
    Some(path.display().to_string())
}

#[test]
fn shells_and_their_tools() {
    let script =
        "echo out; echo err >&2; echo a b | tr a-z A-Z; (exit 7); echo $?; trap 'echo bye' EXIT; exit 3";
    for shell in ["bash", "dash"] {
        unchanged(&[shell, "-c", script]);
    }
    unchanged(&["ls", "-la", "/etc"]);
    unchanged(&["sort", "--parallel=2", "-r", "/etc/passwd"]);
    unchanged(&["ls", "/no/such/place"]);
    unchanged(&["find", "/etc", "-maxdepth", "1", "-newer", "/etc/passwd"]);
}

#[test]
fn programs_with_threads() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(program) = compiled(folder.path(), "omp.c", &["-fopenmp"]) {
        unchanged(&[&program]);
    }
    // Counted first, as a joined thread stays in /proc for a moment.
    let code = "import threading, ctypes, subprocess, json, os\n\
                print(len(os.listdir('/proc/self/task')))\n\
                t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n\
                print(ctypes.CDLL(None).getpid() > 0, subprocess.run(['true']).returncode)\n";
    unchanged(&["python3", "-c", code]);
}

/// Numerics without a GPU: the library looks for none.
#[test]
fn numpy_without_a_gpu() {
    let python = workspace().join("target/clients/bin/python");
    let found = Command::new(&python).args(["-c", "import numpy"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        skip("numpy: not installed in target/clients (scripts/fetch-clients.sh does where PyPI answers)");
        return;
    }
    let code = "import numpy as n\n\
                a = n.arange(250000, dtype=n.float64).reshape(500, 500) % 17\n\
                print((a @ a.T).sum(), n.linalg.norm(a), n.fft.fft(a[0]).real.max())\n";
    unchanged(&[python.to_str().unwrap(), "-c", code]);
}

/// A framework looks for a GPU at its import, finds no driver, and reports it in the loader's words. The loader also names
/// the last library searched, which may be the shim.
#[test]
fn a_framework_that_looks_for_a_gpu_in_vain() {
    let code = "import ctypes, ctypes.util\n\
                def said(ask):\n\
                \x20   try: return repr(ask())[:0] or 'there'\n\
                \x20   except (OSError, AttributeError) as why: return str(why).split(': ', 1)[1]\n\
                for name in ['libcuda.so.1', 'libcudart.so', 'libnvidia-ml.so.1', '/no/such/libcuda.so.1']:\n\
                \x20   print(name, said(lambda: ctypes.CDLL(name)))\n\
                own = ctypes.CDLL(None)\n\
                for name in ['cuInit', 'cuMemAlloc_v2', 'cudnnCreate', 'cublasCreate_v2', 'nvmlInit_v2', 'nvmlDeviceGetMemoryInfo']:\n\
                \x20   print(name, said(lambda: getattr(own, name)))\n\
                print(ctypes.util.find_library('cuda'))\n";
    let fixture = Fixture::new();
    let line = ["python3", "-c", code];
    let plain = command(&line).output().unwrap();
    let words = succeeded(&plain);
    if words.contains("libcuda.so.1 there") {
        skip("transparent: this machine has a driver");
        return;
    }
    let mut preloaded = command(&line);
    preloaded.env("LD_PRELOAD", shim()).env("VCUDA_DIR", fixture.runtime());
    same(&line, &plain, &preloaded.output().unwrap());
}

#[test]
fn programs_that_no_library_can_be_put_before() {
    let folder = tempfile::tempdir().unwrap();
    let alone = ["-nostdlib", "-static"];
    for arguments in [&alone[..], &["-nostdlib", "-static", "-m32"]] {
        if let Some(program) = compiled(folder.path(), "static.c", arguments) {
            unchanged(&[&program]);
        }
    }
}

/// In secure-execution mode (ld.so(8)) the loader ignores `LD_PRELOAD`: the output is unchanged.
#[test]
fn a_set_user_id_program() {
    // To root nothing is set-user-ID, so it runs as a user without a name.
    let line = ["su", "--version"];
    let user = ["setpriv", "--reuid=123456", "--regid=123456", "--clear-groups"];
    let line = if is_root() { [&user[..], &line].concat() } else { line.to_vec() };
    let fixture = Fixture::new();
    let plain = command(&line).output().unwrap();
    let mut limited = fixture.tenant(&["--memory", "1GiB"], line[0]);
    succeeded(&plain);
    same(&line, &plain, &limited.args(&line[1..]).output().unwrap());
}

#[test]
fn a_program_without_cuda_has_no_more_threads_nor_descriptors() {
    let fixture = Fixture::new();
    let script = "ls /proc/self/fd | wc -l; grep Threads: /proc/self/status; exit 3";
    let plain = Command::new("bash").args(["-c", script]).output().unwrap();
    let mut preloaded = Command::new("bash");
    preloaded.args(["-c", script]).env("LD_PRELOAD", shim());
    let preloaded = preloaded.env("VCUDA_DIR", fixture.runtime()).output().unwrap();
    same(&["bash"], &plain, &preloaded);
    // `vcuda run` passes its command one open descriptor, which keeps the tenant's directory while any process lives.
    let script =
        "ls -l /proc/self/fd | grep -v containers/quiet | wc -l; grep Threads: /proc/self/status; exit 3";
    let plain = Command::new("bash").args(["-c", script]).output().unwrap();
    let quota = ["--memory", "1GiB", "--cores", "10", "--name", "quiet"];
    let tenant = fixture.tenant(&quota, "bash").args(["-c", script]).output().unwrap();
    same(&["bash"], &plain, &tenant);
}

#[test]
fn it_is_silent_where_its_environment_is_nonsense() {
    for (name, value) in
        [("VCUDA_DIR", "/no/such/place"), ("VCUDA_MEMORY", "rubbish"), ("VCUDA_LOG", "/proc/no/log")]
    {
        let out = Command::new("true").env("LD_PRELOAD", shim()).env(name, value).output().unwrap();
        assert!(out.status.success() && out.stdout.is_empty() && out.stderr.is_empty());
    }
}

#[test]
fn the_built_library_is_as_the_design_says() {
    let root = vcuda_tests::workspace();
    succeeded(&Command::new(root.join("scripts/check-shim.sh")).arg(release_dir()).output().unwrap());
}
