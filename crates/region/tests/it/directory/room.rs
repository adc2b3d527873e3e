//! Requests for room, from the processes' side to the manager's.

use vcuda_region::room;
use vcuda_region::slots::Usage;
use vcuda_region::suspension::SuspensionWords;

use super::*;

#[test]
fn a_request_is_taken_once_and_made_again() {
    let root = root();
    let directory = make(root.path(), "a");
    let usage = Usage::open(directory.path()).unwrap();
    let words = SuspensionWords::open(directory.path()).unwrap();
    let both = room::bit(device(0)) | room::bit(device(1));
    usage.ask_for_room(both);
    assert_eq!(words.take_room_wanted().unwrap(), both);
    assert_eq!(words.take_room_wanted().unwrap(), 0);
    assert_eq!(words.room_denied().unwrap(), 0);
    usage.count_room_denied();
    assert_eq!(words.room_denied().unwrap(), 1);
}

#[test]
fn the_wait_is_as_it_was_declared_and_an_offer_is_followed() {
    let root = root();
    for (name, wait_ms) in [("a", None), ("b", Some(0)), ("c", Some(u32::MAX))] {
        let tenant = Tenant { memory_wait_ms: wait_ms, ..tenant(name) };
        let directory = Directory::create(root.path(), &tenant, b"", None, now_ns()).unwrap();
        let limits = Limits::open(directory.path()).unwrap();
        assert_eq!(limits.memory_wait_ms(), wait_ms, "{name}");
        assert_eq!(limits.room_offered_ns(), 0);
        let writer = LimitsWriter::open(directory.path()).unwrap();
        writer.offer_room(7).unwrap();
        assert!(limits.follow(now_ns()));
        assert_eq!(limits.room_offered_ns(), 7);
    }
}
