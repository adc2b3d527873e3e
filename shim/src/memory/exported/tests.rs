use super::*;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::runtime::ofd_key;

use vcuda_region::DeviceIndex;
use vcuda_region::process::Identity;
use vcuda_region::shared::Shared;
use vcuda_region::slots::Slot;

const LIMIT: u64 = 1 << 30;
const BYTES: u64 = 2 << 20;

/// A file that stands for the driver's control device: descriptors are openings of it.
struct Control(std::path::PathBuf);

impl Control {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vcuda-exported-{name}-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        Self(path)
    }

    fn open(&self) -> File {
        File::open(&self.0).unwrap()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn device() -> DeviceIndex {
    DeviceIndex::new(0).unwrap()
}

/// Exports memory of the slot's own as `file`; no process holds it any more.
fn export_as_file(exported: &Exported, slot: &Slot<'_>, file: &impl AsRawFd) -> ObjectKey {
    let key = ofd_key::assign(file.as_raw_fd(), None, BYTES, false).unwrap().key;
    slot.reserve(device(), BYTES, LIMIT).unwrap().commit();
    let object: Shared = slot.share(key, device(), BYTES).unwrap();
    assert!(slot.outlive(&object, exported.keeper(file.as_raw_fd(), key)));
    slot.part(object);
    key
}

fn after_release(exported: &Exported, usage: &Usage) -> u64 {
    exported.settle(usage, true);
    usage.used_bytes(device())
}

/// Waits up to ten seconds until so many bytes are left: a child that another test forks keeps the descriptors.
fn comes_to(bytes: u64, exported: &Exported, usage: &Usage) {
    let end_ns = clock::now_ns() + 10_000_000_000;
    while after_release(exported, usage) != bytes {
        assert!(clock::now_ns() < end_ns, "{} bytes are left", usage.used_bytes(device()));
    }
}

#[test]
fn memory_counts_until_the_last_descriptor_of_that_very_object_is_closed() {
    let (control, exported) = (Control::new("last"), Exported::default());
    // The driver has the control device open in every process.
    let _driver = control.open();
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&Identity::current().unwrap()).unwrap();
    let (first, second) = (control.open(), control.open());
    let keys = [&first, &second].map(|file| export_as_file(&exported, &slot, file));
    assert_ne!(keys[0], keys[1]);
    assert_eq!(after_release(&exported, &usage), 2 * BYTES);
    let copy = OwnedFd::from(first.try_clone().unwrap());
    drop(first);
    assert_eq!(after_release(&exported, &usage), 2 * BYTES, "a copy is open");
    drop(copy);
    comes_to(BYTES, &exported, &usage);
    drop(second);
    comes_to(0, &exported, &usage);
}

#[test]
fn another_process_of_the_tenant_can_prove_it_too() {
    let (control, exported) = (Control::new("other"), Exported::default());
    let driver = control.open();
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&Identity::current().unwrap()).unwrap();
    let file = control.open();
    export_as_file(&exported, &slot, &file);
    // What another process knows: nothing but the table.
    let other = Exported::default();
    assert_eq!(after_release(&other, &usage), BYTES);
    drop(file);
    comes_to(0, &other, &usage);
    drop(driver);
}

#[test]
fn where_nothing_can_be_asked_nothing_is_released() {
    let (control, exported) = (Control::new("nothing"), Exported::default());
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&Identity::current().unwrap()).unwrap();
    let file = control.open();
    export_as_file(&exported, &slot, &file);
    drop(file);
    // Now as in a process that has the inode neither open nor among its device nodes.
    let own = exported.0.lock().descriptions[0].1;
    // SAFETY: a descriptor that nothing else in this test uses.
    unsafe { libc::close(own) };
    assert_eq!(after_release(&exported, &usage), BYTES);
    let _driver = control.open();
    comes_to(0, &exported, &usage);
}

