//! Tests of memory objects.

use super::processes::{Place, until};
use super::*;
use crate::ObjectId;
use std::os::fd::AsRawFd;

const MIB: u64 = 1 << 20;

/// Memory used by the first process, by the second, and on the GPU (MiB), without the contexts' 10 MiB each.
fn used(machine: &Machine) -> (u64, u64, u64) {
    let report = machine.report();
    let of = |pid| {
        let is_it = |process: &&crate::ProcessReport| process.pid == pid && process.alive;
        let process = report.processes.iter().find(is_it);
        process.map_or(0, |process| (process.memory_used_bytes >> 20).saturating_sub(10))
    };
    let living = report.processes.iter().filter(|process| process.alive).count();
    let contexts = 10 * u64::try_from(living).unwrap();
    (of(1), of(2), (report.gpus[0].memory_used_bytes >> 20).saturating_sub(contexts))
}

#[test]
fn an_object_counts_once_with_its_oldest_holder() {
    let machine = machine();
    let ((a, _), (b, _)) = (tenant(&machine, 1), tenant(&machine, 2));
    let object = a.object_create(0, 100 * MIB, 7).unwrap();
    assert_eq!(used(&machine), (100, 0, 100));
    let seen = b.object_hold(object, Some(a.id())).unwrap();
    assert_eq!((seen.gpu, seen.bytes, seen.tag), (0, 100 * MIB, 7));
    assert_eq!(used(&machine), (100, 0, 100));
    a.object_release(object);
    assert_eq!(used(&machine), (0, 100, 100));
    assert_eq!(a.object_hold(object, Some(a.id())), Err(Refused::Gone));
    a.object_hold(object, None).unwrap();
    assert_eq!(used(&machine), (0, 100, 100));
    drop(b);
    assert_eq!(used(&machine), (100, 0, 100));
    a.object_hold(object, None).unwrap();
    a.object_release(object);
    assert_eq!(used(&machine), (100, 0, 100), "held twice, let go once");
    a.object_release(object);
    assert_eq!(used(&machine), (0, 0, 0));
    assert_eq!(a.object_hold(object, None), Err(Refused::Gone));
    a.object_release(object);
    assert_eq!(used(&machine), (0, 0, 0));
    assert_eq!(machine.report().gpus[0].memory_peak_bytes, 120 * MIB);
}

#[test]
fn taken_bytes_become_an_object_and_come_back() {
    let machine = machine();
    let ((a, _), (b, _)) = (tenant(&machine, 1), tenant(&machine, 2));
    a.take(0, 50 * MIB).unwrap();
    assert_eq!(a.object_make(0, 61 * MIB, 0), Err(Refused::Gone));
    let object = a.object_make(0, 30 * MIB, 0).unwrap();
    assert_eq!(a.object_make(0, 31 * MIB, 0), Err(Refused::Gone), "some are an object's");
    assert_eq!(used(&machine), (50, 0, 50));
    a.give(0, u64::MAX);
    assert_eq!(machine.memory(0).used_bytes, 40 * MIB, "an object is not given back");
    assert!(a.object_unmake(object));
    a.give(0, 10 * MIB);
    assert_eq!(machine.memory(0).used_bytes, 30 * MIB);
    a.take(0, 10 * MIB).unwrap();
    let object = a.object_make(0, 20 * MIB, 0).unwrap();
    b.object_hold(object, None).unwrap();
    assert!(!a.object_unmake(object), "another one holds it");
    assert_eq!(machine.memory(0).used_bytes, 40 * MIB);
    assert_eq!(used(&machine).1, 20);
}

#[test]
fn an_object_must_fit() {
    let machine = machine();
    let (a, _) = tenant(&machine, 1);
    assert!(matches!(a.object_create(0, 991 * MIB, 0), Err(Refused::OutOfMemory { .. })));
    let object = a.object_create(0, 990 * MIB, 0).unwrap();
    assert!(a.take(0, 1).is_err());
    a.object_release(object);
    a.take(0, 990 * MIB).unwrap();
    assert_eq!(a.object_create(3, 1, 0), Err(Refused::NoSuchGpu(3)));
}

#[test]
fn a_file_from_outside_is_one_object() {
    let machine = machine();
    let ((a, _), (b, _)) = (tenant(&machine, 1), tenant(&machine, 2));
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let again = file.try_clone().unwrap();
    let object = a.object_of_file(&file, 0, 5 * MIB, 3).unwrap();
    assert_eq!(b.object_of_file(&again, 0, 5 * MIB, 3), Ok(object));
    assert_eq!(used(&machine), (5, 0, 5));
    drop(a);
    assert_eq!(used(&machine), (0, 5, 5));
    b.object_release(object.id);
    assert_eq!(used(&machine), (0, 0, 0));
}

