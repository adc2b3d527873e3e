//! Policies, priorities and weights between real tenants, changed live, by the simulator's exact record; and a killed or
//! stopped arbiter. Margins are wide and waits long, as exact figures are tested in virtual time.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use vcuda_tests::{Door, Fixture, Running, app, eventually, succeeded};

/// Time limit for shares: on a busy machine launches are late, and one window of many is right.
const TIMEOUT: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_millis(700);

/// Tenants that keep the GPU busy with kernels of 1 ms.
struct Tenants {
    fixture: Fixture,
    running: Vec<Running>,
}

impl Tenants {
    fn new() -> Self {
        Tenants {
            fixture: Fixture::new(),
            running: Vec::new(),
        }
    }

    fn start(&mut self, name: &str, quota: &[&str]) {
        let program = app("saturate", Door::Dlsym);
        let quota = [&["--name", name], quota].concat();
        let mut one = Running::start(self.fixture.tenant(&quota, &program).args(["600", "1000000"]));
        one.wait_for("started");
        self.running.push(one);
    }

    fn set(&self, name: &str, quota: &[&str]) {
        let args = [&["set", name], quota].concat();
        succeeded(&self.fixture.vcuda(args).output().unwrap());
    }

    /// Waits until the shares of GPU time in one window (percent) satisfy `holds`.
    fn reach(&self, what: &str, holds: impl Fn(&[f64]) -> bool) {
        let mut seen = Vec::new();
        let end = SystemTime::now() + TIMEOUT;
        loop {
            let before = self.service_ns();
            let start = SystemTime::now();
            std::thread::sleep(WINDOW);
            let after = self.service_ns();
            let elapsed = start.elapsed().unwrap().as_nanos() as f64;
            let shares: Vec<f64> = after
                .iter()
                .zip(before)
                .map(|(after, before)| (after - before) as f64 / elapsed * 100.0)
                .collect();
            if holds(&shares) {
                return;
            }
            seen.push(shares);
            assert!(SystemTime::now() < end, "never {what}: {seen:.1?}");
        }
    }

    fn service_ns(&self) -> Vec<u64> {
        let report = self.fixture.report();
        let rows = report["processes"].as_array().unwrap();
        let of = |one: &Running| {
            let row = rows.iter().find(|row| row["pid"] == one.0.id());
            row.map_or(0, |row| row["service_ns"].as_u64().unwrap())
        };
        self.running.iter().map(of).collect()
    }

    /// Time of the arbiter's last step, from the tenant's `limits`.
    fn beat(&self, name: &str) -> Vec<u8> {
        let limits = self
            .fixture
            .runtime()
            .join("vcuda/containers")
            .join(name)
            .join("limits");
        fs::read(limits).unwrap()[176..184].to_vec()
    }

