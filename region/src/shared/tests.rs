//! Objects that several processes hold: counted once, whichever process goes first, and wherever one stands still.

use std::collections::HashMap;

use super::*;
use crate::primitive::counted::standing_still_after;
use crate::process::{Identity, ProcessView};
use crate::slots::{Slot, Usage};
use proptest::prelude::*;

const LIMIT: u64 = 100;

/// Processes that do not exist; all numbers above the kernel's largest PID.
fn dead_process(number: u32) -> Identity {
    Identity {
        pid: 4_200_000 + number,
        start_ticks: 7,
        pid_namespace: 1,
        time_namespace: 0,
        name: *b"nobody\0\0\0\0\0\0\0\0\0\0",
    }
}

/// This test, as a process of the same namespace, so that the others are found dead and it is not.
fn survivor() -> Identity {
    Identity {
        pid: std::process::id(),
        ..dead_process(0)
    }
}

fn device() -> DeviceIndex {
    DeviceIndex::new(3).unwrap()
}

fn key(number: u64) -> ObjectKey {
    ObjectKey::of(&number.to_le_bytes())
}

fn allocate(slot: &Slot<'_>, bytes: u64) -> bool {
    slot.reserve(device(), bytes, LIMIT)
        .map(|reservation| reservation.commit())
        .is_ok()
}

/// Memory of `slot`'s own, shared under the key of this number.
fn export(slot: &Slot<'_>, number: u64, bytes: u64) -> Shared {
    assert!(allocate(slot, bytes));
    slot.share(key(number), device(), bytes).unwrap()
}

#[test]
fn an_exported_object_is_counted_once_until_the_last_one_parts() {
    let usage = Usage::in_memory().unwrap();
    let [exporter, importer, third] = [1, 2, 3].map(|n| usage.claim(&dead_process(n)).unwrap());
    assert_eq!(importer.join(key(7)), None, "no process has it yet");
    let exported = export(&exporter, 7, 60);
    assert_eq!((exported.bytes(), exported.device()), (60, device()));
    assert_eq!(
        exporter.share(key(7), device(), 60).as_ref(),
        Some(&exported),
        "the same"
    );
    let imported = importer.join(key(7)).unwrap();
    let foreign = third.join_foreign(key(7), device(), 60, LIMIT).unwrap();
    assert_eq!(
        (imported.bytes(), imported.device(), &foreign),
        (60, device(), &imported)
    );
    assert_eq!(usage.used_bytes(device()), 60);
    assert_eq!(
        (exporter.used_bytes(device()), usage.unpaid_bytes(device())),
        (60, 0)
    );
    assert_eq!(importer.unpaid_held_bytes(device()), 0, "the exporter has it");
    let other_device = DeviceIndex::new(2).unwrap();
    assert_eq!(
        [
            importer.holds_of_others(device()),
            exporter.holds_of_others(device()),
            importer.holds_of_others(other_device)
        ],
        [true, false, false]
    );
    assert!(
        importer.share(key(7), device(), 60).is_some(),
        "held, so shared further"
    );
    assert!(!allocate(&importer, 41));
    assert!(allocate(&importer, 40));
    // The payer held it twice.
    exporter.part(exported);
    assert_eq!(
        (usage.used_bytes(device()), usage.unpaid_bytes(device())),
        (100, 0)
    );
    exporter.part(exporter.join(key(7)).unwrap());
    exporter.part(Shared { ..clone(&imported) });
    assert_eq!(
        (usage.used_bytes(device()), usage.unpaid_bytes(device())),
        (100, 60)
    );
    assert_eq!(exporter.used_bytes(device()), 0);
    assert!(!importer.holds_of_others(device()), "no process has it any more");
    assert_eq!(
        [
            importer.unpaid_held_bytes(device()),
            exporter.unpaid_held_bytes(device()),
            importer.unpaid_held_bytes(other_device)
        ],
        [60, 0, 0],
        "once, however often it is held"
    );
    assert!(!allocate(&exporter, 1));
    third.part(foreign);
    importer.part(clone(&imported));
    assert_eq!(usage.used_bytes(device()), 100, "the importer held it twice");
    importer.part(imported);
    assert_eq!(
        (usage.used_bytes(device()), usage.unpaid_bytes(device())),
        (40, 0)
    );
    assert_eq!(importer.join(key(7)), None);
    assert!(allocate(&third, 60));
}

