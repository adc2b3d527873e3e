//! The arbiter's stand-in: a second process that does nothing but look whether the first one beats, and takes its place.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use vcuda_arbiter::{Post, SECOND};
use vcuda_region::clock;

use crate::failure::{Failure, failed};
use crate::libraries;

/// How often the stand-in looks.
const LOOK: Duration = Duration::from_millis(50);
/// How often the arbiter looks after its stand-in (ns).
const TEND_NS: u64 = 500_000_000;

/// Waits at `second` until the holder of `first` is gone or does not beat, and takes its place: `true`. Or until the manager
/// is there: `false`.
pub(super) fn stand_in(first: &mut Post, second: &Post, manager: &Post) -> io::Result<bool> {
    while !first.take()? {
        if super::is_managed(manager) {
            return Ok(false);
        }
        second.beat(clock::now_ns());
        first.dismiss_if_idle()?;
        sleep(LOOK);
    }
    Ok(true)
}

/// The arbiter's care for its stand-in.
#[derive(Debug)]
pub(super) struct StandIn {
    second: Post,
    child: Option<Child>,
    tended_ns: u64,
}

impl StandIn {
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            second: Post::open(root, SECOND)?,
            child: None,
            tended_ns: 0,
        })
    }

    /// Starts one if there is none, now and then. One that cannot be started is tried again.
    pub(super) fn tend(&mut self, now_ns: u64) -> Result<(), Failure> {
        if now_ns < self.tended_ns.saturating_add(TEND_NS) && self.tended_ns != 0 {
            return Ok(());
        }
        self.tended_ns = now_ns;
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(None))
        {
            self.child = None;
        }
        // Posts whose file system has lost its locks cannot be tended.
        if self.second.holder().map_err(failed)?.is_some() {
            self.second.dismiss_if_idle().map_err(failed)?;
        } else if self.child.is_none() {
            self.child = Command::new(libraries::executable()?)
                .args(["arbiter", "--stand-in"])
                .current_dir("/")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .ok();
        }
        Ok(())
    }
}
