//! Processes of a tenant that take turns, in real time: one that is stopped or killed is not waited for, wherever it was,
//! and one that goes on is served again. Behaviour, with wide margins: how exact turns are, virtual time tells.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::time::{Duration, SystemTime};

use vcuda_tests::{Door, Fixture, Running, app};

const WINDOW: Duration = Duration::from_millis(250);
/// Far more than any process waits for one that says nothing more (30 ms), far less than a bound on waits would come to.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Where a process is when it is stopped is chance.
const STOPS: usize = 5;

/// A tenant with a share of half of the GPU, and its processes, which want all of it.
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

    /// Share of a process in a window, in percent of the GPU.
    fn share(&self, of: &Running) -> f64 {
        let (before, start) = (self.fixture.service_ns(of.0.id()), SystemTime::now());
        std::thread::sleep(WINDOW);
        let after = self.fixture.service_ns(of.0.id());
        (after - before) as f64 / start.elapsed().unwrap().as_nanos() as f64 * 100.0
    }

    /// Until a process gets more than that in a window (percent), and how much it was.
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