/// A name for what may keep an object beside its holders.
fn keeper() -> Outlives {
    Outlives::descriptions_of(1, 2)
}

fn unheld_bytes(usage: &Usage) -> u64 {
    usage.unheld().map(|object| object.bytes).sum()
}

#[test]
fn what_was_given_away_counts_until_its_release_is_proved() {
    let usage = Usage::in_memory().unwrap();
    let [exporter, importer] = [1, 2].map(|n| usage.claim(&dead_process(n)).unwrap());
    let exported = export(&exporter, 7, 60);
    assert!(exporter.outlive(&exported, keeper()));
    assert_eq!(usage.unheld().count(), 0, "its exporter holds it");
    assert!(exporter.stop_paying(&exported));
    exporter.part(exported);
    assert_eq!(exporter.used_bytes(device()), 0);
    assert_eq!((usage.used_bytes(device()), unheld_bytes(&usage)), (60, 60));
    assert!(!allocate(&importer, 41));
    let unheld: Vec<_> = usage.unheld().collect();
    let [object] = unheld[..] else {
        panic!("{unheld:?}")
    };
    assert_eq!(
        (object.key, object.device, object.bytes, object.outlives),
        (key(7), device(), 60, keeper())
    );
    // A process imports it between the proof and what follows from it.
    let imported = importer.join(key(7)).unwrap();
    usage.end_released(&object);
    assert_eq!((usage.used_bytes(device()), unheld_bytes(&usage)), (60, 0));
    importer.part(imported);
    assert_eq!(usage.used_bytes(device()), 60, "an importer has nothing to prove");
    usage.end_released(&object);
    assert_eq!((usage.used_bytes(device()), usage.unheld().count()), (0, 0));
    // The place is another object's, which nothing outlives.
    let next = export(&exporter, 8, 50);
    usage.end_released(&object);
    assert_eq!(usage.used_bytes(device()), 50);
    exporter.part(next);
    assert_eq!((usage.used_bytes(device()), usage.unheld().count()), (0, 0));
}

#[test]
fn what_the_dead_gave_away_counts_too() {
    let usage = Usage::in_memory().unwrap();
    let exporter = usage.claim(&dead_process(1)).unwrap();
    let exported = export(&exporter, 7, 60);
    assert!(exporter.outlive(&exported, keeper()));
    let me = survivor();
    let slot = usage.claim(&me).unwrap();
    assert_eq!(usage.reap_dead_and_wait(&ProcessView::new(me)).cleared, 1);
    assert_eq!(
        (usage.used_bytes(device()), usage.unpaid_bytes(device())),
        (60, 60)
    );
    assert!(!allocate(&slot, 41));
    assert_eq!(usage.reap_dead_and_wait(&ProcessView::new(me)).cleared, 0);
    let object = usage.unheld().next().unwrap();
    usage.end_released(&object);
    assert!(allocate(&slot, 100));
    // Given away in two ways of which none tells of the other.
    let other = Outlives::descriptions_of(1, 3);
    slot.release(device(), 100);
    let exported = export(&slot, 9, 10);
    assert!(slot.outlive(&exported, keeper()) && slot.outlive(&exported, other));
    slot.part(exported);
    assert_eq!(usage.unheld().next().unwrap().outlives, Outlives::UNPROVABLE);
}

fn clone(object: &Shared) -> Shared {
    Shared {
        place: object.place,
        device: object.device,
        bytes: object.bytes,
    }
}

