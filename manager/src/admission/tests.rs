//! Whatever is asked for, the sum of the grants never exceeds what is there.

use proptest::prelude::*;
use vcuda_quota::Policy;

use super::*;

const GIB: u64 = 1 << 30;

fn gpu(number: u8, memory_bytes: u64) -> Gpu {
    Gpu::new(GpuUuid::from_bytes([number; 16]), "simulated", memory_bytes)
}

fn candidates<'a>(gpus: &'a [Gpu], loads: &[Load]) -> Vec<Candidate<'a>> {
    let loads = loads.iter().copied().chain(std::iter::repeat(Load::default()));
    gpus.iter().zip(loads).map(|(gpu, load)| Candidate { gpu, load, is_cordoned: false }).collect()
}

fn amounts(memory_bytes: Option<u64>, cores_permille: u32) -> Quota {
    Quota::fixed(memory_bytes, cores_permille)
}

#[test]
fn less_than_one_context_is_told() {
    let rules = Rules { reserve_bytes_per_sharer: GIB / 2, ..Rules::default() };
    let told = |bytes| rules.too_small(&amounts(bytes, 300));
    let text = told(Some(GIB / 4)).unwrap();
    assert!(text.starts_with("256 MiB is less than the 512 MiB"), "{text}");
    assert_eq!((told(Some(GIB / 2)), told(None)), (None, None));
}

fn any(count: usize, placement: Placement) -> Requested<'static> {
    Requested::Any { count, placement, include: &[], exclude: &[] }
}

fn numbers(uuids: &[GpuUuid]) -> Vec<u8> {
    uuids.iter().map(|uuid| uuid.as_bytes()[0]).collect()
}

fn load(parts: &[(Option<u64>, u32)]) -> Load {
    let mut load = Load::default();
    for (memory, cores) in parts {
        load.add(*memory, *cores);
    }
    load
}

#[test]
fn placement_is_fullest_or_emptiest_and_the_first_of_equals() {
    let gpus: Vec<Gpu> = (1..=4).map(|number| gpu(number, 8 * GIB)).collect();
    let loads = [
        Load::default(),
        load(&[(Some(2 * GIB), 300)]),
        load(&[(Some(4 * GIB), 100)]),
        load(&[(Some(2 * GIB), 300)]),
    ];
    let candidates = candidates(&gpus, &loads);
    let rules = Rules::default();
    let wish = amounts(Some(GIB), 100);
    let placed = |count, placement| {
        numbers(&place(&rules, &candidates, &wish, false, &any(count, placement)).unwrap())
    };
    assert_eq!(placed(4, Placement::Binpack), [3, 2, 4, 1]);
    assert_eq!(placed(4, Placement::Spread), [1, 2, 4, 3]);
    assert_eq!(placed(1, Placement::Topology), [3]);
    // A tenant that does not fit on the fullest GPU goes to another one.
    let wish = amounts(Some(5 * GIB), 100);
    let placed = place(&rules, &candidates, &wish, false, &any(1, Placement::Binpack)).unwrap();
    assert_eq!(numbers(&placed), [2]);
}

#[test]
fn near_gpus_are_chosen_together() {
    let mut gpus: Vec<Gpu> = (1..=4).map(|number| gpu(number, 8 * GIB)).collect();
    let linked = gpus[3].uuid;
    gpus[1].nvlinks.push(linked);
    gpus[0].numa_node = Some(0);
    gpus[1].numa_node = Some(0);
    let candidates = candidates(&gpus, &[]);
    let wish = amounts(Some(GIB), 100);
    let placed = |count| {
        place(&Rules::default(), &candidates, &wish, false, &any(count, Placement::Topology)).unwrap()
    };
    assert_eq!(numbers(&placed(2)), [2, 4]);
    let mut three = numbers(&placed(3));
    three.sort_unstable();
    assert_eq!(three, [1, 2, 4]);
}

