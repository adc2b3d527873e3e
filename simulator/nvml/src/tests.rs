//! What needs no machine.

use crate::{answer, exports, identity, unsupported};
use std::collections::BTreeSet;
use vcuda_driver_api::{NvmlError, names};

#[test]
fn every_name_is_exported_once() {
    let all: Vec<&str> = exports::HANDLED
        .iter()
        .chain(unsupported::UNSUPPORTED)
        .copied()
        .collect();
    let once: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(once.len(), all.len(), "a name stands twice");
    assert_eq!(once.into_iter().collect::<Vec<_>>(), names::NVML_EXPORTS);
}

#[test]
fn addresses_are_read_in_every_form() {
    for text in [
        "0000:17:00.0",
        "00000000:17:00.0",
        "0:17:0",
        "17:00.0",
        "00000000:17:00.7",
    ] {
        assert_eq!(identity::pci_address(text), Some((0, 0x17, 0)), "{text}");
    }
    for text in ["", "17", "x:y:z", "1:2:3:4"] {
        assert_eq!(identity::pci_address(text), None, "{text}");
    }
}

#[test]
fn a_uuid_has_sixteen_bytes() {
    let uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
    assert_eq!(
        identity::uuid_bytes(uuid),
        Some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])
    );
    assert_eq!(identity::uuid_bytes("GPU-0001"), None);
}

#[test]
fn text_needs_room_for_its_end() {
    let mut buffer = [0x7f; 4];
    assert_eq!(
        answer::put_text(buffer.as_mut_ptr(), 3, "abc"),
        Err(NvmlError::INSUFFICIENT_SIZE)
    );
    assert_eq!(answer::put_text(buffer.as_mut_ptr(), 4, "abc"), Ok(()));
    assert_eq!(buffer, [97, 98, 99, 0]);
    assert_eq!(
        answer::put_text(std::ptr::null_mut(), 4, "abc"),
        Err(NvmlError::INVALID_ARGUMENT)
    );
}

#[test]
fn a_short_array_learns_its_size() {
    let (mut array, mut count) = ([0; 2], 1);
    assert_eq!(
        answer::put_all(array.as_mut_ptr(), &raw mut count, &[5, 6]),
        Err(NvmlError::INSUFFICIENT_SIZE)
    );
    assert_eq!((count, array), (2, [0, 0]));
    assert_eq!(
        answer::put_all(array.as_mut_ptr(), &raw mut count, &[5, 6]),
        Ok(())
    );
    assert_eq!(array, [5, 6]);
}