/// Program of another process: makes an object, publishes its number as an amount of taken memory, and waits. With
/// `exports`, a process outside of the machine keeps a descriptor open.
pub(super) fn holder(machine: &Machine, exports: u64) {
    let client = machine.attach(2, "holder").unwrap();
    client.context_create(0).unwrap();
    let object = client.object_create(0, 100 * MIB, 0).unwrap();
    let contents = client.object_contents(object).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&contents, b"shared", 4096).unwrap();
    if exports != 0 {
        let file = client.object_export(object).unwrap();
        // SAFETY: sets the flags of a descriptor that is open, so that the next program keeps it.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        let mut sleeper = std::process::Command::new("sleep");
        #[expect(clippy::zombie_processes, reason = "it is to outlive this process, which is killed")]
        let child = sleeper.arg("1000").spawn().unwrap();
        client.take(0, u64::from(child.id())).unwrap();
    }
    client.take(0, object.number() << 20).unwrap();
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

fn place(name: &str) -> Place {
    let mut config = config();
    config.clock = ClockKind::Real;
    Place::new(name, &config)
}

/// The amount of memory taken by a holder, once it is ready.
fn told(machine: &Machine) -> u64 {
    let extra = || used(machine).1.checked_sub(100).filter(|object| *object > 0);
    until("the holder is ready", || extra().is_some());
    let is_it = |process: &crate::ProcessReport| process.pid == 2 && process.alive;
    let process = machine.report().processes.into_iter().find(is_it).unwrap();
    process.memory_used_bytes - 110 * MIB
}

pub(super) fn files(place: &Place) -> usize {
    let is_objects = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("objects.");
    let directory = place.dir.read_dir().unwrap().flatten().find(is_objects).unwrap();
    let is_contents =
        |entry: &std::fs::DirEntry| entry.file_name() != "control" && entry.file_name() != "ranges";
    directory.path().read_dir().unwrap().flatten().filter(is_contents).count()
}

#[test]
fn what_a_killed_maker_leaves_is_its_holders() {
    let place = place("maker");
    let machine = place.machine();
    let (client, _) = tenant(machine, 1);
    let maker = place.start("object", 0);
    let object = ObjectId::of_number(told(machine) >> 20);
    client.object_hold(object, None).unwrap();
    maker.kill();
    assert_eq!(used(machine), (100, 0, 100));
    let mut text = [0; 6];
    let contents = client.object_contents(object).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&contents, &mut text, 4096).unwrap();
    assert_eq!(&text, b"shared");
    assert_eq!(files(&place), 1);
    client.object_release(object);
    assert_eq!(used(machine), (0, 0, 0));
    assert_eq!(files(&place), 0);
    // Without a holder, everything is freed at once.
    let maker = place.start("object", 0);
    told(machine);
    maker.kill();
    assert_eq!(used(machine), (0, 0, 0));
    assert_eq!(files(&place), 0);
}

#[test]
fn a_descriptor_holds_an_object_without_any_process() {
    let place = place("descriptor");
    let machine = place.machine();
    let (client, _) = tenant(machine, 1);
    let maker = place.start("object", 1);
    let mut said = 0;
    until("the holder has said all", || {
        let last = std::mem::replace(&mut said, told(machine));
        last == said && said > MIB
    });
    let (object, sleeper) = (ObjectId::of_number(said >> 20), i32::try_from(said % MIB).unwrap());
    maker.kill();
    assert_eq!(used(machine), (0, 0, 100), "no process's, but there");
    client.object_hold(object, None).unwrap();
    assert_eq!(used(machine), (100, 0, 100));
    client.object_release(object);
    assert_eq!(used(machine), (0, 0, 100));
    // SAFETY: a signal to a process that our own child started and named.
    assert_eq!(unsafe { libc::kill(sleeper, libc::SIGKILL) }, 0);
    until("the descriptor is closed", || used(machine) == (0, 0, 0));
    assert_eq!(files(&place), 0);
}

#[test]
fn a_file_without_an_object_goes() {
    let place = place("stray");
    let client = place.machine().attach(1, "one").unwrap();
    let object = client.object_create(0, MIB, 0).unwrap();
    let contents = client.object_contents(object).unwrap();
    let exported = client.object_export(object).unwrap();
    assert_eq!(client.object_of_descriptor(&exported), Some(object));
    assert_eq!(client.object_of_descriptor(&contents), None, "its contents are no descriptor of it");
    let path = crate::sys::name_of(&contents).unwrap();
    let stray = path.with_file_name("00000000deadbeef");
    std::fs::write(&stray, "").unwrap();
    assert_eq!(client.object_of_descriptor(&std::fs::File::open(&place.dir).unwrap()), None);
    let _other = place.machine().attach(2, "two").unwrap();
    assert!(path.exists() && !stray.exists());
}
