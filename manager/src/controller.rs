//! Arbitration of GPU time by the manager, like `vcuda arbiter` ([`vcuda_arbiter`]), in a thread of its own.
//!
//! A user's arbiter sees within a tenth of a second that the manager is there and ends, its standby too. Once the manager has
//! ended, the next `vcuda run` or `vcuda set` starts one again; until then shims see that the beat is missing and go by
//! themselves.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::error;
use vcuda_arbiter::{Role, Runner, Step};

use crate::background::{Background, Stop};

/// Arbitrates under a root until it is dropped.
#[derive(Debug)]
pub struct Controller {
    /// Time at which the arbiter last worked (`CLOCK_MONOTONIC`, ns); 0 before it leads.
    beat_ns: Arc<AtomicU64>,
    _thread: Background,
}

impl Controller {
    /// Starts it: it takes over as soon as another arbiter has ended.
    ///
    /// # Errors
    /// Fails if another manager works under this root (`AddrInUse`), if its files cannot be used, or if no thread is
    /// left.
    pub fn start(root: &Path) -> io::Result<Self> {
        let runner = Runner::new(root, Role::Manager)?;
        let beat_ns = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&beat_ns);
        let thread = Background::start("controller", move |stop| arbitrate(runner, stop, &told))?;
        Ok(Self {
            beat_ns,
            _thread: thread,
        })
    }

    /// Time at which it last arbitrated (`CLOCK_MONOTONIC`, ns), for the watchdog. 0 while another arbiter leads.
    #[must_use]
    pub fn beat_ns(&self) -> u64 {
        self.beat_ns.load(Ordering::Relaxed)
    }
}

fn arbitrate(runner: Runner, stop: &Stop, beat_ns: &AtomicU64) {
    let ran = runner.run(&mut |step: Step| {
        if step.leads {
            beat_ns.store(step.now_ns, Ordering::Relaxed);
        }
        if !stop.is_asked() {
            std::thread::park_timeout(step.pause);
        }
        match stop.is_asked() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    if let Err(failure) = ran {
        error!("the division of GPU time has ended, shims go by themselves: {failure}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};
    use vcuda_quota::DeviceConfig;
    use vcuda_region::GpuUuid;
    use vcuda_region::clock;
    use vcuda_region::directory::{Directory, Tenant};
    use vcuda_region::limits::Limits;
    use vcuda_region::process::Identity;

    #[test]
    fn tenants_see_the_beat_while_it_runs() {
        let root = tempfile::tempdir().unwrap();
        let tenant = Tenant {
            name: "a".to_owned(),
            devices: vec![(GpuUuid::from_bytes([1; 16]), DeviceConfig::new(1 << 30, 300))],
        };
        let me = Identity::current().unwrap();
        let (directory, _) = Directory::create_or_join(root.path(), &tenant, &me, clock::now_ns()).unwrap();
        let beat_ns = || Limits::read(directory.path()).unwrap().arbiter_beat_ns();
        assert_eq!(beat_ns(), 0);
        let controller = Controller::start(root.path()).unwrap();
        let end = SystemTime::now() + Duration::from_secs(20);
        let mut seen = 0;
        while seen < 3 {
            assert!(SystemTime::now() < end);
            let before = beat_ns();
            while beat_ns() == before {
                assert!(SystemTime::now() < end);
                std::thread::sleep(Duration::from_millis(1));
            }
            seen += 1;
        }
        assert!(controller.beat_ns() > 0);
        drop(controller);
        let last_ns = beat_ns();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(beat_ns(), last_ns);
    }
}
