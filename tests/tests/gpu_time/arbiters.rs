//! Arbiters that are killed or stopped, and their standbys: real processes, in real time.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use vcuda_tests::{Door, Fixture, Running, app, eventually, succeeded};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Duration of a measured share: far longer than what swings on a busy machine.
const SPAN: Duration = Duration::from_secs(4);
/// Tenants go by themselves one second after the last beat (docs/policies.md).
const WITHOUT_ARBITER: Duration = Duration::from_millis(1500);
const TENANT: &str = "burst";

/// A tenant that keeps the GPU busy with kernels of 1 ms, and borrows.
struct Borrower {
    fixture: Fixture,
    running: Running,
}

impl Borrower {
    fn new() -> Self {
        let fixture = Fixture::new();
        let quota = ["--name", TENANT, "--cores", "30", "--cores-max", "90", "--policy", "burst"];
        let program = app("saturate", Door::Dlsym);
        let mut running = Running::start(fixture.tenant(&quota, &program).args(["600", "1000000"]));
        running.wait_for("started");
        Borrower { fixture, running }
    }

    /// Mean share of GPU time from now on (percent).
    fn share(&self) -> f64 {
        let service_ns = || self.fixture.service_ns(self.running.0.id());
        let (before, start) = (service_ns(), SystemTime::now());
        std::thread::sleep(SPAN);
        (service_ns() - before) as f64 / start.elapsed().unwrap().as_nanos() as f64 * 100.0
    }

    /// Time of the arbiter's last step, from the tenant's `limits`.
    fn beat(&self) -> Vec<u8> {
        let limits = self.fixture.runtime().join("vcuda/containers").join(TENANT).join("limits");
        fs::read(limits).unwrap()[176..184].to_vec()
    }

    /// PIDs of this fixture's arbiter and its standby.
    fn arbiters(&self) -> [Option<u32>; 2] {
        let root = format!("XDG_RUNTIME_DIR={}", self.fixture.runtime().display());
        let is_ours = |process: &Path| {
            let read = |file| fs::read(process.join(file)).unwrap_or_default();
            read("cmdline").split(|byte| *byte == 0).nth(1) == Some(b"arbiter")
                && read("environ").split(|byte| *byte == 0).any(|one| one == root.as_bytes())
        };
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            is_ours(&entry.path()).then_some(pid)
        });
        let pids: Vec<u32> = pids.collect();
        // The second is the first one's child.
        let first = pids.iter().find(|pid| !pids.contains(&parent(**pid)));
        let second = pids.iter().find(|pid| Some(parent(**pid)) == first.copied());
        [first.copied(), second.copied()]
    }

    /// Waits until a process is neither of them.
    fn is_gone(&self, pid: u32) {
        eventually("it is gone", TIMEOUT, || !self.arbiters().contains(&Some(pid)));
    }

    /// Waits until both run and the first one arbitrates.
    fn both_arbiters(&self) -> [u32; 2] {
        let mut found = [None, None];
        eventually("two arbiters run", TIMEOUT, || {
            found = self.arbiters();
            found.iter().all(Option::is_some)
        });
        let before = self.beat();
        eventually("the arbiter beats", TIMEOUT, || self.beat() != before);
        found.map(Option::unwrap)
    }
}

/// Parent of a process; 0 if it is gone.
fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
    parent.and_then(|pid| pid.parse().ok()).unwrap_or(0)
}

fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: kill takes no pointers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn a_killed_or_stopped_arbiter_is_replaced() {
    let tenant = Borrower::new();
    let [first, second] = tenant.both_arbiters();
    signal(first, libc::SIGKILL);
    tenant.is_gone(first);
    let [third, fourth] = tenant.both_arbiters();
    assert_eq!(third, second, "the standby took over");
    signal(third, libc::SIGSTOP);
    // It is ended, not waited for.
    tenant.is_gone(third);
    let [fifth, sixth] = tenant.both_arbiters();
    assert_eq!(fifth, fourth, "the next standby took over");
    // A standby is replaced as well.
    signal(sixth, libc::SIGSTOP);
    eventually("another stands by", TIMEOUT, || {
        let [first, second] = tenant.arbiters();
        first == Some(fifth) && second.is_some_and(|second| second != sixth)
    });
    // Without an arbiter a promise is kept and nothing is borrowed; the next change starts another one.
    let [seventh, eighth] = tenant.both_arbiters();
    signal(eighth, libc::SIGSTOP);
    signal(seventh, libc::SIGKILL);
    signal(eighth, libc::SIGKILL);
    std::thread::sleep(WITHOUT_ARBITER);
    let beat = tenant.beat();
    let share = tenant.share();
    assert!((15.0..32.0).contains(&share), "{share:.1} % without an arbiter");
    assert_eq!((tenant.arbiters(), tenant.beat()), ([None, None], beat), "none came");
    succeeded(&tenant.fixture.vcuda(["set", TENANT, "--cores-max", "95"]).output().unwrap());
    tenant.both_arbiters();
    let share = tenant.share();
    assert!(share > 60.0, "{share:.1} % with an arbiter again");
}