#[test]
fn a_program_that_closes_all_descriptors_closes_the_description_too() {
    let (control, exported) = (Control::new("closes"), Exported::default());
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&Identity::current().unwrap()).unwrap();
    let file = control.open();
    export_as_file(&exported, &slot, &file);
    let own = exported.0.lock().descriptions[0].1;
    // SAFETY: a descriptor that nothing else in this test uses.
    unsafe { libc::close(own) };
    // Its number is another file's now.
    let elsewhere = Control::new("elsewhere").open();
    // SAFETY: both are numbers; what was there is closed above.
    assert_eq!(unsafe { libc::dup2(elsewhere.as_raw_fd(), own) }, own);
    assert_eq!(after_release(&exported, &usage), BYTES, "still open");
    // SAFETY: made above.
    unsafe { libc::close(own) };
    drop(file);
}

#[test]
fn what_is_closed_counts_for_a_moment_longer() {
    let (control, exported) = (Control::new("moment"), Exported::default());
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&Identity::current().unwrap()).unwrap();
    let file = control.open();
    export_as_file(&exported, &slot, &file);
    drop(file);
    let mut state = exported.0.lock();
    // As above: another test's child may have it open for a moment.
    let mut moments = (clock::now_ns()..).take(1_000_000);
    let is_closed_at = |now_ns: &u64| state.end_released(&usage, *now_ns) == RELEASED_AFTER_NS;
    let now_ns = moments.find(is_closed_at).unwrap();
    assert_eq!(state.end_released(&usage, now_ns + RELEASED_AFTER_NS - 1), 1);
    assert_eq!(usage.used_bytes(device()), BYTES);
    assert_eq!(state.end_released(&usage, now_ns + RELEASED_AFTER_NS), 0);
    assert_eq!(usage.used_bytes(device()), 0);
}

/// A descriptor that can be polled and is no file that could be opened anew, as a dma-buf.
fn dma_buf() -> OwnedFd {
    std::io::pipe().unwrap().0.into()
}

/// Another process of the tenant, which could have a descriptor.
fn neighbour(usage: &Usage) -> Slot<'_> {
    usage.claim(&Identity { pid: 1, ..Identity::current().unwrap() }).unwrap()
}

#[test]
fn what_cannot_be_opened_anew_counts_until_its_last_descriptor_is_closed() {
    let exported = Exported::default();
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&Identity::current().unwrap()).unwrap();
    let _neighbour = neighbour(&usage);
    let (first, second) = (dma_buf(), dma_buf());
    let keys = [&first, &second].map(|file| export_as_file(&exported, &slot, file));
    assert_ne!(keys[0], keys[1]);
    let copy = first.try_clone().unwrap();
    drop(first);
    assert_eq!(after_release(&exported, &usage), 2 * BYTES, "a copy is open");
    drop(copy);
    comes_to(BYTES, &exported, &usage);
    drop(second);
    assert_eq!(after_release(&Exported::default(), &usage), BYTES, "another process cannot tell");
    comes_to(0, &exported, &usage);
}

#[test]
fn two_descriptors_of_one_object_both_keep_it() {
    let exported = Exported::default();
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&Identity::current().unwrap()).unwrap();
    let _neighbour = neighbour(&usage);
    let (first, second) = (dma_buf(), dma_buf());
    let key = export_as_file(&exported, &slot, &first);
    assert_eq!(ofd_key::assign(second.as_raw_fd(), Some(key), BYTES, false).unwrap().key, key);
    let keeper = exported.keeper(second.as_raw_fd(), key);
    assert_eq!(Some(keeper), usage.unheld().next().map(|object| object.outlives));
    drop(first);
    assert_eq!(after_release(&exported, &usage), BYTES);
    drop(second);
    comes_to(0, &exported, &usage);
}

#[test]
fn what_a_closed_watch_saw_is_asked_of_the_list_of_locks() {
    let exported = Exported::default();
    let usage = Usage::in_memory().unwrap();
    let slot = usage.claim(&Identity::current().unwrap()).unwrap();
    let file = dma_buf();
    export_as_file(&exported, &slot, &file);
    let watch = exported.0.lock().watch.as_ref().unwrap().epoll;
    // Its number is another watch's now, which lists nothing.
    let other = watch::Watch::new().unwrap();
    // SAFETY: both are descriptors that nothing else in this test uses.
    assert_eq!(unsafe { libc::dup2(other.epoll, watch) }, watch);
    assert_eq!(after_release(&exported, &usage), BYTES, "it is open");
    drop(file);
    comes_to(0, &exported, &usage);
}