#[test]
fn only_those_included_and_never_those_excluded() {
    let gpus: Vec<Gpu> = (1..=4).map(|number| gpu(number, 8 * GIB)).collect();
    let candidates = candidates(&gpus, &[]);
    let rules = Rules::default();
    let wish = amounts(Some(GIB), 100);
    let (include, exclude) = ([gpus[1].uuid, gpus[2].uuid], [gpus[1].uuid]);
    let wanted =
        |count| Requested::Any { count, placement: Placement::Binpack, include: &include, exclude: &exclude };
    assert_eq!(numbers(&place(&rules, &candidates, &wish, false, &wanted(1)).unwrap()), [3]);
    assert!(matches!(place(&rules, &candidates, &wish, false, &wanted(2)), Err(Refusal::NoRoom(_))));
    let absent = [GpuUuid::from_bytes([9; 16])];
    let refused = place(&rules, &candidates, &wish, false, &Requested::Named(&absent)).unwrap_err();
    assert!(matches!(&refused, Refusal::Unknown(text) if text.contains("GPU-09090909")));
}

#[test]
fn a_whole_gpu_is_no_other_tenants() {
    let gpus = [gpu(1, 8 * GIB)];
    let rules = Rules::default();
    let (whole, part) = (amounts(None, 1000), amounts(Some(1), 1));
    let held_whole = load(&[(None, 500)]);
    let held_part = load(&[(Some(1), 1)]);
    for (held, wish) in [(held_whole, &part), (held_whole, &whole), (held_part, &whole)] {
        let candidates = candidates(&gpus, &[held]);
        let refused = place(&rules, &candidates, wish, false, &any(1, Placement::Binpack)).unwrap_err();
        assert!(matches!(refused, Refusal::NoRoom(_)), "{refused:?}");
        assert_eq!(refused.text().ends_with("one tenant has all its memory"), held.is_whole, "{refused:?}");
    }
    assert!(place(&rules, &candidates(&gpus, &[]), &whole, false, &any(1, Placement::Binpack)).is_ok());
}

#[test]
fn a_refusal_says_what_is_free_on_each_gpu() {
    let mut gpus = vec![gpu(1, 24 * GIB), gpu(2, 24 * GIB), gpu(3, 24 * GIB), gpu(4, 24 * GIB)];
    gpus[2].health = Health::Unhealthy("XID 79".to_owned());
    let loads = [load(&[(Some(4 * GIB), 300)]), load(&[(Some(GIB), 0); 16])];
    let mut candidates = candidates(&gpus, &loads);
    candidates[3].is_cordoned = true;
    let wish = amounts(Some(40 * GIB), 300);
    let refused =
        place(&Rules::default(), &candidates, &wish, false, &any(1, Placement::Binpack)).unwrap_err();
    let [one, two, three, four] = [0, 1, 2, 3].map(|place: usize| gpus[place].uuid);
    assert_eq!(
        refused,
        Refusal::NoRoom(format!(
            "40 GiB and 30 % are not free on 1 GPU: {one} has 20 GiB and 70 % free; {two} has 8 GiB and 100 % free, no \
             place beside 16 tenants (admission.sharers_max); {three} unhealthy: XID 79; {four} cordoned"
        ))
    );
    // If no GPU may be used, the refusal gives that reason, not the amounts.
    let refused =
        place(&Rules::default(), &candidates[2..], &wish, false, &any(1, Placement::Binpack)).unwrap_err();
    assert!(matches!(refused, Refusal::Unusable(_)), "{refused:?}");
    let refused =
        place(&Rules::default(), &candidates, &wish, false, &Requested::Named(&[three])).unwrap_err();
    assert_eq!(refused, Refusal::Unusable(format!("{three} is unhealthy: XID 79")));
    // With many GPUs, the text names only the first.
    let many: Vec<Gpu> = (0..64).map(|number| gpu(number, GIB)).collect();
    let refused = place(
        &Rules::default(),
        &super::tests::candidates(&many, &[]),
        &wish,
        false,
        &any(1, Placement::Spread),
    );
    let text = refused.unwrap_err().text().to_owned();
    assert!(text.len() < 2000 && text.ends_with("and 48 with less"), "{text}");
}

#[test]
fn what_does_not_grow_is_not_refused() {
    let gpus = [gpu(1, 8 * GIB)];
    let rules = Rules::default();
    let others = [load(&[(Some(6 * GIB), 800)])];
    let uuids = [gpus[0].uuid];
    let before = amounts(Some(4 * GIB), 400);
    let to = |memory, cores| {
        resize(&rules, &candidates(&gpus, &others), &uuids, (&before, &amounts(memory, cores)), false)
    };
    assert!(to(Some(4 * GIB), 400).is_ok() && to(Some(GIB), 1).is_ok());
    assert!(to(Some(4 * GIB + 1), 400).is_err() && to(Some(4 * GIB), 401).is_err() && to(None, 400).is_err());
    // A missing GPU does not keep a tenant from shrinking.
    assert!(resize(&rules, &[], &uuids, (&before, &amounts(Some(GIB), 400)), false).is_ok());
    assert!(resize(&rules, &[], &uuids, (&before, &amounts(Some(5 * GIB), 400)), false).is_err());
}

