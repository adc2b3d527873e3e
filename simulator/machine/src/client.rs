//! `Client`: one process of the machine.

use crate::commit::{CannotCommit, Change};
use crate::core::{ContextRow, Core, UseRow};
use crate::layout::{CONTEXTS, STREAMS, USES, as_index};
use crate::process_table::remove_context;
use crate::shared::Shared;
use crate::{ContextId, Machine, Refused};
use parking_lot::Mutex;
use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

mod checkpoint;
mod memory;
mod objects;
mod producer;
mod stamp;
mod streams;
mod wait;

pub use checkpoint::Barrier;
pub use objects::{Object, ObjectId};
use producer::Producer;
pub use stamp::Stamp;

/// A process of the machine, shared between its threads by reference. A child of `fork` must not use it.
#[derive(Debug)]
pub struct Client {
    machine: Machine,
    id: u64,
    slot: u64,
    /// PID of the process that attached: a child of `fork` may drop its copy without ending the client.
    process: u32,
    /// This process's descriptor of the driver; `None` on a machine in memory, or if opening failed.
    driver: Option<File>,
    /// This process's end of each stream's queue, by ring.
    producers: Box<[OnceLock<Box<Mutex<Producer>>>]>,
    /// Rings of streams that were destroyed and may still have work.
    closing: Mutex<Vec<u64>>,
    /// Number of calls of `take`.
    allocations: AtomicU64,
    /// The bell's count at which this client was last seen running.
    running_at: AtomicU64,
}

impl Client {
    pub(crate) fn new(machine: Machine, id: u64, slot: u64) -> Client {
        let driver = machine.shared().objects.open_driver(id).ok();
        let producers = (0..STREAMS).map(|_| OnceLock::new()).collect();
        let (closing, allocations, process) = (Mutex::default(), AtomicU64::new(0), std::process::id());
        let running_at = AtomicU64::new(machine.shared().bell(slot));
        Client { machine, id, slot, process, driver, producers, closing, allocations, running_at }
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Number of the client, never reused on one machine.
    pub fn id(&self) -> u64 {
        self.id
    }

    fn shared(&self) -> &Shared {
        self.machine.shared()
    }

    /// Makes a context on `gpu`, which takes `config.context_bytes` there. Error: `Refused`. A lack of memory counts as
    /// a denied allocation.
    pub fn context_create(&self, gpu: usize) -> Result<ContextId, Refused> {
        let bytes = self.shared().config.context_bytes;
        self.claim(gpu, bytes, |core, client| {
            if core.contexts.len() >= CONTEXTS {
                return Err(Refused::Full("contexts"));
            }
            let id = core.next_context;
            core.next_context += 1;
            core.contexts.push(ContextRow { id, client, gpu: gpu as u64 });
            Ok(ContextId(id))
        })
    }

    /// Ends a context: its memory is freed, its streams end, and their pending work is dropped and counts as done.
    pub fn context_destroy(&self, context: ContextId) {
        let shared = self.shared();
        let rings = self.close_streams_of(context);
        let bytes = shared.config.context_bytes;
        self.change_unlocked(true, |core| {
            let is_own = |row: &&ContextRow| row.id == context.0 && row.client == self.id;
            let Some(row) = core.contexts.iter().find(is_own).copied() else {
                return;
            };
            remove_context(core, &shared.map, row.id);
            give_plain(core, self.id, row.gpu, bytes);
        });
        self.forget_streams(&mut shared.local.lock(), &rings);
        shared.wake_waiters();
    }

    /// Plays the machine up to the present.
    pub fn advance(&self) {
        let _ = self.advance_locked(&mut self.shared().local.lock());
    }

    fn advance_locked(&self, local: &mut crate::shared::Local) -> Result<(), CannotCommit> {
        let shared = self.shared();
        shared.check_processes(local)?;
        shared.transact(local, Some(shared.now()), |_| Change::None(()))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            return;
        }
        // A child of `fork` may still have it open.
        self.driver = None;
        let shared = self.shared();
        {
            let local = &mut *shared.local.lock();
            // If this fails, other processes do it once the slot is released.
            let _ = shared.refresh(local).and_then(|()| shared.end_process(local, self.id, shared.now()));
        }
        shared.liveness.release(self.slot);
    }
}

/// Position of the row of `client` on `gpu`, made if missing.
pub(crate) fn use_row(core: &mut Core, client: u64, gpu: u64) -> Result<usize, Refused> {
    if let Some(position) = core.position_of_use(client, gpu) {
        return Ok(position);
    }
    if core.uses.len() >= USES {
        return Err(Refused::Full("processes"));
    }
    let now = core.now;
    core.uses.push(UseRow { client, gpu, first: now, last: now, ..UseRow::default() });
    Ok(core.uses.len() - 1)
}

/// Like `give_back`, but does not touch the memory of the client's objects.
fn give_plain(core: &mut Core, client: u64, gpu: u64, bytes: u64) {
    let used = core
        .position_of_use(client, gpu)
        .and_then(|position| core.uses.get(position))
        .map_or(0, |row| row.used);
    let plain = used.saturating_sub(core.objects_of(Some(client), gpu));
    give_back(core, client, gpu, bytes.min(plain));
}

/// Frees `bytes`, at most what the client holds.
pub(crate) fn give_back(core: &mut Core, client: u64, gpu: u64, bytes: u64) {
    let Some(position) = core.position_of_use(client, gpu) else {
        return;
    };
    let Some(row) = core.uses.get_mut(position) else {
        return;
    };
    let bytes = bytes.min(row.used);
    row.used -= bytes;
    row.managed = row.managed.min(row.used);
    if let Some(gpu) = core.gpus.get_mut(as_index(gpu)) {
        gpu.used -= bytes;
    }
}

impl From<CannotCommit> for Refused {
    fn from(why: CannotCommit) -> Refused {
        match why {
            CannotCommit::DiskFull => Refused::DiskFull,
            CannotCommit::TooLarge => Refused::Full("streams"),
            CannotCommit::NoSlot => Refused::Full("processes"),
            CannotCommit::Damaged => Refused::Gone,
        }
    }
}

impl Client {
    fn next_allocation(&self) -> u64 {
        self.allocations.fetch_add(1, Ordering::Relaxed) + 1
    }
}
