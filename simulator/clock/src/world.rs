//! Owner of an experiment. It is not in virtual time itself: it runs the world up to a time, and examines it while paused.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::kernel;
use crate::table::{Costs, Table, state, turn};
use crate::{ENV_TABLE, ENV_TABLE_FROZEN};

/// Interval of the check that the thread with the turn is alive (real ms).
const LOOK_MS: u32 = 100;
/// Number of checks without progress after which the world counts as stuck.
const QUIET_LOOKS: u32 = 100;

/// An experiment in virtual time.
#[derive(Debug)]
pub struct World {
    table: &'static Table,
    path: PathBuf,
    library: PathBuf,
}

/// Failure: a thread has the turn and does not give it up.
#[derive(Debug)]
pub struct Stuck {
    /// Virtual time (ns).
    pub now_ns: u64,
    /// The process with the turn, or 0 if all threads wait outside.
    pub pid: u32,
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "virtual time stands still at {} ns: process {} has the turn and keeps it",
            self.now_ns, self.pid
        )
    }
}

impl std::error::Error for Stuck {}

impl World {
    /// Makes a paused world in the file `path` with the present time; `library` is `libvcuda_virtual_clock.so`. Fails
    /// if the file cannot be made or mapped.
    pub fn create(path: &Path, library: &Path, costs: Costs) -> io::Result<World> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(size_of::<Table>() as u64)?;
        let table = Table::map(&file)?;
        let monotonic_ns = read_clock(libc::CLOCK_MONOTONIC);
        let since_1970_ns = read_clock(libc::CLOCK_REALTIME).saturating_sub(monotonic_ns);
        table.begin(costs, monotonic_ns, since_1970_ns);
        Ok(World { table, path: path.to_owned(), library: library.to_owned() })
    }

    pub(crate) fn table(&self) -> &'static Table {
        self.table
    }

    /// Virtual time, as `CLOCK_MONOTONIC` (ns).
    pub fn now_ns(&self) -> u64 {
        self.table.now_ns()
    }

    /// Makes the command take part: its first thread waits for its turn before `main`. Programs that it starts or becomes
    /// take part too, if they keep the environment.
    pub fn take_part(&self, command: &mut Command) {
        self.preload(command).env(ENV_TABLE, &self.path);
    }

    /// Makes the command read virtual time without taking part, for programs that examine a paused world, or work beside one. Its
    /// waits last as long in real time, and its wake-ups reach those that take part.
    pub fn look_on(&self, command: &mut Command) {
        self.preload(command).env(ENV_TABLE_FROZEN, &self.path);
    }

    fn preload<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_PRELOAD", OsString::from(&self.library))
    }

    /// Waits in real time until process `pid` takes part. Returns whether it did within `timeout`.
    pub fn await_part(&self, pid: u32, timeout: Duration) -> bool {
        let step = Duration::from_millis(1);
        let mut left = timeout;
        while !self.has(pid) {
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(step);
            left = left.saturating_sub(step);
        }
        true
    }

    /// Whether process `pid` takes part. It no longer does once it has begun to exit, which takes real time only.
    pub fn has(&self, pid: u32) -> bool {
        self.table.has(pid)
    }

    /// Removes process `pid`, which has ended.
    pub fn end_process(&self, pid: u32) {
        self.table.end_process(pid);
    }

    /// Runs the world until `until_ns`, and pauses it. Fails if a thread keeps the turn for ten seconds of real time.
    pub fn run_until(&self, until_ns: u64) -> Result<(), Stuck> {
        let table = self.table;
        {
            let locked = table.lock();
            if until_ns <= table.now_ns() {
                return Ok(());
            }
            table.limit_ns.store(until_ns, Ordering::Relaxed);
            table.pass_on(&locked);
        }
        let (mut seen, mut quiet) = (table.now_ns(), 0);
        loop {
            let owner_futex = table.owner_futex.load(Ordering::Acquire);
            if table.turn.load(Ordering::Acquire) == turn::OWNER {
                return Ok(());
            }
            kernel::sleep_on(&table.owner_futex, owner_futex, LOOK_MS);
            let holder = self.holder();
            if holder != 0 && is_over(holder) {
                table.end_process(holder);
            }
            let now_ns = table.now_ns();
            quiet = if now_ns == seen { quiet + 1 } else { 0 };
            seen = now_ns;
            if quiet > QUIET_LOOKS {
                return Err(Stuck { now_ns, pid: holder });
            }
        }
    }

    /// PID of the process with the turn; 0 if none has it.
    fn holder(&self) -> u32 {
        let running = |entry: &&crate::table::Entry| entry.state.load(Ordering::Relaxed) == state::RUNNING;
        let _locked = self.table.lock();
        let holder = self.table.entries.iter().find(running);
        holder.map_or(0, |entry| entry.pid.load(Ordering::Relaxed))
    }
}

/// Whether a process has ended, or is a zombie (proc_pid_stat(5)).
fn is_over(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing; both clocks exist on every Linux.
    let _ = unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