    /// PIDs of this fixture's arbiter and its standby.
    fn arbiters(&self) -> [Option<u32>; 2] {
        let root = format!("XDG_RUNTIME_DIR={}", self.fixture.runtime().display());
        let is_ours = |process: &Path| {
            let read = |file| fs::read(process.join(file)).unwrap_or_default();
            read("cmdline").split(|byte| *byte == 0).nth(1) == Some(b"arbiter")
                && read("environ")
                    .split(|byte| *byte == 0)
                    .any(|one| one == root.as_bytes())
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
    fn both_arbiters(&self, tenant: &str) -> [u32; 2] {
        let mut found = [None, None];
        eventually("two arbiters run", TIMEOUT, || {
            found = self.arbiters();
            found.iter().all(Option::is_some)
        });
        let before = self.beat(tenant);
        eventually("the arbiter beats", TIMEOUT, || self.beat(tenant) != before);
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
fn burst_borrows_while_the_neighbour_idles_and_gives_back() {
    let mut tenants = Tenants::new();
    tenants.start(
        "burst",
        &["--cores", "20", "--cores-max", "90", "--policy", "burst"],
    );
    tenants.reach("borrowed while alone", |share| (60.0..93.0).contains(&share[0]));
    tenants.start("neighbour", &["--cores", "60"]);
    tenants.reach("given back", |share| {
        share[0] < 48.0 && (52.0..64.0).contains(&share[1])
    });
    tenants.running[1].signal(libc::SIGSTOP);
    tenants.reach("borrowed from one that stands still", |share| share[0] > 60.0);
    // Borrowing changes live.
    tenants.set("burst", &["--cores-max", "40"]);
    tenants.reach("borrowed less", |share| (30.0..43.0).contains(&share[0]));
    tenants.set("burst", &["--policy", "fixed"]);
    tenants.reach("borrowed no more", |share| (10.0..23.0).contains(&share[0]));
}

#[test]
fn best_effort_gets_what_is_left() {
    let mut tenants = Tenants::new();
    tenants.start("sure", &["--cores", "70"]);
    tenants.start("rest", &["--policy", "best-effort"]);
    tenants.reach("the promise first", |share| {
        share[0] > 60.0 && (10.0..38.0).contains(&share[1])
    });
    tenants.set("sure", &["--cores", "20"]);
    tenants.reach("more is left", |share| share[0] < 25.0 && share[1] > 60.0);
    tenants.set("sure", &["--cores", "99.9", "--policy", "burst"]);
    tenants.reach("nothing is left", |share| share[0] > 75.0 && share[1] < 8.0);
    let before = tenants.service_ns()[1];
    eventually("it is not starved", TIMEOUT, || tenants.service_ns()[1] > before);
}

#[test]
fn a_low_priority_yields_and_weights_divide() {
    let mut tenants = Tenants::new();
    tenants.start("low", &["--priority", "low"]);
    tenants.reach("the GPU is its own", |share| share[0] > 75.0);
    tenants.start("high", &["--priority", "high"]);
    tenants.reach("it yields", |share| share[0] < 8.0 && share[1] > 75.0);
    let before = tenants.service_ns()[0];
    eventually("it is not starved", TIMEOUT, || tenants.service_ns()[0] > before);
    tenants.set("low", &["--priority", "high"]);
    tenants.reach("equals have equal parts", |share| {
        (0.8..1.25).contains(&(share[0] / share[1]))
    });
    tenants.set("low", &["--weight", "3000"]);
    tenants.reach("three to one", |share| {
        (2.4..3.6).contains(&(share[0] / share[1]))
    });
}

#[test]
fn a_killed_or_stopped_arbiter_is_replaced() {
    let mut tenants = Tenants::new();
    tenants.start(
        "burst",
        &["--cores", "30", "--cores-max", "90", "--policy", "burst"],
    );
    let [first, second] = tenants.both_arbiters("burst");
    signal(first, libc::SIGKILL);
    tenants.is_gone(first);
    let [third, fourth] = tenants.both_arbiters("burst");
    assert_eq!(third, second, "the standby took over");
    signal(third, libc::SIGSTOP);
    // It is ended, not waited for.
    tenants.is_gone(third);
    let [fifth, sixth] = tenants.both_arbiters("burst");
    assert_eq!(fifth, fourth, "the next standby took over");
    // A standby is replaced as well.
    signal(sixth, libc::SIGSTOP);
    eventually("another stands by", TIMEOUT, || {
        let [first, second] = tenants.arbiters();
        first == Some(fifth) && second.is_some_and(|second| second != sixth)
    });
    // Without an arbiter a promise is kept and nothing is borrowed; the next change starts another one.
    let [seventh, eighth] = tenants.both_arbiters("burst");
    tenants.reach("borrowed", |share| share[0] > 60.0);
    signal(eighth, libc::SIGSTOP);
    signal(seventh, libc::SIGKILL);
    signal(eighth, libc::SIGKILL);
    tenants.reach("what was borrowed is given back", |share| {
        (20.0..34.0).contains(&share[0])
    });
    tenants.set("burst", &["--cores-max", "95"]);
    tenants.reach("borrowed again", |share| share[0] > 60.0);
}