#[test]
fn who_stops_paying_still_holds_it_and_gives_nothing_back_twice() {
    let usage = Usage::in_memory().unwrap();
    let [exporter, importer] = [1, 2].map(|n| usage.claim(&dead_process(n)).unwrap());
    let exported = export(&exporter, 7, 60);
    let imported = importer.join(key(7)).unwrap();
    assert!(!importer.stop_paying(&imported), "it does not pay");
    let again = exporter.join(key(7)).unwrap();
    assert!(!exporter.stop_paying(&exported), "held twice: not about to end");
    exporter.part(again);
    assert!(exporter.stop_paying(&exported));
    assert!(!exporter.stop_paying(&exported), "once");
    let counted = || {
        (
            usage.used_bytes(device()),
            exporter.used_bytes(device()),
            usage.unpaid_bytes(device()),
        )
    };
    assert_eq!(counted(), (60, 0, 60));
    assert_eq!(exporter.unpaid_held_bytes(device()), 60, "held");
    assert!(allocate(&exporter, 40));
    importer.part(imported);
    assert_eq!(counted(), (100, 40, 60), "the exporter still holds it");
    exporter.part(exported);
    assert_eq!(counted(), (40, 40, 0), "once");
}

#[test]
fn an_object_from_outside_is_counted_once_for_all_who_join_it() {
    let usage = Usage::in_memory().unwrap();
    let [first, second] = [1, 2].map(|n| usage.claim(&dead_process(n)).unwrap());
    assert!(allocate(&second, 30));
    let denied = first.join_foreign(key(1), device(), 71, LIMIT).unwrap_err();
    assert_eq!(
        (denied.requested_bytes, denied.used_bytes, denied.limit_bytes),
        (71, 30, LIMIT)
    );
    assert_eq!(first.join(key(1)), None, "nothing is left of it");
    let object = first.join_foreign(key(1), device(), 70, LIMIT).unwrap();
    assert_eq!(
        (usage.used_bytes(device()), usage.unpaid_bytes(device())),
        (100, 70)
    );
    let again = second.join_foreign(key(1), device(), 70, LIMIT).unwrap();
    assert_eq!(usage.used_bytes(device()), 100);
    assert!(second.share(key(1), device(), 70).is_some(), "passed on further");
    first.part(object);
    assert_eq!(usage.used_bytes(device()), 100);
    second.part(clone(&again));
    second.part(again);
    assert_eq!(usage.used_bytes(device()), 30);
}

#[test]
fn objects_of_other_devices_are_not_counted_here() {
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&dead_process(1)).unwrap();
    let other = DeviceIndex::new(4).unwrap();
    let object = slot.join_foreign(key(1), other, 70, LIMIT).unwrap();
    assert_eq!((usage.used_bytes(device()), usage.used_bytes(other)), (0, 70));
    assert!(allocate(&slot, 100));
    slot.part(object);
    assert_eq!((usage.used_bytes(device()), usage.used_bytes(other)), (100, 0));
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel for processes")]
fn the_dead_pay_and_hold_no_longer() {
    let usage = Usage::in_memory().unwrap();
    let exporter = usage.claim(&dead_process(1)).unwrap();
    let importer = usage.claim(&survivor()).unwrap();
    let object = export(&exporter, 1, 60);
    let _unfinished = export(&exporter, 2, 10);
    let mine = importer.join(key(1)).unwrap();
    // The payer is found dead, and its slot taken by another process, which uses memory too.
    usage.reap_dead_and_wait(&ProcessView::new(survivor()));
    assert_eq!(
        (usage.used_bytes(device()), usage.unpaid_bytes(device())),
        (60, 60)
    );
    let next = usage.claim(&dead_process(9)).unwrap();
    assert_eq!(next.index(), exporter.index());
    assert!(allocate(&next, 20));
    assert!(next.join(key(2)).is_none(), "only the dead had it");
    assert_eq!(usage.used_bytes(device()), 80);
    // No process holds it any more.
    drop(object);
    let third = usage.claim(&dead_process(10)).unwrap();
    let theirs = third.join(key(1)).unwrap();
    importer.part(mine);
    assert_eq!(usage.used_bytes(device()), 80);
    drop(theirs);
    usage.reap_dead_and_wait(&ProcessView::new(survivor()));
    assert_eq!(usage.used_bytes(device()), 0);
}

