//! The arbitration of GPU time by the manager: the same driver and the same arithmetic as `vcuda arbiter`
//! ([`vcuda_arbiter`]), in a thread of its own.
//!
//! One arbitrates under a root at a time: who holds the post. The manager says that it is there by a post of its own; an
//! arbiter of the user's sees that within a tenth of a second and leaves, its stand-in too. Once the manager has ended, the
//! next `vcuda run` or `vcuda set` starts one again; until then shims see that the beat is missing and go by themselves.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vcuda_arbiter::{Arbiter, FIRST, MANAGER, Post};
use vcuda_region::clock;

use crate::background::{Background, Stop};

/// Between two attempts to take the post from an arbiter that is leaving.
const TAKE: Duration = Duration::from_millis(2);
/// One that has not left by then is looked at: should it be stopped or hang, it is ended (looks of [`TAKE`]).
const LOOK_EVERY: u32 = 25;
/// With no containers, the thread looks this often.
const IDLE: Duration = Duration::from_millis(50);

/// Arbitrates under a root until it is dropped.
#[derive(Debug)]
pub struct Controller {
    /// When it was last at work (`CLOCK_MONOTONIC`, ns); 0 before it has the post.
    beat_ns: Arc<AtomicU64>,
    _thread: Background,
}

impl Controller {
    /// Starts it: it takes over as soon as whoever arbitrates has left.
    ///
    /// # Errors
    /// Another manager is at work under this root (`AddrInUse`), its files cannot be used, or no thread is left.
    pub fn start(root: &Path) -> io::Result<Self> {
        let (manager, mut first) = (Post::open(root, MANAGER)?, Post::open(root, FIRST)?);
        if !manager.take()? {
            let pid = manager.holder()?.unwrap_or(0);
            let why = format!(
                "another manager (process {pid}) is at work under {}; stop it first",
                root.display()
            );
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        let beat_ns = Arc::new(AtomicU64::new(0));
        let (told, root) = (Arc::clone(&beat_ns), root.to_owned());
        let thread = Background::start("controller", move |stop| {
            take_over(&mut first, stop);
            serve(&root, &first, stop, &told);
            first.leave();
            manager.leave();
        })?;
        Ok(Self {
            beat_ns,
            _thread: thread,
        })
    }

    /// When it last arbitrated (`CLOCK_MONOTONIC`, ns): for the watchdog. 0 while another has the post.
    #[must_use]
    pub fn beat_ns(&self) -> u64 {
        self.beat_ns.load(Ordering::Relaxed)
    }
}

/// Waits for the post.
fn take_over(first: &mut Post, stop: &Stop) {
    let mut attempts: u32 = 0;
    while !stop.is_asked() && !first.take().unwrap_or(false) {
        attempts = attempts.wrapping_add(1);
        if attempts.is_multiple_of(LOOK_EVERY) {
            // One that cannot be asked for is asked for again.
            let _ = first.dismiss_if_idle();
        }
        std::thread::park_timeout(TAKE);
    }
}

fn serve(root: &Path, first: &Post, stop: &Stop, beat_ns: &AtomicU64) {
    let mut arbiter = Arbiter::default();
    while !stop.is_asked() {
        let now_ns = clock::now_ns();
        first.beat(now_ns);
        beat_ns.store(now_ns, Ordering::Relaxed);
        // A folder that cannot be read is tried again; until then the containers are those that were known.
        let _ = arbiter.refresh(root, now_ns);
        arbiter.arbitrate(now_ns);
        let pause = if arbiter.is_idle() {
            IDLE
        } else {
            Duration::from_nanos(arbiter.pause_ns(clock::now_ns()))
        };
        std::thread::park_timeout(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;
    use vcuda_region::GpuUuid;
    use vcuda_region::directory::{Directory, Tenant};
    use vcuda_region::limits::{DeviceConfig, Limits};
    use vcuda_region::process::Identity;

    #[test]
    fn containers_see_the_beat_while_it_runs() {
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
