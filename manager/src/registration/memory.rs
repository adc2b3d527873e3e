//! Answers to processes that ask for NVML's figure of their memory ([`vcuda_region::registration::Question`]).
//!
//! A separate thread asks NVML, which may hang, so the registrar's thread never waits. Questions that arrive together share
//! one query of NVML, made after the last of them. At most [`MOST_OF_ONE`] questions of a tenant and [`MOST_IN_ALL`] of all
//! tenants wait. Beyond that, or without a timely answer, a process is told at once that nothing is known, and measures by
//! itself.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::net::{SendFlags, send};
use vcuda_region::registration::{Answer, ProcessMemory, Reply, Status};
use vcuda_region::{GpuUuid, clock, release};

use super::peer::Peer;
use crate::gpu::Processes;

/// Maximum number of waiting questions of one tenant.
pub(super) const MOST_OF_ONE: usize = 256;
/// Maximum number of waiting questions of all tenants.
const MOST_IN_ALL: usize = 1024;
/// Time after which a process no longer waits for its answer (ns).
const STALE_NS: u64 = 500_000_000;

#[derive(Debug)]
pub(super) struct Pending {
    connection: OwnedFd,
    peer: Peer,
    gpu: GpuUuid,
    asked_ns: u64,
    _place: Place,
}

/// Number of a tenant's waiting questions.
#[derive(Debug, Default)]
pub(super) struct Waiting(Arc<AtomicUsize>);

/// A place among a tenant's waiting questions, freed on drop.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Waiting {
    fn take_place(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::Relaxed) < MOST_OF_ONE).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Queue to the thread that asks NVML. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Asker(SyncSender<Pending>);

impl Asker {
    pub(super) fn start(processes: Box<Processes>) -> io::Result<Self> {
        let (ask, asked) = sync_channel(MOST_IN_ALL);
        std::thread::Builder::new()
            .name("memory-answers".to_owned())
            .spawn(move || answer_all(&asked, &*processes))?;
        Ok(Self(ask))
    }

    /// Queues a process's question, to be answered over its connection. Never blocks.
    pub(super) fn ask(&self, connection: OwnedFd, peer: Peer, gpu: GpuUuid, now_ns: u64, waiting: &Waiting) {
        let Some(place) = waiting.take_place() else {
            return reply(&connection, Status::Accepted, ProcessMemory::Unknown);
        };
        let pending = Pending { connection, peer, gpu, asked_ns: now_ns, _place: place };
        if let Err(TrySendError::Full(pending) | TrySendError::Disconnected(pending)) =
            self.0.try_send(pending)
        {
            reply(&pending.connection, Status::Accepted, ProcessMemory::Unknown);
        }
    }
}

/// Sends a reply. A process that does not read it does not need it.
pub(super) fn reply(connection: &OwnedFd, status: Status, memory: ProcessMemory) {
    let (_, version) = release::protocols();
    let answer = Answer { version, status };
    let bytes = Reply { answer, memory }.encode();
    let _ = send(connection, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Answers questions until the registrar has ended.
fn answer_all(asked: &Receiver<Pending>, processes: &Processes) {
    while let Ok(first) = asked.recv() {
        let mut by_gpu: BTreeMap<GpuUuid, Vec<Pending>> = BTreeMap::new();
        for pending in core::iter::once(first).chain(asked.try_iter().take(MOST_IN_ALL)) {
            by_gpu.entry(pending.gpu).or_default().push(pending);
        }
        for (gpu, pending) in by_gpu {
            answer(&gpu, &pending, processes);
        }
    }
}

/// Answers the questions about one GPU with one query of NVML.
fn answer(gpu: &GpuUuid, pending: &[Pending], processes: &Processes) {
    let now_ns = clock::now_ns();
    let is_awaited = |one: &Pending| now_ns.saturating_sub(one.asked_ns) < STALE_NS;
    // NVML is not asked if all askers have given up, which spares a hanging NVML.
    let listed = if pending.iter().any(is_awaited) { processes(gpu).ok() } else { None };
    for one in pending {
        let memory = match &listed {
            // The process was alive after NVML was asked, so the host PID in NVML's list was its own.
            Some(listed) if one.peer.lives() => memory_of(listed, one.peer.host_pid),
            _ => ProcessMemory::Unknown,
        };
        reply(&one.connection, Status::Accepted, memory);
    }
}

/// Memory of one process in NVML's list.
fn memory_of(listed: &[(u32, Option<u64>)], host_pid: u32) -> ProcessMemory {
    match listed.iter().find(|(pid, _)| *pid == host_pid) {
        Some((_, Some(bytes @ 1..))) => ProcessMemory::Bytes(*bytes),
        Some(_) => ProcessMemory::Unknown,
        None => ProcessMemory::NotListed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_bytes_of_a_listed_process_are_no_answer() {
        let listed = [(1, Some(0)), (2, None), (3, Some(7))];
        assert_eq!(memory_of(&listed, 1), ProcessMemory::Unknown);
        assert_eq!(memory_of(&listed, 2), ProcessMemory::Unknown);
        assert_eq!(memory_of(&listed, 3), ProcessMemory::Bytes(7));
        assert_eq!(memory_of(&listed, 4), ProcessMemory::NotListed);
    }

    #[test]
    fn places_of_a_tenant_are_few_and_come_back() {
        let waiting = Waiting::default();
        let mut places: Vec<Place> = (0..MOST_OF_ONE).filter_map(|_| waiting.take_place()).collect();
        assert_eq!(places.len(), MOST_OF_ONE);
        assert!(waiting.take_place().is_none() && waiting.take_place().is_none());
        places.pop();
        assert!(waiting.take_place().is_some());
    }
}
