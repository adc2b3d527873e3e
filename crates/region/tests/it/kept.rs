//! Memory that a child keeps beyond the death of the process that had it: it has the process's descriptors (I18).
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test that forks")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use parking_lot::Mutex;
use vcuda_quota::DeviceConfig;
use vcuda_region::DeviceIndex;
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::slots::{RELEASED_AFTER_NS, Reaped, Usage};
use vcuda_region::usage_reader::UsageReader;

use crate::made;

const GIB: u64 = 1 << 30;

/// Held by each test from its first line to its last. A child that another test forked meanwhile would have a copy of this
/// test's descriptors, and with it the lock of the directory's creator.
static ALONE: Mutex<()> = Mutex::new(());

fn device() -> DeviceIndex {
    DeviceIndex::new(0).unwrap()
}

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: both were just made, and no other code has them.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    (read.into(), write.into())
}

/// Forks; the child runs `part` and ends.
fn forked(part: impl FnOnce()) -> i32 {
    // SAFETY: no other test runs, and the harness's threads hold no lock that a child needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        part();
        // SAFETY: ends the child, with nothing of the parent's run.
        unsafe { libc::_exit(0) };
    }
    child
}

fn wait_forever() -> ! {
    loop {
        // SAFETY: takes nothing; a signal ends the process.
        unsafe { libc::pause() };
    }
}

