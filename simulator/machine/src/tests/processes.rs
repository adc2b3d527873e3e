//! Processes for tests: this test program again, with its part given by the environment.

use crate::Machine;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

const PART: &str = "VCUDA_MACHINE_TEST_PART";
const DIR: &str = "VCUDA_MACHINE_TEST_DIR";
const NUMBER: &str = "VCUDA_MACHINE_TEST_NUMBER";

/// A machine in a directory that is removed when the test ends.
pub(super) struct Place {
    pub(super) dir: PathBuf,
    machine: Option<Machine>,
}

impl Place {
    pub(super) fn new(name: &str, config: &crate::Config) -> Place {
        let mut place = Place::none(name);
        let machine = Machine::create(&place.dir, config).unwrap();
        place.machine = Some(machine);
        place
    }

    /// A directory that does not exist yet.
    pub(super) fn none(name: &str) -> Place {
        let unique = format!("vcuda-machine-{name}-{}-{}", std::process::id(), crate::sys::monotonic_ns());
        let dir = std::env::temp_dir().join(unique);
        Place { dir, machine: None }
    }

    pub(super) fn machine(&self) -> &Machine {
        self.machine.as_ref().unwrap()
    }

    /// Starts a process that plays `part`, see `fn part`.
    pub(super) fn start(&self, part: &str, number: u64) -> Process {
        self.start_by(&[], part, number)
    }

    /// As `start`, through another program.
    pub(super) fn start_by(&self, by: &[&str], part: &str, number: u64) -> Process {
        let this = std::env::current_exe().unwrap();
        let mut words = by.iter().map(std::ffi::OsString::from).collect::<Vec<_>>();
        words.push(this.into_os_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args([
            "--exact",
            "tests::processes::part",
            "--nocapture",
            "--test-threads=1",
        ]);
        command.env(PART, part).env(DIR, &self.dir).env(NUMBER, number.to_string());
        Process(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A process that is killed when the test ends.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn id(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    pub(super) fn signal(&self, signal: i32) {
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.id(), signal) }, 0);
    }

    pub(super) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub(super) fn end(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }

    /// Waits until the process has ended (its status) or was stopped (`None`).
    pub(super) fn end_or_stop(&mut self) -> Option<ExitStatus> {
        let mut status = 0;
        // SAFETY: waits for our own child; `status` is valid for writing.
        let id = unsafe { libc::waitpid(self.id(), &raw mut status, libc::WUNTRACED) };
        assert_eq!(id, self.id());
        (!libc::WIFSTOPPED(status)).then(|| ExitStatus::from_raw(status))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for an action of another process, at most 10 s.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("still not: {what}");
}

/// Plays the part named by the environment. In the test run itself there is none.
#[test]
#[expect(clippy::disallowed_methods, reason = "how a test tells its child what to be")]
fn part() {
    let (Ok(part), Ok(dir), Ok(number)) = (std::env::var(PART), std::env::var(DIR), std::env::var(NUMBER))
    else {
        return;
    };
    let number = number.parse().unwrap();
    if part == "create" {
        super::crash::creation(Path::new(&dir), number);
    }
    let machine = Machine::open(Path::new(&dir)).unwrap();
    match part.as_str() {
        "object" => super::objects::holder(&machine, number),
        "holder" => super::sharing::holder(&machine),
        "worker" => super::sharing::worker(&machine, number),
        "busy" => super::sharing::busy(&machine),
        "closed late" => super::releasing::closed_late(&machine),
        "closed" => super::releasing::closed(&machine),
        "parent" => super::releasing::parent(&machine, Path::new(&dir), number == 1),
        "careless" => super::sharing::careless(&machine, number),
        "gate" => super::sharing::gate(&machine, number),
        "full" => super::files::full(&machine),
        "kill" => super::crash::scenario(&machine, number, libc::SIGKILL),
        "stop" => super::crash::scenario(&machine, number, libc::SIGSTOP),
        other => panic!("no part {other}"),
    }
}
