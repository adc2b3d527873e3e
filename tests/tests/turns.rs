//! Processes of a tenant that take turns, in real time: a stopped or killed one is not waited for, and a continued one is
//! served again. Margins are wide, as exact turns are tested in virtual time.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::time::{Duration, SystemTime};

use vcuda_tests::{Door, Fixture, Running, app};

const WINDOW: Duration = Duration::from_millis(250);
/// Far more than a process waits for a silent one (30 ms), far less than the sum of bounded waits.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Number of stops; the place of a stopped process is random.
const STOPS: usize = 5;

/// A tenant with half of the GPU, and its saturating processes.
struct Container {
    fixture: Fixture,
}

impl Container {
    fn start(&self) -> Running {
        let program = app("saturate", Door::Dlsym);
        let quota = ["--name", "one", "--cores", "50"];
        let mut one = Running::start(self.fixture.tenant(&quota, &program).args(["600", "500000"]));
        one.wait_for("started");
        one
    }

    /// Share of a process in a window (percent of the GPU).
    fn share(&self, of: &Running) -> f64 {
        let (before, start) = (self.fixture.service_ns(of.0.id()), SystemTime::now());
        std::thread::sleep(WINDOW);
        let after = self.fixture.service_ns(of.0.id());
        (after - before) as f64 / start.elapsed().unwrap().as_nanos() as f64 * 100.0
    }

    /// Waits until a process gets more than `percent` in a window. Returns its share.
    fn reach(&self, what: &str, of: &Running, percent: f64) -> f64 {
        let end = SystemTime::now() + TIMEOUT;
        let mut seen = Vec::new();
        loop {
            let share = self.share(of);
            if share > percent {
                return share;
            }
            seen.push(share);
            assert!(
                SystemTime::now() < end,
                "{what}: never above {percent:.1} %: {seen:.1?}"
            );
        }
    }
}

#[test]
fn who_is_stopped_or_killed_is_not_waited_for() {
    let container = Container {
        fixture: Fixture::new(),
    };
    let [first, second] = [container.start(), container.start()];
    for one in [&first, &second] {
        container.reach("two that run", one, 10.0);
    }
    for round in 0..STOPS {
        let (stopped, other) = if round % 2 == 0 {
            (&first, &second)
        } else {
            (&second, &first)
        };
        stopped.signal(libc::SIGSTOP);
        // More than the half that it had.
        container.reach("beside one that is stopped", other, 33.0);
        stopped.signal(libc::SIGCONT);
        container.reach("one that goes on", stopped, 10.0);
        container.reach("beside one that goes on", other, 10.0);
    }
    first.signal(libc::SIGKILL);
    container.reach("beside one that was killed", &second, 33.0);
    let third = container.start();
    container.reach("one that came later", &third, 10.0);
    container.reach("beside one that came later", &second, 10.0);
}
