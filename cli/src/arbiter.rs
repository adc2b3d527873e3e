//! `vcuda arbiter`: apportions GPU time between the tenants of one user. One per user, and one more that stands in for it
//! when it is killed or stopped; both end with the last tenant.
//!
//! Tenants share no memory: the arbiter reads each one's `usage`, whose every word is the tenant's own claim, and writes
//! each one's `limits`. The arithmetic is the region's ([`vcuda_region::controller`]). Should both processes die at once, the
//! shims notice the missing beat and charge elapsed time as it is, until the next `vcuda run` starts another.

mod post;
mod stand_in;
mod tenants;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use vcuda_region::controller::{self, Busy, Contender, LOOK_BACK_WORDS, Overlap, word_at};
use vcuda_region::process::Identity;
use vcuda_region::{DeviceIndex, GpuUuid, clock, directory};

use self::post::Post;
use self::stand_in::{StandIn, stand_in};
use self::tenants::Tenants;
use crate::config::Environment;
use crate::failure::{Failure, failed};

/// The posts' files under the runtime directory.
const FIRST: &str = "arbiter.lock";
const SECOND: &str = "arbiter.second.lock";
/// Between two looks whether anybody begins or was changed, beside one that works and else (ns).
const WATCH_NS: u64 = 5_000_000;
const DOZE_NS: u64 = 20_000_000;
/// What the tenants have not reported yet is not looked at (ns): they enter running work every half millisecond.
const REPORT_LAG_NS: u64 = 3_000_000;
/// Tenants count as competing for this long after they last did (ns).
const CALM_NS: u64 = 500_000_000;
/// How often dead tenants are looked for (ns).
const CLEAN_NS: u64 = 1_000_000_000;

/// Runs until no tenant is left; with a stand-in unless it is to be `alone`. A third one ends at once.
pub(crate) fn arbiter(alone: bool, environment: &Environment) -> Result<(), Failure> {
    let root = environment.runtime_root()?;
    let me = Identity::current().map_err(|error| Failure::access("read", Path::new("/proc/self"), &error))?;
    let (mut first, second) = (Post::open(&root, FIRST)?, Post::open(&root, SECOND)?);
    // Who starts while this one ends sees it running: so once the post is free, look again.
    loop {
        if !first.take()? {
            if !second.take()? {
                return Ok(());
            }
            stand_in(&mut first, &second)?;
            second.leave();
        }
        serve(&root, &me, &first, alone)?;
        first.leave();
        if directory::list(&root).map_err(failed)?.is_empty() {
            return Ok(());
        }
    }
}

/// Whether one is at its post. It may end right after the answer: the shims notice a missing beat.
pub(crate) fn is_running(root: &Path) -> bool {
    Post::open(root, FIRST).is_ok_and(|first| matches!(first.holder(), Ok(Some(_))))
}

/// One look after another, until no tenant is left.
fn serve(root: &Path, me: &Identity, first: &Post, alone: bool) -> Result<(), Failure> {
    let mut tenants = Tenants::default();
    let mut second = StandIn::new(root)?;
    let (mut listed_ns, mut cleaned_ns, mut due_ns) = (0, 0, 0);
    loop {
        let now_ns = clock::now_ns();
        first.beat(now_ns);
        if now_ns >= cleaned_ns + CLEAN_NS {
            cleaned_ns = now_ns;
            // What cannot be removed now is tried again; what is dead has no demand.
            let _ = directory::remove_dead(root, me);
        }
        if now_ns >= listed_ns + controller::QUIET_NS {
            listed_ns = now_ns;
            tenants.refresh(directory::list(root).map_err(failed)?, now_ns);
            if tenants.is_empty() {
                return Ok(());
            }
            if !alone {
                second.tend(now_ns)?;
            }
        }
        if now_ns >= due_ns || tenants.have_stirred() {
            let is_contended = arbitrate(&mut tenants, now_ns);
            due_ns = now_ns
                + if is_contended {
                    controller::CONTENDED_NS
                } else {
                    controller::QUIET_NS
                };
        }
        let watch_ns = if tenants.may_meet() { WATCH_NS } else { DOZE_NS };
        let pause_ns = due_ns.saturating_sub(clock::now_ns()).min(watch_ns);
        sleep(Duration::from_nanos(pause_ns));
    }
}

/// Looks at every GPU once and writes what has changed. Whether tenants compete on any.
fn arbitrate(tenants: &mut Tenants, now_ns: u64) -> bool {
    let mut on_gpu: BTreeMap<GpuUuid, Vec<(usize, DeviceIndex)>> = BTreeMap::new();
    for (at, tenant) in tenants.iter_mut().enumerate() {
        if !tenant.beat(now_ns) {
            continue;
        }
        for (device, uuid) in tenant.devices() {
            on_gpu.entry(uuid).or_default().push((at, device));
        }
    }
    let mut is_contended = false;
    for users in on_gpu.values() {
        is_contended |= arbitrate_gpu(tenants, users, now_ns);
    }
    is_contended
}

fn arbitrate_gpu(tenants: &mut Tenants, users: &[(usize, DeviceIndex)], now_ns: u64) -> bool {
    let last = word_at(now_ns.saturating_sub(REPORT_LAG_NS));
    let first = last.saturating_sub(LOOK_BACK_WORDS);
    let mut busy = Vec::with_capacity(users.len());
    let mut contenders: Vec<Contender> = Vec::with_capacity(users.len());
    for &(at, device) in users {
        let seen = tenants
            .get_mut(at)
            .and_then(|tenant| tenant.look(device, first, last, now_ns));
        let (own, contender) = seen.unwrap_or_else(|| (Busy::default(), tenants::ABSENT));
        busy.push(own);
        contenders.push(contender);
    }
    let compete = contenders.iter().filter(|one| one.demand_permille > 0).count() > 1;
    let overlaps = controller::overlaps(&busy);
    let rates = controller::rates(&contenders);
    let has_neighbours = users.len() > 1;
    let mut is_contended = false;
    for (((at, device), overlap), rate) in users.iter().zip(overlaps).zip(rates) {
        if let Some(tenant) = tenants.get_mut(*at) {
            is_contended |= tenant.pace(
                *device,
                &Finding {
                    overlap,
                    rate,
                    compete,
                    has_neighbours,
                },
                now_ns,
            );
        }
    }
    is_contended
}

/// What one look said about one tenant on one GPU.
#[derive(Debug)]
struct Finding {
    overlap: Overlap,
    rate: u32,
    /// Two or more demand the GPU.
    compete: bool,
    /// Other tenants were given the GPU as well.
    has_neighbours: bool,
}
