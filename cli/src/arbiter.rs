//! `vcuda arbiter`: apportions GPU time between the tenants of one user. One per user, and one more that stands in for it
//! when it is killed or stopped; both end with the last tenant.
//!
//! Tenants share no memory: the arbiter reads each one's `usage`, whose every word is the tenant's own claim, and writes
//! each one's `limits` ([`vcuda_arbiter`], which the manager runs as well: where it is, both processes leave). Should
//! both die at once, the shims notice the missing beat and charge elapsed time as it is, until the next `vcuda run` starts
//! another.

mod stand_in;

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use vcuda_arbiter::{Arbiter, FIRST, MANAGER, Post, SECOND};
use vcuda_region::process::Identity;
use vcuda_region::{clock, directory};

use self::stand_in::{StandIn, stand_in};
use crate::config::Environment;
use crate::failure::{Failure, failed};

/// How often dead tenants are looked for (ns).
const CLEAN_NS: u64 = 1_000_000_000;

/// Runs until no tenant is left or the manager arbitrates; with a stand-in unless it is to be `alone`. A third one ends at
/// once.
pub(crate) fn arbiter(alone: bool, environment: &Environment) -> Result<(), Failure> {
    let root = environment.runtime_root()?;
    let me = Identity::current().map_err(|error| Failure::access("read", Path::new("/proc/self"), &error))?;
    let in_root = |error| Failure::access("use the arbiter's posts in", &root, &error);
    let open = |name| Post::open(&root, name).map_err(in_root);
    let (mut first, second, manager) = (open(FIRST)?, open(SECOND)?, open(MANAGER)?);
    // Who starts while this one ends sees it running: so once the post is free, look again.
    loop {
        if !first.take().map_err(in_root)? {
            if !second.take().map_err(in_root)? {
                return Ok(());
            }
            if !stand_in(&mut first, &second, &manager).map_err(in_root)? {
                return Ok(());
            }
            second.leave();
        }
        serve(&root, &me, (&first, &manager), alone)?;
        first.leave();
        if directory::list(&root).map_err(failed)?.is_empty() || is_managed(&manager) {
            return Ok(());
        }
    }
}

/// The processes at the posts of arbiter and stand-in.
pub(crate) fn holders(root: &Path) -> Vec<i32> {
    let at = |name| Post::open(root, name).ok()?.holder().ok()?;
    [FIRST, SECOND]
        .into_iter()
        .filter_map(at)
        .filter(|pid| *pid > 0)
        .collect()
}

/// Whether one is at its post. It may end right after the answer: the shims notice a missing beat.
pub(crate) fn is_running(root: &Path) -> bool {
    let is_held = |name| Post::open(root, name).is_ok_and(|first| matches!(first.holder(), Ok(Some(_))));
    is_held(FIRST) || is_held(MANAGER)
}

/// Whether the manager arbitrates, or is about to.
fn is_managed(manager: &Post) -> bool {
    matches!(manager.holder(), Ok(Some(_)))
}

/// One look after another, until no tenant is left, or the manager wants the post.
fn serve(root: &Path, me: &Identity, (first, manager): (&Post, &Post), alone: bool) -> Result<(), Failure> {
    let mut arbiter = Arbiter::default();
    let mut second = StandIn::new(root).map_err(|error| Failure::access("use", root, &error))?;
    let mut cleaned_ns = 0;
    loop {
        let now_ns = clock::now_ns();
        first.beat(now_ns);
        if now_ns >= cleaned_ns + CLEAN_NS {
            cleaned_ns = now_ns;
            // What cannot be removed now is tried again; what is dead has no demand.
            let _ = directory::remove_dead(root, me);
        }
        if arbiter.refresh(root, now_ns).map_err(failed)? {
            if arbiter.is_idle() || is_managed(manager) {
                return Ok(());
            }
            if !alone {
                second.tend(now_ns)?;
            }
        }
        arbiter.arbitrate(now_ns);
        sleep(Duration::from_nanos(arbiter.pause_ns(clock::now_ns())));
    }
}