#[test]
fn an_exec_ends_the_holds_of_the_program_before() {
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&dead_process(1)).unwrap();
    let other = usage.claim(&dead_process(2)).unwrap();
    let (_mine, _outer) = (
        export(&slot, 1, 60),
        slot.join_foreign(key(2), device(), 30, LIMIT).unwrap(),
    );
    let joined = other.join(key(1)).unwrap();
    let again = usage.claim(&dead_process(1)).unwrap();
    assert_eq!(again.index(), slot.index());
    assert_eq!(
        (usage.used_bytes(device()), usage.unpaid_bytes(device())),
        (60, 60)
    );
    assert_eq!(again.join(key(2)), None);
    other.part(joined);
    assert_eq!(usage.used_bytes(device()), 0);
}

#[test]
fn a_full_table_makes_importers_pay_themselves() {
    let usage = Usage::in_memory().unwrap();
    let [slot, other] = [1, 2].map(|n| usage.claim(&dead_process(n)).unwrap());
    let objects: Vec<Shared> = (0..MAX_OBJECTS as u64)
        .map(|number| slot.join_foreign(key(number), device(), 0, LIMIT).unwrap())
        .collect();
    assert!(allocate(&slot, 10));
    assert_eq!(slot.share(key(1 << 40), device(), 10), None);
    let alone = slot.join_foreign(key(1 << 41), device(), 20, LIMIT).unwrap();
    let again = other.join_foreign(key(1 << 41), device(), 20, LIMIT).unwrap();
    assert_eq!(
        (usage.used_bytes(device()), usage.unpaid_bytes(device())),
        (50, 0)
    );
    assert!(other.join_foreign(key(1 << 42), device(), 51, LIMIT).is_err());
    slot.part(alone);
    other.part(again);
    for object in objects {
        slot.part(object);
    }
    assert_eq!(usage.used_bytes(device()), 10);
    let shared = slot.share(key(1 << 40), device(), 10).unwrap();
    slot.part(shared);
    assert_eq!(usage.used_bytes(device()), 0);
}

/// Whatever a process does with objects, standing still (or killed) before any of its accesses: the container never counts
/// less than is in use nor more than was ever granted, others go on, and after the dead are cleared only what others hold
/// is counted.
#[test]
#[cfg_attr(miri, ignore = "asks the kernel for processes")]
fn killed_or_stopped_anywhere() {
    let run = |usage: &Usage| {
        let slot = usage.claim(&dead_process(1)).unwrap();
        // Imports what the survivor exports, exports 20 of its own, joins 10 from outside, and parts with all of it.
        let imported = slot.join(key(1)).unwrap();
        let exported = export(&slot, 2, 20);
        let foreign = slot.join_foreign(key(3), device(), 10, LIMIT).unwrap();
        slot.part(imported);
        slot.part(exported);
        slot.part(foreign);
    };
    for accesses in 0.. {
        let usage = Usage::in_memory().unwrap();
        let other = usage.claim(&survivor()).unwrap();
        let own = export(&other, 1, 60);
        let finished = standing_still_after(accesses, || run(&usage)).is_some();
        let used = usage.used_bytes(device());
        assert!([60, 80, 90, 70].contains(&used), "{used} after {accesses}");
        // Stopped, it holds up no other process: the other joins what is there, joins the same foreign object, and finds all the room that is left.
        let joined = other.join(key(2));
        let foreign = other.join_foreign(key(3), device(), 10, LIMIT).unwrap();
        let now = usage.used_bytes(device());
        assert!(
            now <= used + 10 && now >= 70,
            "{now}, {used} before, after {accesses}"
        );
        // Unless it stands within what it does with it itself, the 10 from outside are counted once.
        assert!(usage.unpaid_bytes(device()) >= 10);
        assert!(allocate(&other, LIMIT - now), "{now} after {accesses}");
        assert!(!allocate(&other, 1), "after {accesses}");
        other.release(device(), LIMIT - now);
        other.part(own);
        // Killed; and those who clear it are killed too.
        for cleaner in [3, 10, 40, 100, 250] {
            standing_still_after(cleaner, || {
                usage.reap_dead_and_wait(&ProcessView::new(survivor()))
            });
        }
        usage.reap_dead_and_wait(&ProcessView::new(survivor()));
        let left = if joined.is_some() { 30 } else { 10 };
        assert_eq!(usage.used_bytes(device()), left, "after {accesses}");
        if let Some(joined) = joined {
            other.part(joined);
        }
        other.part(foreign);
        assert_eq!(usage.used_bytes(device()), 0, "after {accesses}");
        assert_eq!(
            [1, 2, 3].map(|number| other.join(key(number))),
            [None, None, None]
        );
        assert!(usage.objects().all().all(|(_, word, _)| {
            state::State(word.load(crate::primitive::Ordering::Relaxed)).status() == state::FREE
        }));
        assert!(allocate(&other, LIMIT));
        if finished {
            assert!(accesses > 150, "{accesses}");
            break;
        }
    }
}

