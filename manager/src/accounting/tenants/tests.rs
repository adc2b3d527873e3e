use proptest::prelude::*;
use vcuda_quota::DeviceConfig;
use vcuda_region::GpuUuid;

use super::*;

const GIB: u64 = 1 << 30;
const TOTAL: u64 = 24 * GIB;
const SECOND_NS: u64 = 1_000_000_000;

struct Known;

impl Facts for Known {
    fn owner(&self, tenant: &Tenant) -> Option<Owner> {
        (tenant.id != "released")
            .then(|| Owner { key: format!("key of {}", tenant.id), namespace: "team".to_owned() })
    }

    fn user(&self, tenant: &Tenant) -> Option<u32> {
        tenant.attached.then_some(1000)
    }

    fn memory_total_bytes(&self, _: &Device) -> u64 {
        TOTAL
    }
}

fn tenant(id: &str, limit_bytes: u64, change: impl FnOnce(&mut Device)) -> Tenant {
    let config = DeviceConfig::new(limit_bytes, 300);
    let mut device = Device::unused(GpuUuid::from_bytes([1; 16]), config);
    change(&mut device);
    Tenant { id: id.to_owned(), devices: vec![device], ..Tenant::default() }
}

fn snapshot(seconds: u64, tenants: &[Tenant]) -> Snapshot {
    Snapshot { number: seconds, taken_ns: seconds * SECOND_NS, tenants: tenants.to_vec(), ended: Vec::new() }
}

#[test]
fn what_was_before_the_first_snapshot_does_not_count_and_what_is_new_does() {
    let mut meters = Meters::default();
    let served = |seconds: u64| move |device: &mut Device| device.served_ns = seconds * SECOND_NS;
    let old = |seconds| tenant("old", 8 * GIB, served(seconds));
    let first = meters.advance(&snapshot(100, &[old(50)]), 0, &Known);
    assert_eq!(first.tenants["key of old"].gpu_ns, 0);
    assert_eq!(first.tenants["key of old"].requested_bytes, 8 * GIB);
    let new = tenant("new", 4 * GIB, served(3));
    let next = meters.advance(&snapshot(110, &[new, old(55)]), 0, &Known);
    assert_eq!(next.tenants["key of old"].gpu_ns, 5 * SECOND_NS);
    assert_eq!(next.tenants["key of new"].gpu_ns, 3 * SECOND_NS);
    let team = next.namespaces["team"];
    assert_eq!((team.gpu_ns, team.requested_bytes), (8 * SECOND_NS, 12 * GIB));
    // One that has ended and begun again under its name begins at 0.
    assert!(meters.advance(&snapshot(120, &[]), 0, &Known).tenants.is_empty());
    let again = meters.advance(&snapshot(130, &[old(7)]), 0, &Known);
    assert_eq!(again.tenants["key of old"].gpu_ns, 7 * SECOND_NS);
}

#[test]
fn a_run_that_is_begun_again_between_two_snapshots_is_counted_twice() {
    let mut meters = Meters::default();
    let run = |inode: u64, seconds: u64| Tenant {
        inode,
        ..tenant("run", 8 * GIB, move |device| device.served_ns = seconds * SECOND_NS)
    };
    meters.advance(&snapshot(100, &[]), 0, &Known);
    meters.advance(&snapshot(110, &[run(1, 2)]), 100, &Known);
    // The first has used a second more, a whole one was between, and the third has used more than the first.
    let mut next = snapshot(120, &[run(3, 4)]);
    next.ended = vec![(105, run(9, 50)), (115, run(1, 3)), (119, run(2, 1))];
    let rows = meters.advance(&next, 110, &Known);
    let used = rows.tenants["key of run"];
    assert_eq!((used.gpu_ns, used.requested_bytes), ((1 + 1 + 4) * SECOND_NS, 8 * GIB));
}

#[test]
fn all_of_a_tenant_counts_for_one_user() {
    let mut meters = Meters::default();
    let mut at = |seconds, attached: &[(&str, bool)]| {
        let one = |(id, attached): &(&str, bool)| Tenant {
            attached: *attached,
            ..tenant(id, 8 * GIB, |device| device.served_ns = seconds * SECOND_NS)
        };
        let tenants: Vec<Tenant> = attached.iter().map(one).collect();
        meters.advance(&snapshot(seconds, &tenants), 0, &Known).users
    };
    at(1, &[]);
    assert!(at(2, &[("a", false), ("b", false)]).is_empty(), "not known yet");
    let users = at(3, &[("a", true), ("b", false)]);
    assert_eq!(users.keys().collect::<Vec<_>>(), ["1000"]);
    assert_eq!((users["1000"].gpu_ns, users["1000"].requested_bytes), (2 * SECOND_NS, 8 * GIB));
    let users = at(4, &[("a", true)]);
    assert_eq!((users["1000"].gpu_ns, users[""].gpu_ns), (SECOND_NS, 2 * SECOND_NS), "b had none");
}