#[test]
fn a_refused_growth_says_what_the_tenant_has_what_it_can_get_and_what_others_have() {
    let gpus = [gpu(1, 24 * GIB)];
    let uuid = gpus[0].uuid;
    let before = amounts(Some(4 * GIB), 300);
    let refused = |others: &[Load], wish: &Quota| {
        let candidates = candidates(&gpus, others);
        let refused = resize(&Rules::default(), &candidates, &[uuid], (&before, wish), false);
        refused.unwrap_err().text().to_owned()
    };
    assert_eq!(
        refused(&[], &amounts(Some(30 * GIB), 300)),
        format!(
            "30 GiB and 30 % are not free on 1 GPU: {uuid} has at most 24 GiB and 100 % for this tenant, which has 4 GiB and \
             30 % now; no other tenant is on it"
        )
    );
    let others = [load(&[(Some(6 * GIB), 500), (Some(GIB), 0)])];
    assert_eq!(
        refused(&others, &amounts(None, 300)),
        format!(
            "all the memory of an empty GPU and 30 % are not free on 1 GPU: {uuid} has at most 17 GiB and 50 % for this tenant, \
             which has 4 GiB and 30 % now; its other tenants (2) have 7 GiB and 50 %"
        )
    );
    // Others have more than all: it may keep what it has.
    let others = [load(&[(Some(22 * GIB), 900)])];
    assert!(
        refused(&others, &amounts(Some(5 * GIB), 300)).contains("at most 4 GiB and 30 % for"),
        "the tenant's own amounts are never refused"
    );
}

#[test]
fn suspendable_tenants_exceed_a_gpu_together_and_others_never_do() {
    let gpus = [gpu(1, 8 * GIB)];
    let rules = Rules { suspendable_overcommit_permille: 1500, ..Rules::default() };
    let mut one = load(&[(Some(2 * GIB), 0)]);
    let free = |load: &Load| [true, false].map(|kind| rules.free(&gpus[0], load, kind).memory_bytes / GIB);
    assert_eq!(free(&one), [6, 6]);
    one.add_suspendable(Some(6 * GIB), 0);
    assert_eq!(free(&one), [4, 0], "the suspendable one must fit beside all that are not");
    one.add_suspendable(Some(4 * GIB), 0);
    assert_eq!(free(&one), [0, 0]);
    let mut two = Load::default();
    two.add_suspendable(Some(3 * GIB), 0);
    two.add_suspendable(Some(5 * GIB), 0);
    assert_eq!(free(&two), [4, 3]);
}

fn any_amounts() -> impl Strategy<Value = Quota> {
    let memory = prop_oneof![1 => Just(None), 9 => (1..40 * GIB).prop_map(Some)];
    let policy = prop_oneof![Just(Policy::Fixed), Just(Policy::Burst), Just(Policy::BestEffort)];
    (memory, 1_u32..=1000, policy)
        .prop_map(|(memory, cores, policy)| Quota { policy, ..amounts(memory, cores) })
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let factors = (1000_u32..3000, 1000_u32..3000, 1000_u32..3000);
    (0..GIB, factors, 1_u32..20).prop_map(|(reserve, (memory, suspendable, cores), sharers)| Rules {
        reserve_bytes_per_sharer: reserve,
        memory_overcommit_permille: memory,
        suspendable_overcommit_permille: suspendable,
        cores_overcommit_permille: cores,
        sharers_max: sharers,
        placement: Placement::Binpack,
        is_open: false,
    })
}