fn kill(pid: i32) {
    // SAFETY: a process that this test has started.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

/// A process that claims a slot with 1 GiB and, if `then_forks`, a child of it; their PIDs.
fn start(directory: &Path, then_forks: bool) -> (i32, i32) {
    let (mut read, mut write) = pipe();
    let parent = forked(|| {
        let usage = Usage::open(directory).unwrap();
        let slot = usage.claim(&Identity::current().unwrap()).unwrap();
        slot.reserve(device(), GIB, GIB).unwrap().commit();
        let child = if then_forks { forked(|| wait_forever()) } else { 0 };
        write.write_all(&child.to_ne_bytes()).unwrap();
        wait_forever();
    });
    let mut child = [0; 4];
    read.read_exact(&mut child).unwrap();
    (parent, i32::from_ne_bytes(child))
}

#[test]
fn a_forked_child_keeps_what_its_dead_parent_had() {
    let _alone = ALONE.lock();
    let me = Identity::current().unwrap();
    let (_root, directory) = made(DeviceConfig::new(4 * GIB, 1000));
    let usage = Usage::open(directory.path()).unwrap();
    let reader = UsageReader::open(directory.path()).unwrap();
    let view = ProcessView::new(me);
    let seen = || {
        let shown = reader.memory_of_living(device(), &view).unwrap().used_bytes;
        (usage.used_bytes(device()), shown)
    };
    for then_forks in [false, true] {
        let (parent, child) = start(directory.path(), then_forks);
        assert_eq!(seen(), (GIB, GIB));
        kill(parent);
        // SAFETY: our own child; its status is not asked for.
        unsafe { libc::waitpid(parent, core::ptr::null_mut(), 0) };
        let first = usage.reap_dead(&view);
        assert_eq!(first.cleared, 0, "the driver needs a moment");
        assert_eq!(first.due_in_ns, if then_forks { 0 } else { RELEASED_AFTER_NS });
        let mut cleared = 0;
        if then_forks {
            usage.reap_dead_and_wait(&view);
            std::thread::sleep(std::time::Duration::from_nanos(2 * RELEASED_AFTER_NS));
            assert_eq!(usage.reap_dead(&view).cleared, 0, "the child has the driver's descriptors");
            assert_eq!(seen(), (GIB, GIB));
            kill(child);
            // A child of a dead process is not ours to wait for.
            while cleared == 0 {
                let reaped = usage.reap_dead(&view);
                cleared = reaped.cleared;
                if reaped.due_in_ns > 0 {
                    break;
                }
                std::thread::yield_now();
            }
        }
        cleared += usage.reap_dead_and_wait(&view).cleared;
        assert_eq!(cleared, 1);
        assert_eq!(seen(), (0, 0));
    }
}

/// A child of the program before an `exec` may keep that program's memory. It has copies of its descriptors, as another opening
/// in this process has, and so the lock.
#[test]
fn after_an_exec_the_slot_is_taken_over_only_once_no_child_can_have_the_memory() {
    let _alone = ALONE.lock();
    let me = Identity::current().unwrap();
    let (_root, directory) = made(DeviceConfig::new(4 * GIB, 1000));
    let before = Usage::open(directory.path()).unwrap();
    let slot = before.claim(&me).unwrap();
    assert_eq!(slot.index(), 0, "no process had locked the creator's slot");
    slot.reserve(device(), GIB, GIB).unwrap().commit();
    let after = Usage::open(directory.path()).unwrap();
    let other = after.claim(&me).unwrap();
    assert_eq!((other.index(), after.used_bytes(device())), (1, GIB));
    drop(before);
    let last = Usage::open(directory.path()).unwrap();
    let slot = last.claim(&me).unwrap();
    assert_eq!((slot.index(), last.used_bytes(device())), (0, 0));
}

/// A file under a descriptor of this number or the next one that is free, with a lock that goes when it is released.
fn locked(path: &Path, number: i32) -> File {
    let file = at_number(&File::create(path).unwrap(), number);
    // SAFETY: an open descriptor.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) }, 0);
    file
}

/// Whether a file of [`locked`] is still open somewhere.
fn is_open(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    // SAFETY: an open descriptor; the lock goes with it.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) != 0 }
}

/// Memory of 128 MiB behind a descriptor of this number or the next one that is free: its release takes milliseconds.
fn slow_to_release(number: i32) -> File {
    // SAFETY: makes a file of that name, and touches nothing else.
    let made = unsafe { libc::syscall(libc::SYS_memfd_create, c"slow".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: just made, and no other code has it.
    let file = unsafe { File::from_raw_fd(i32::try_from(made).unwrap()) };
    // SAFETY: an open descriptor.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, 128 << 20) };
    assert_eq!(error, 0);
    at_number(&file, number)
}

fn at_number(file: &File, number: i32) -> File {
    // SAFETY: an open descriptor; the answer is a new one.
    let duplicate = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number) };
    // SAFETY: just made, and no other code has it.
    unsafe { File::from_raw_fd(duplicate) }
}

/// The kernel releases a process's files one after the other, by their numbers. Those of a driver may be below and above the
/// lock on `usage`, which is released after them all the same.
#[test]
fn a_childs_lock_goes_after_all_files_that_were_open() {
    let _alone = ALONE.lock();
    let me = Identity::current().unwrap();
    let (root, directory) = made(DeviceConfig::new(4 * GIB, 1000));
    let [below, above] = ["below", "above"].map(|name| root.path().join(name));
    let (mut read, mut write) = pipe();
    let parent = forked(|| {
        let _open = (locked(&below, 100), slow_to_release(110), slow_to_release(300), locked(&above, 310));
        let usage = Usage::open(directory.path()).unwrap();
        let slot = usage.claim(&Identity::current().unwrap()).unwrap();
        slot.reserve(device(), GIB, GIB).unwrap().commit();
        let child = forked(|| wait_forever());
        write.write_all(&child.to_ne_bytes()).unwrap();
        wait_forever();
    });
    let mut child = [0; 4];
    read.read_exact(&mut child).unwrap();
    kill(parent);
    // SAFETY: our own child; its status is not asked for.
    unsafe { libc::waitpid(parent, core::ptr::null_mut(), 0) };
    let usage = Usage::open(directory.path()).unwrap();
    let view = ProcessView::new(me);
    assert_eq!(usage.reap_dead(&view), Reaped::default(), "the child has the lock");
    kill(i32::from_ne_bytes(child));
    while usage.reap_dead(&view) == Reaped::default() {}
    assert_eq!([&below, &above].map(|path| is_open(path)), [false; 2]);
}

/// A manager may be in a PID namespace below the machine's first one, on a node that is itself a container. It cannot
/// see the PID namespace of a container that has ended. The lock tells.
#[test]
fn death_in_a_namespace_that_cannot_be_seen_is_told_by_the_lock() {
    let _alone = ALONE.lock();
    let me = Identity::current().unwrap();
    let (_root, directory) = made(DeviceConfig::new(4 * GIB, 1000));
    let reader = UsageReader::open(directory.path()).unwrap();
    let elsewhere = ProcessView::new(Identity { pid_namespace: 1, ..me });
    let count = || reader.processes(1, &elsewhere).unwrap().len();
    for then_forks in [false, true] {
        let (parent, child) = start(directory.path(), then_forks);
        assert_eq!(count(), 1);
        kill(parent);
        // SAFETY: our own child; its status is not asked for.
        unsafe { libc::waitpid(parent, core::ptr::null_mut(), 0) };
        if then_forks {
            assert_eq!(count(), 1, "the child has the lock");
            kill(child);
            // A child of a dead process is not ours to wait for.
            while count() > 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(count(), 0);
        Usage::open(directory.path()).unwrap().reap_dead_and_wait(&ProcessView::new(me));
    }
}
