//! Ordinary programs of many kinds, without shim and with it preloaded: the same output and the same end (I1, I2, I3).
//!
//! Each line of `tests/ordinary/*.txt` is a `bash` command (several lines while a quote is open), after its requirements:
//! programs in the search path, `lib-NAME` (a library of loader or compiler), `root`, `x86_64`. `c NAME FLAGS` compiles
//! `tests/ordinary/src/NAME.c` to `./NAME`; `lib NAME FLAGS` makes a library of it and prints its path; both once for all
//! rows. Each row runs in its own empty folder. In `gpu.txt` `$RUN` puts a program on the simulated GPU, without shim or as
//! a tenant. A row whose output differs between two runs without shim is wrong.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use vcuda_tests::{Fixture, is_root, release_dir, skip, workspace};

/// Far longer than any row takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A row of a list.
struct Row {
    needs: Vec<String>,
    command: String,
}

/// Parses a list. Requirements are before the first ": ".
fn rows(list: &str) -> Vec<Row> {
    let path = workspace().join("tests/ordinary").join(list);
    let mut rows: Vec<Row> = Vec::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let is_open = |row: &&mut Row| row.command.matches('\'').count() % 2 == 1;
        if let Some(row) = rows.last_mut().filter(is_open) {
            row.command += "\n";
            row.command += line;
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let is_need =
            |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte));
        let (needs, command) = match line.split_once(": ") {
            Some((needs, command)) if needs.split(' ').all(is_need) => (needs, command),
            _ => ("", line),
        };
        rows.push(Row {
            needs: needs.split_whitespace().map(str::to_owned).collect(),
            command: command.to_owned(),
        });
    }
    rows
}

/// Reason why a row cannot run here.
fn lacking(needs: &[String]) -> Option<String> {
    let is_there = |need: &String| match need.as_str() {
        "root" => is_root(),
        "x86_64" => cfg!(target_arch = "x86_64"),
        need => match need.strip_prefix("lib-") {
            Some(library) => is_library(library),
            None => {
                std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|path| path.join(need).exists())
            }
        },
    };
    needs.iter().find(|need| !is_there(need)).map(|need| format!("no {need}"))
}

fn is_library(name: &str) -> bool {
    let said = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output();
        output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    said("/sbin/ldconfig", "-p").contains(&format!("/{name}\n"))
        || said("gcc", &format!("-print-file-name={name}")).starts_with('/')
}