/// Room for one: if a process stands still in joining an object, another one joins it all the same.
#[test]
#[cfg_attr(miri, ignore = "asks the kernel for processes")]
fn stopped_in_adopting_it_refuses_nobody_the_same_object() {
    for accesses in 0.. {
        let usage = Usage::in_memory().unwrap();
        let [first, second] = [1, 2].map(|n| usage.claim(&dead_process(n)).unwrap());
        assert!(allocate(&second, 90));
        let finished = standing_still_after(accesses, || {
            first.join_foreign(key(1), device(), 10, LIMIT).unwrap()
        })
        .is_some();
        let object = second.join_foreign(key(1), device(), 10, LIMIT);
        assert!(object.is_ok(), "after {accesses}");
        assert_eq!(usage.used_bytes(device()), 100, "after {accesses}");
        assert_eq!(usage.unpaid_bytes(device()), 10, "after {accesses}");
        first.leave();
        assert_eq!(usage.used_bytes(device()), 100, "after {accesses}");
        second.part(object.unwrap());
        assert_eq!(usage.used_bytes(device()), 90, "after {accesses}");
        if finished {
            assert!(accesses > 30, "{accesses}");
            break;
        }
    }
}

#[derive(Debug, Clone)]
enum Act {
    Allocate(usize, u64),
    Free(usize),
    Share(usize, u64, u64),
    Join(usize, u64),
    JoinForeign(usize, u64, u64),
    Part(usize, usize),
    Leave(usize),
    StandStill(usize, u64, u64, u32),
}

fn act() -> impl Strategy<Value = Act> {
    let slot = 0..4_usize;
    let name = 0..3_u64;
    prop_oneof![
        2 => (slot.clone(), 0..60_u64).prop_map(|(slot, bytes)| Act::Allocate(slot, bytes)),
        1 => slot.clone().prop_map(Act::Free),
        2 => (slot.clone(), name.clone(), 1..40_u64).prop_map(|(slot, name, bytes)| Act::Share(slot, name, bytes)),
        3 => (slot.clone(), name.clone()).prop_map(|(slot, name)| Act::Join(slot, name)),
        3 => (slot.clone(), name.clone(), 1..40_u64).prop_map(|(slot, name, bytes)| Act::JoinForeign(slot, name, bytes)),
        4 => (slot.clone(), 0..8_usize).prop_map(|(slot, which)| Act::Part(slot, which)),
        1 => slot.clone().prop_map(Act::Leave),
        1 => (slot, name, 1..40_u64, 0..60_u32).prop_map(|(slot, name, bytes, after)| Act::StandStill(slot, name, bytes, after)),
    ]
}

/// What the container should count: memory of each process, and each object once for as long as any process holds it.
#[derive(Default)]
struct Model {
    own: [u64; 4],
    objects: HashMap<u64, (u64, [u32; 4])>,
}

impl Model {
    fn used(&self) -> u64 {
        self.own.iter().sum::<u64>() + self.objects.values().map(|(bytes, _)| bytes).sum::<u64>()
    }

