//! Moving a process's GPU state to the host's memory and back.
#![expect(clippy::disallowed_methods, reason = "threads that outlive the test")]

use super::*;
use crate::{Barrier, CheckpointFault, CheckpointState, CheckpointStep, Faults, NotMoved};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

const LOCK: CheckpointStep = CheckpointStep::Lock { timeout_ms: 0 };

/// A process with 20 MiB in use, whose thread serves until the test program ends.
fn served(machine: &Machine, pid: u32, dir: &Path) -> (&'static Client, StreamId) {
    let (client, stream) = tenant(machine, pid);
    client.take(0, 10 << 20).unwrap();
    let (client, dir): (&'static Client, PathBuf) = (Box::leak(Box::new(client)), dir.to_owned());
    std::thread::spawn(move || client.serve_checkpoints(&dir));
    (client, stream)
}

fn quick() -> Machine {
    let mut config = config();
    config.driver.checkpoint_fixed_ns = 0;
    config.driver.checkpoint_bytes_per_us = 1 << 40;
    Machine::in_memory(config).unwrap()
}

/// Asks in a thread of its own.
fn ask(machine: &Machine, pid: u32, step: CheckpointStep) -> JoinHandle<Result<(), NotMoved>> {
    let machine = machine.clone();
    std::thread::spawn(move || machine.move_state(pid, step))
}

fn no_faults() -> PathBuf {
    std::env::temp_dir().join("vcuda-no-faults")
}

#[test]
fn memory_leaves_the_gpu_and_comes_back() {
    let machine = quick();
    let (client, _) = served(&machine, 1, &no_faults());
    let used = || (machine.memory(0).used_bytes, machine.processes(0).len());
    assert!(client.is_undisturbed());
    assert_eq!(machine.move_state(1, LOCK), Ok(()));
    assert_eq!(machine.checkpoint_state(1), Some(CheckpointState::Locked));
    assert!(!client.is_undisturbed());
    assert_eq!((client.barrier().0, used()), (Barrier::Locked, (20 << 20, 1)));
    assert_eq!(machine.move_state(1, CheckpointStep::Checkpoint), Ok(()));
    assert_eq!((client.barrier().0, used()), (Barrier::Away, (0, 0)));
    let state = machine.checkpoint_state(1);
    assert_eq!(state, Some(CheckpointState::Checkpointed));
    assert_eq!(machine.move_state(1, CheckpointStep::Restore), Ok(()));
    assert_eq!((client.barrier().0, used()), (Barrier::Locked, (20 << 20, 1)));
    assert_eq!(machine.move_state(1, CheckpointStep::Unlock), Ok(()));
    assert_eq!(client.barrier().0, Barrier::Open);
    assert!(client.is_undisturbed());
}

#[test]
fn each_step_has_one_state_from_which_it_goes() {
    let machine = quick();
    let _served = served(&machine, 1, &no_faults());
    let all = [LOCK, CheckpointStep::Checkpoint, CheckpointStep::Restore, CheckpointStep::Unlock];
    let refused_but = |right: &[CheckpointStep]| {
        for step in all.iter().filter(|step| !right.contains(step)) {
            assert_eq!(machine.move_state(1, *step), Err(NotMoved::IllegalState), "{step:?}");
        }
    };
    refused_but(&[LOCK]);
    machine.move_state(1, LOCK).unwrap();
    refused_but(&[CheckpointStep::Checkpoint, CheckpointStep::Unlock]);
    machine.move_state(1, CheckpointStep::Checkpoint).unwrap();
    refused_but(&[CheckpointStep::Restore]);
    assert_eq!(machine.move_state(2, LOCK), Err(NotMoved::NoProcess));
    assert_eq!(machine.checkpoint_state(2), None);
}

#[test]
fn a_lock_waits_for_the_gpus_work() {
    let machine = quick();
    let (client, stream) = served(&machine, 1, &no_faults());
    client.submit(stream, kernel(MS)).unwrap();
    let asked = ask(&machine, 1, LOCK);
    super::processes::until("the gate is closed", || client.barrier().0 == Barrier::Locked);
    assert_eq!(machine.checkpoint_state(1), Some(CheckpointState::Running));
    machine.step_clock(MS);
    assert_eq!(asked.join().unwrap(), Ok(()));
    // Of a call that had begun before the lock.
    let late = client.submit(stream, kernel(MS)).unwrap();
    machine.step_clock(10 * MS);
    assert!(!client.is_done(late));
    machine.move_state(1, CheckpointStep::Unlock).unwrap();
    machine.step_clock(MS);
    assert!(client.is_done(late));
}

#[test]
fn a_lock_that_comes_too_late_changes_nothing() {
    let machine = quick();
    let (client, stream) = served(&machine, 1, &no_faults());
    client.submit(stream, kernel(u64::MAX)).unwrap();
    let asked = ask(&machine, 1, CheckpointStep::Lock { timeout_ms: 5 });
    super::processes::until("the gate is closed", || client.barrier().0 == Barrier::Locked);
    machine.step_clock(5 * MS);
    assert_eq!(asked.join().unwrap(), Err(NotMoved::NotReady));
    assert_eq!(client.barrier().0, Barrier::Open);
    assert_eq!(machine.checkpoint_state(1), Some(CheckpointState::Running));
}

#[test]
fn a_call_that_had_begun_takes_and_gives_after_the_unlock() {
    let machine = quick();
    let (client, _) = served(&machine, 1, &no_faults());
    machine.move_state(1, LOCK).unwrap();
    machine.move_state(1, CheckpointStep::Checkpoint).unwrap();
    let taker = std::thread::spawn(|| client.take(0, 3 << 20));
    let giver = std::thread::spawn(|| client.give(0, 1 << 20));
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(machine.memory(0).used_bytes, 0);
    machine.move_state(1, CheckpointStep::Restore).unwrap();
    machine.move_state(1, CheckpointStep::Unlock).unwrap();
    taker.join().unwrap().unwrap();
    giver.join().unwrap();
    assert_eq!(machine.memory(0).used_bytes, 22 << 20);
}

#[test]
fn a_restore_without_room_loses_the_process() {
    let machine = quick();
    let _served = served(&machine, 1, &no_faults());
    let (neighbour, _) = tenant(&machine, 2);
    machine.move_state(1, LOCK).unwrap();
    machine.move_state(1, CheckpointStep::Checkpoint).unwrap();
    neighbour.take(0, 980 << 20).unwrap();
    let restore = || machine.move_state(1, CheckpointStep::Restore);
    assert_eq!(restore(), Err(NotMoved::OutOfMemory));
    neighbour.give(0, 980 << 20);
    assert_eq!(restore(), Err(NotMoved::OperatingSystem));
    let state = machine.checkpoint_state(1);
    assert_eq!(state, Some(CheckpointState::Checkpointed));
    let unlock = machine.move_state(1, CheckpointStep::Unlock);
    assert_eq!(unlock, Err(NotMoved::IllegalState));
}

#[test]
fn managed_and_shared_memory_stays() {
    let machine = quick();
    let (client, _) = served(&machine, 1, &no_faults());
    let checkpoint = || machine.move_state(1, CheckpointStep::Checkpoint);
    machine.move_state(1, LOCK).unwrap();
    machine.move_state(1, CheckpointStep::Unlock).unwrap();
    client.take_managed(0, 1 << 20).unwrap();
    machine.move_state(1, LOCK).unwrap();
    assert_eq!(checkpoint(), Err(NotMoved::NotSupported));
    assert_eq!(machine.memory(0).used_bytes, 21 << 20);
    machine.move_state(1, CheckpointStep::Unlock).unwrap();
    client.give_managed(0, 1 << 20);
    client.object_create(0, 1 << 20, 0).unwrap();
    machine.move_state(1, LOCK).unwrap();
    assert_eq!(checkpoint(), Err(NotMoved::NotSupported));
}

#[test]
fn a_step_goes_wrong_as_the_faults_say() {
    let dir = std::env::temp_dir().join(format!("vcuda-checkpoint-faults-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let machine = quick();
    let _served = served(&machine, 1, &dir);
    let mut faults = Faults::default();
    faults.checkpoints.lock = Some(CheckpointFault::Refused);
    faults.write(&dir).unwrap();
    assert_eq!(machine.move_state(1, LOCK), Err(NotMoved::OperatingSystem));
    assert_eq!(machine.checkpoint_state(1), Some(CheckpointState::Running));
    faults.checkpoints.lock = Some(CheckpointFault::Hangs);
    faults.write(&dir).unwrap();
    let asked = ask(&machine, 1, LOCK);
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(!asked.is_finished());
    faults.checkpoints.lock = None;
    faults.checkpoints.checkpoint = Some(CheckpointFault::Fails);
    faults.write(&dir).unwrap();
    assert_eq!(asked.join().unwrap(), Ok(()));
    let checkpoint = || machine.move_state(1, CheckpointStep::Checkpoint);
    assert_eq!(checkpoint(), Err(NotMoved::OperatingSystem));
    assert_eq!(machine.checkpoint_state(1), Some(CheckpointState::Failed));
    std::fs::remove_file(dir.join("faults.toml")).unwrap();
    assert_eq!(checkpoint(), Err(NotMoved::IllegalState));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_target_that_dies_ends_the_request_and_frees_what_was_away() {
    let machine = quick();
    let (client, _) = tenant(&machine, 1);
    // No thread serves it.
    let asked = ask(&machine, 1, LOCK);
    std::thread::sleep(std::time::Duration::from_millis(10));
    drop(client);
    assert_eq!(asked.join().unwrap(), Err(NotMoved::NoProcess));
    assert_eq!(machine.memory(0).used_bytes, 0);
}