/// Closes at `execve` what the test's runner left open: rows count descriptors.
fn without_inherited_descriptors() -> std::io::Result<()> {
    // SAFETY: the call takes no pointers.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Environment of the rows.
struct Place {
    folder: tempfile::TempDir,
    environment: BTreeMap<&'static str, String>,
}

/// Outcome of a row: standard output, standard error, its end.
#[derive(PartialEq, Eq)]
struct Done(String, String, String);

impl Place {
    /// A place with these variables for the rows' commands.
    fn new(environment: BTreeMap<&'static str, String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("built")).unwrap();
        Self { folder, environment }
    }

    /// Runs a row in the folder `name`, the same for each of its runs, as its path is in some outputs.
    fn run(&self, row: &Row, name: &str, environment: &BTreeMap<&str, String>) -> Done {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let [out, err] = ["out", "err"].map(|kind| self.folder.path().join(format!("{name}.{kind}")));
        // The shell that runs the row sets the variables, so that it is like a container's first process.
        let script = format!(". {}/tests/ordinary/prelude.sh\n{}\n", workspace().display(), row.command);
        let mut command = Command::new("bash");
        command
            .args(["-c", &script])
            .current_dir(&folder)
            .env_remove("LD_PRELOAD")
            .env("BUILT", self.folder.path().join("built"))
            .env("SRC", workspace().join("tests/ordinary/src"))
            .env("APPS", workspace().join("tests/apps"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs(&self.environment)
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(std::fs::File::create(&err).unwrap())
            .process_group(0);
        // SAFETY: the closure makes one system call and no allocation.
        unsafe { command.pre_exec(without_inherited_descriptors) };
        let end = end_of(&mut command);
        let _ = std::fs::remove_dir_all(&folder);
        let said = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        // The stand-in for NVML, used only by tenants, reports what it cannot open.
        let errors: Vec<_> = said(&err)
            .lines()
            .filter(|line| !line.starts_with("simulated NVML"))
            .map(without_numbers)
            .collect();
        Done(said(&out), errors.join("\n"), end)
    }

    /// Difference between two kinds of runs, if there is any.
    fn difference(
        &self,
        index: usize,
        row: &Row,
        kinds: &[(&str, BTreeMap<&str, String>); 2],
    ) -> Option<String> {
        let name = format!("row{index}");
        let [bare, other] = kinds;
        for _ in 0..3 {
            let (plain, limited) = (self.run(row, &name, &bare.1), self.run(row, &name, &other.1));
            if plain == limited {
                return None;
            }
            // Two runs without shim agree, so the shim causes the difference.
            if self.run(row, &name, &bare.1) == plain {
                let mut words = format!("{}\n", row.command);
                for (kind, Done(out, err, end)) in [(bare.0, plain), (other.0, limited)] {
                    writeln!(words, "--- {kind}: {end}\n{out}{err}").unwrap();
                }
                return Some(words);
            }
        }
        Some(format!("{}\n--- not the same twice, without the shim", row.command))
    }
}

/// Text of an error with `N` for numbers of three digits or more, as PIDs and addresses vary.
fn without_numbers(words: &str) -> String {
    let mut kept = String::new();
    let mut digits = String::new();
    for letter in words.chars().chain(['\0']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        kept += if digits.len() < 3 { &digits } else { "N" };
        digits.clear();
        kept.push(letter);
    }
    // The character that was added to end the last number.
    kept.pop();
    kept
}

/// End of a command; its process group is killed after the time limit.
fn end_of(command: &mut Command) -> String {
    let mut child = command.spawn().unwrap();
    let end = SystemTime::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return format!("status {:?}, signal {:?}", status.code(), status.signal());
        }
        if SystemTime::now() > end {
            // SAFETY: takes two numbers; the group is the child's own, and the child has not been waited for.
            unsafe { libc::kill(-i32::try_from(child.id()).unwrap(), libc::SIGKILL) };
            child.wait().unwrap();
            return "never".to_owned();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs the lists' rows, several at a time, and fails with all differences.
fn unchanged(lists: &[&str], place: &Place, kinds: &[(&str, BTreeMap<&str, String>); 2]) {
    let rows: Vec<Row> = lists.iter().flat_map(|list| rows(list)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut differences = Vec::new();
        let mut lacked = Vec::new();
        while let Some((index, row)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            rows.get(index).map(|row| (index, row))
        } {
            match lacking(&row.needs) {
                Some(why) => lacked.push(why),
                None => differences.extend(place.difference(index, row, kinds)),
            }
        }
        (differences, lacked)
    };
    let threads = 2 * std::thread::available_parallelism().unwrap().get();
    let (differences, lacked): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).unzip()
    });
    let mut reasons = BTreeMap::<String, usize>::new();
    for why in lacked.concat() {
        *reasons.entry(why).or_default() += 1;
    }
    for (why, count) in reasons {
        skip(&format!("ordinary programs: {count} of {lists:?}: {why}"));
    }
    let failed = std::fs::read_to_string(place.folder.path().join("built/failed"));
    assert!(failed.is_err(), "not compiled: {failed:?}");
    let differences = differences.concat();
    assert!(
        differences.is_empty(),
        "{} of {} differ\n\n{}",
        differences.len(),
        rows.len(),
        differences.join("\n")
    );
}

fn shim() -> PathBuf {
    release_dir().join("libvcuda_shim.so")
}

/// Runs without shim, and with it in a directory of limits.
fn preloaded(lists: &[&str]) {
    let fixture = Fixture::new();
    let tenant = fixture.keep("ordinary", &["--memory", "2GiB", "--cores", "50"]);
    let limits = tenant.directory().display().to_string();
    let place = Place::new(BTreeMap::new());
    let with = |preload: String| BTreeMap::from([("PRELOAD", preload), ("VCUDA_DIR", limits.clone())]);
    unchanged(
        lists,
        &place,
        &[("bare", with(String::new())), ("preloaded", with(shim().display().to_string()))],
    );
}

#[test]
fn interpreters_compilers_and_tools() {
    preloaded(&["programs.txt"]);
}

#[test]
fn loaders_and_libraries_beside_the_shim() {
    preloaded(&["loader.txt", "sanitizers.txt"]);
}

#[test]
fn processes_threads_and_tiny_limits() {
    preloaded(&["processes.txt", "limits.txt"]);
}

/// Runs on the simulated GPU without shim, and as a tenant.
#[test]
fn programs_that_use_a_gpu_in_odd_places() {
    let fixture = Fixture::new();
    let vcuda = release_dir().join("vcuda").display().to_string();
    let machine = BTreeMap::from([
        ("VCUDA_SIM", fixture.machine().display().to_string()),
        ("XDG_RUNTIME_DIR", fixture.runtime().display().to_string()),
        ("VCUDA_MANAGER", fixture.manager_socket().display().to_string()),
    ]);
    let run = |words: &str| BTreeMap::from([("RUN", format!("{vcuda} {words} --"))]);
    unchanged(
        &["gpu.txt"],
        &Place::new(machine),
        &[("bare", run("sim")), ("tenant", run("run --sim --memory 8GiB --cores 80"))],
    );
}