    fn leave(&mut self, slot: usize) {
        self.own[slot] = 0;
        for (_, holders) in self.objects.values_mut() {
            holders[slot] = 0;
        }
        self.objects
            .retain(|_, (_, holders)| holders.iter().any(|count| *count > 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 400 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_table_of_names(acts in proptest::collection::vec(act(), 0..if cfg!(miri) { 15 } else { 80 })) {
        let usage = Usage::in_memory().unwrap();
        let mut slots: Vec<Slot<'_>> = (0..4).map(|n| usage.claim(&dead_process(n)).unwrap()).collect();
        let mut held: [Vec<(u64, Shared)>; 4] = Default::default();
        let mut model = Model::default();
        for act in acts {
            match act {
                Act::Allocate(slot, bytes) => {
                    let fits = model.used() + bytes <= LIMIT;
                    prop_assert_eq!(allocate(&slots[slot], bytes), fits);
                    model.own[slot] += if fits { bytes } else { 0 };
                }
                Act::Free(slot) => {
                    slots[slot].release(device(), model.own[slot]);
                    model.own[slot] = 0;
                }
                Act::Share(slot, name, bytes) => {
                    if let Some((known, holders)) = model.objects.get_mut(&name) {
                        let shared = slots[slot].share(key(name), device(), bytes);
                        prop_assert_eq!(shared.as_ref().map(Shared::bytes), (holders[slot] > 0).then_some(*known));
                        if let Some(shared) = shared {
                            holders[slot] += 1;
                            held[slot].push((name, shared));
                        }
                    } else if model.own[slot] >= bytes {
                        held[slot].push((name, slots[slot].share(key(name), device(), bytes).unwrap()));
                        model.own[slot] -= bytes;
                        let mut holders = [0; 4];
                        holders[slot] = 1;
                        model.objects.insert(name, (bytes, holders));
                    }
                }
                Act::Join(slot, name) => {
                    let joined = slots[slot].join(key(name));
                    prop_assert_eq!(joined.as_ref().map(Shared::bytes), model.objects.get(&name).map(|(bytes, _)| *bytes));
                    if let Some(joined) = joined {
                        model.objects.get_mut(&name).unwrap().1[slot] += 1;
                        held[slot].push((name, joined));
                    }
                }
                Act::JoinForeign(slot, name, bytes) => {
                    let foreign = slots[slot].join_foreign(key(name), device(), bytes, LIMIT);
                    if !model.objects.contains_key(&name) && model.used() + bytes > LIMIT {
                        prop_assert!(foreign.is_err());
                        continue;
                    }
                    let (_, holders) = model.objects.entry(name).or_insert((bytes, [0; 4]));
                    holders[slot] += 1;
                    held[slot].push((name, foreign.unwrap()));
                }
                Act::Part(slot, which) => {
                    if which < held[slot].len() {
                        let (name, shared) = held[slot].swap_remove(which);
                        slots[slot].part(shared);
                        let (_, holders) = model.objects.get_mut(&name).unwrap();
                        holders[slot] -= 1;
                        model.objects.retain(|_, (_, holders)| holders.iter().any(|count| *count > 0));
                    }
                }
                Act::Leave(slot) => {
                    held[slot].clear();
                    slots.remove(slot).leave();
                    model.leave(slot);
                    slots.insert(slot, usage.claim(&dead_process(u32::try_from(slot).unwrap())).unwrap());
                }
                Act::StandStill(slot, name, bytes, after) => {
                    // Stopped within, and then killed: whatever it did, nothing of it is left.
                    standing_still_after(after, || slots[slot].join_foreign(key(name), device(), bytes, LIMIT));
                    let used = usage.used_bytes(device());
                    prop_assert!(used <= LIMIT && used >= model.used());
                    held[slot].clear();
                    slots.remove(slot).leave();
                    model.leave(slot);
                    slots.insert(slot, usage.claim(&dead_process(u32::try_from(slot).unwrap())).unwrap());
                }
            }
            prop_assert_eq!(usage.used_bytes(device()), model.used());
        }
    }
}
