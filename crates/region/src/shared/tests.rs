//! Objects that several processes hold: counted once, whichever process goes first, and wherever one stands still.

mod model;
mod stopped;

use super::*;
use crate::process::{Identity, ProcessView};
use crate::slots::{Slot, Usage};

const LIMIT: u64 = 100;

/// Processes that do not exist; all numbers above the kernel's largest PID.
fn dead_process(number: u32) -> Identity {
    Identity {
        pid: 4_200_000 + number,
        start_ticks: 7,
        pid_namespace: 1,
        time_namespace: 0,
        name: *b"unknown\0\0\0\0\0\0\0\0\0",
    }
}

/// This test, as a process of the same namespace, so that the others are found dead and it is not.
fn survivor() -> Identity {
    Identity { pid: std::process::id(), ..dead_process(0) }
}

fn device() -> DeviceIndex {
    DeviceIndex::new(3).unwrap()
}

fn key(number: u64) -> ObjectKey {
    ObjectKey::of(&number.to_le_bytes())
}

fn allocate(slot: &Slot<'_>, bytes: u64) -> bool {
    slot.reserve(device(), bytes, LIMIT).map(|reservation| reservation.commit()).is_ok()
}

/// Memory of `slot`'s own, shared under the key of this number.
fn export(slot: &Slot<'_>, number: u64, bytes: u64) -> Shared {
    assert!(allocate(slot, bytes));
    slot.share(key(number), device(), bytes).unwrap()
}

/// An object of 60 bytes, and three processes that hold it: its exporter twice, an importer, and a third that joined it as
/// a foreign one.
struct HeldByThree<'u> {
    exporter: Slot<'u>,
    importer: Slot<'u>,
    third: Slot<'u>,
    exported: Shared,
    imported: Shared,
    foreign: Shared,
}

fn held_by_three(usage: &Usage) -> HeldByThree<'_> {
    let [exporter, importer, third] = [1, 2, 3].map(|n| usage.claim(&dead_process(n)).unwrap());
    assert_eq!(importer.join(key(7)), None, "no process has it yet");
    let exported = export(&exporter, 7, 60);
    let again = exporter.share(key(7), device(), 60);
    assert_eq!(again.as_ref(), Some(&exported), "the same");
    HeldByThree {
        imported: importer.join(key(7)).unwrap(),
        foreign: third.join_foreign(key(7), device(), 60, LIMIT).unwrap(),
        exporter,
        importer,
        third,
        exported,
    }
}

/// Memory of the tenant, and the part of it that no process counts.
fn used_and_unpaid(usage: &Usage) -> (u64, u64) {
    (usage.used_bytes(device()), usage.unpaid_bytes(device()))
}

#[test]
fn an_exported_object_is_counted_once_by_its_exporter() {
    let usage = Usage::in_memory().unwrap();
    let held = held_by_three(&usage);
    for object in [&held.exported, &held.imported, &held.foreign] {
        assert_eq!((object.bytes(), object.device()), (60, device()));
    }
    assert_eq!(held.foreign, held.imported);
    assert_eq!(used_and_unpaid(&usage), (60, 0));
    assert_eq!(held.exporter.used_bytes(device()), 60);
    assert_eq!(held.importer.unpaid_held_bytes(device()), 0, "the exporter has it");
    let other_device = DeviceIndex::new(2).unwrap();
    assert_eq!(
        [
            held.importer.holds_of_others(device()),
            held.exporter.holds_of_others(device()),
            held.importer.holds_of_others(other_device)
        ],
        [true, false, false]
    );
    assert!(!allocate(&held.importer, 41));
    assert!(allocate(&held.importer, 40));
}

#[test]
fn an_object_is_counted_until_its_last_holder_parts() {
    let usage = Usage::in_memory().unwrap();
    let HeldByThree { exporter, importer, third, exported, imported, foreign } = held_by_three(&usage);
    let again = importer.share(key(7), device(), 60);
    assert!(again.is_some(), "held, so shared further");
    assert!(allocate(&importer, 40));
    // The payer held it twice.
    exporter.part(exported);
    assert_eq!(used_and_unpaid(&usage), (100, 0));
    exporter.part(exporter.join(key(7)).unwrap());
    exporter.part(clone(&imported));
    assert_eq!(used_and_unpaid(&usage), (100, 60));
    assert_eq!(exporter.used_bytes(device()), 0);
    assert!(!importer.holds_of_others(device()), "no process has it any more");
    let other_device = DeviceIndex::new(2).unwrap();
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
    assert_eq!(used_and_unpaid(&usage), (40, 0));
    assert_eq!(importer.join(key(7)), None);
    assert!(allocate(&third, 60));
}

/// A descriptor kind that may keep an object beyond its holders.
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
    let [object] = unheld[..] else { panic!("{unheld:?}") };
    assert_eq!((object.key, object.device, object.bytes, object.outlives), (key(7), device(), 60, keeper()));
    // A process imports it between the proof and what follows from it.
    let imported = importer.join(key(7)).unwrap();
    usage.end_released(&object);
    assert_eq!((usage.used_bytes(device()), unheld_bytes(&usage)), (60, 0));
    importer.part(imported);
    assert_eq!(usage.used_bytes(device()), 60, "an importer has nothing to prove");
    usage.end_released(&object);
    assert_eq!((usage.used_bytes(device()), usage.unheld().count()), (0, 0));
    // The place has another object now, which nothing keeps beyond its holders.
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
    assert_eq!((usage.used_bytes(device()), usage.unpaid_bytes(device())), (60, 60));
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
    Shared { place: object.place, device: object.device, bytes: object.bytes }
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
    let counted =
        || (usage.used_bytes(device()), exporter.used_bytes(device()), usage.unpaid_bytes(device()));
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
    assert_eq!((denied.requested_bytes, denied.used_bytes, denied.limit_bytes), (71, 30, LIMIT));
    assert_eq!(first.join(key(1)), None, "nothing is left of it");
    let object = first.join_foreign(key(1), device(), 70, LIMIT).unwrap();
    assert_eq!((usage.used_bytes(device()), usage.unpaid_bytes(device())), (100, 70));
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
    assert_eq!((usage.used_bytes(device()), usage.unpaid_bytes(device())), (60, 60));
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
    let (_mine, _outer) = (export(&slot, 1, 60), slot.join_foreign(key(2), device(), 30, LIMIT).unwrap());
    let joined = other.join(key(1)).unwrap();
    let again = usage.claim(&dead_process(1)).unwrap();
    assert_eq!(again.index(), slot.index());
    assert_eq!((usage.used_bytes(device()), usage.unpaid_bytes(device())), (60, 60));
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
    assert_eq!((usage.used_bytes(device()), usage.unpaid_bytes(device())), (50, 0));
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