proptest! {
    /// While tenants come, change and go, no GPU ever gives more than the rules allow.
    #[test]
    fn never_more_than_a_gpu_has(
        rules in any_rules(),
        sizes in prop::collection::vec(GIB..80 * GIB, 1..6),
        steps in prop::collection::vec((any_amounts(), prop::bool::ANY, 0_u8..10, 1_usize..4, 0_usize..100), 1..60),
        placement in prop_oneof![Just(Placement::Binpack), Just(Placement::Spread), Just(Placement::Topology)],
    ) {
        let gpus: Vec<Gpu> = (1..).zip(&sizes).map(|(number, size)| gpu(number, *size)).collect();
        let mut held: Vec<(Quota, bool, Vec<GpuUuid>)> = Vec::new();
        let load_of = |held: &[(Quota, bool, Vec<GpuUuid>)], gpu: &Gpu| {
            let mut load = Load::default();
            for (amounts, is_suspendable, _) in held.iter().filter(|(.., gpus)| gpus.contains(&gpu.uuid)) {
                if *is_suspendable {
                    load.add_suspendable(amounts.memory_bytes, amounts.reserved_permille());
                } else {
                    load.add(amounts.memory_bytes, amounts.reserved_permille());
                }
            }
            load
        };
        for (wish, is_suspendable, kind, count, place_of) in steps {
            let loads = |held: &[(Quota, bool, Vec<GpuUuid>)]| -> Vec<Load> {
                gpus.iter().map(|gpu| load_of(held, gpu)).collect()
            };
            if kind < 6 {
                let before = loads(&held);
                let candidates = candidates(&gpus, &before);
                let placed = place(&rules, &candidates, &wish, is_suspendable, &any(count, placement));
                prop_assert_eq!(&placed, &place(&rules, &candidates, &wish, is_suspendable, &any(count, placement)));
                match placed {
                    Ok(uuids) => {
                        let mut different = uuids.clone();
                        different.sort_unstable();
                        different.dedup();
                        prop_assert_eq!(different.len(), count);
                        held.push((wish, is_suspendable, uuids));
                    }
                    // A refusal is right only if there is no room.
                    Err(_) => {
                        let open = candidates.iter().filter(|candidate| rules.fits(candidate.gpu, &candidate.load, &wish, is_suspendable)).count();
                        prop_assert!(open < count);
                    }
                }
            } else if !held.is_empty() {
                let at = place_of % held.len();
                let (before, is_suspendable, uuids) = held.remove(at);
                if kind < 9 {
                    let others = loads(&held);
                    let grown = resize(&rules, &candidates(&gpus, &others), &uuids, (&before, &wish), is_suspendable);
                    held.push((if grown.is_ok() { wish } else { before }, is_suspendable, uuids));
                }
            }
            for gpu in &gpus {
                let load = load_of(&held, gpu);
                let usable = u128::from(gpu.memory_total_bytes)
                    .saturating_sub(u128::from(rules.reserve_bytes_per_sharer) * u128::from(load.sharers));
                let once = usable * u128::from(rules.memory_overcommit_permille) / 1000;
                let most = once * u128::from(rules.suspendable_overcommit_permille) / 1000;
                prop_assert!(u128::from(load.memory_bytes) <= most);
                // Each suspendable tenant fits beside all that are not.
                let others = load.memory_bytes - load.suspendable_bytes + load.largest_suspendable_bytes;
                prop_assert!(u128::from(others) <= once);
                prop_assert!(load.promised_permille <= rules.cores_overcommit_permille);
                prop_assert!(load.sharers <= rules.sharers_max);
                prop_assert!(!load.is_whole || load.sharers == 1);
            }
        }
    }

    /// All that is reported as free can be granted, and not a byte or a thousandth more.
    #[test]
    fn all_that_is_free_and_not_one_more(
        rules in any_rules(),
        is_suspendable in prop::bool::ANY,
        taken in 0..GIB,
        cores in 0_u32..1000,
    ) {
        let gpus = [gpu(1, 24 * GIB)];
        let load = load(&[(Some(taken), cores)]);
        let free = rules.free(&gpus[0], &load, is_suspendable);
        prop_assume!(free.sharers > 0 && free.memory_bytes > 0 && free.cores_permille > 0);
        let most = free.cores_permille.min(1000);
        // A quota that promises its time, even all of it.
        let promise = |memory, cores| Quota { policy: Policy::Burst, ..amounts(Some(memory), cores) };
        let fits = |memory, cores| rules.fits(&gpus[0], &load, &promise(memory, cores), is_suspendable);
        prop_assert!(fits(free.memory_bytes, most));
        prop_assert!(!fits(free.memory_bytes + 1, most));
        prop_assert!(!fits(free.memory_bytes, free.cores_permille + 1));
        // Time without a promise always fits.
        prop_assert!(rules.fits(&gpus[0], &load, &amounts(Some(free.memory_bytes), 1000), is_suspendable));
    }
}