#[test]
fn an_idle_tenant_is_told_once_it_has_held_its_quota_for_a_minute() {
    let mut meters = Meters::default();
    let idle = [tenant("run", 8 * GIB, |_| ())];
    meters.advance(&snapshot(1, &[]), 0, &Known);
    let mut short = snapshot(2, &idle);
    short.ended = vec![(2, Tenant { inode: 7, ..idle[0].clone() })];
    assert_eq!(
        meters.advance(&short, 1, &Known),
        Rows::default(),
        "a probe that has ended, and a run that has begun"
    );
    assert_eq!(meters.advance(&snapshot(61, &idle), 2, &Known), Rows::default());
    let rows = meters.advance(&snapshot(62, &idle), 61, &Known);
    assert_eq!(rows.tenants["key of run"].requested_bytes, 8 * GIB);
    let refused = tenant("other", 8 * GIB, |device| device.denied = 1);
    let rows = meters.advance(&snapshot(63, &[refused]), 62, &Known);
    assert_eq!(rows.tenants["key of other"].denials, 1, "what was used is told at once");
}

#[test]
fn a_peak_counts_when_it_rises() {
    let mut meters = Meters::default();
    let mut at = |seconds, used_bytes, peak_bytes| {
        let one = tenant("a", 8 * GIB, |device| {
            (device.used_bytes, device.peak_bytes) = (used_bytes, peak_bytes);
        });
        let rows = meters.advance(&snapshot(seconds, &[one]), 0, &Known);
        rows.tenants["key of a"].peak_bytes
    };
    assert_eq!(at(1, GIB, 7 * GIB), GIB, "the peak is older");
    assert_eq!(at(2, 2 * GIB, 8 * GIB), 8 * GIB);
    assert_eq!(at(3, 2 * GIB, 8 * GIB), 2 * GIB);
}

#[test]
fn owner_and_user_stay_known() {
    let mut meters = Meters::default();
    let mut one = tenant("a", GIB, |device| device.peak_bytes = 1);
    one.attached = true;
    meters.advance(&snapshot(1, &[one.clone()]), 0, &Known);
    one.attached = false;
    let mut gone = one.clone();
    gone.id = "released".to_owned();
    let rows = meters.advance(&snapshot(2, &[one, gone]), 0, &Known);
    assert_eq!(rows.users.keys().collect::<Vec<_>>(), ["1000"]);
    assert_eq!(rows.tenants.keys().collect::<Vec<_>>(), ["key of a", "released"]);
    assert_eq!(rows.namespaces.keys().collect::<Vec<_>>(), ["", "team"]);
}

#[test]
fn restarts_go_on_where_the_last_one_was() {
    let mut meters = Meters::default();
    let counted = |served: u64, held: u64| Tenant {
        attached: true,
        ..tenant("a", GIB, move |device| {
            (device.served_ns, device.held_ns) = (served * SECOND_NS, held * SECOND_NS);
        })
    };
    meters.advance(&snapshot(0, &[]), 0, &Known);
    meters.advance(&snapshot(10, &[counted(1, 9)]), 0, &Known);
    let stored = serde_json::to_vec(&meters).unwrap();
    let stored: Meters = serde_json::from_slice(&stored).unwrap();
    assert_eq!(stored.tenants["a"].devices, meters.tenants["a"].devices);
    let mut again = stored.after_restart();
    let rows = again.advance(&snapshot(20, &[counted(5, 3)]), 0, &Known);
    let used = rows.tenants["key of a"];
    assert_eq!((used.gpu_ns, used.throttled_ns), (4 * SECOND_NS, 0));
    let rows = again.advance(&snapshot(21, &[counted(5, 4)]), 0, &Known);
    assert_eq!(rows.tenants["key of a"].throttled_ns, SECOND_NS);
    let rows = Meters::after_boot().advance(&snapshot(30, &[counted(2, 0)]), 0, &Known);
    assert_eq!(rows.tenants["key of a"].gpu_ns, 2 * SECOND_NS);
}

proptest! {
    /// I12: whatever a tenant writes, no sum is beyond what the time and the GPU allow.
    #[test]
    fn hostile_figures_give_no_absurd_sums(
        looks in prop::collection::vec((0u64..100, any::<[u64; 6]>()), 1..40)
    ) {
        let mut meters = Meters::default();
        let mut sum = Figures::default();
        let mut now = 0;
        meters.advance(&snapshot(now, &[]), 0, &Known);
        for (seconds, [served, held, denied, used, peak, limit]) in looks {
            now += seconds;
            let hostile = tenant("a", limit, |device| {
                device.served_ns = served;
                device.held_ns = held;
                device.denied = denied;
                device.used_bytes = used;
                device.peak_bytes = peak;
            });
            let rows = meters.advance(&snapshot(now, &[hostile]), 0, &Known);
            sum.add_later(&rows.tenants["key of a"]);
        }
        prop_assert!(sum.gpu_ns <= now * SECOND_NS);
        prop_assert!(sum.throttled_ns <= now * SECOND_NS * WAITING_MAX);
        prop_assert!(sum.denials <= now * SECOND_NS / DENIAL_NS);
        prop_assert!(sum.peak_bytes <= TOTAL && sum.requested_bytes <= TOTAL);
    }
}
