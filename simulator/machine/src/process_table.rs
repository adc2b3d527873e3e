//! Processes of the machine: joining, and removal of dead ones.

use crate::commit::{CannotCommit, Change};
use crate::core::{ClientRow, Core, DESCRIPTORS, HoldRow, RecordRow};
use crate::layout::{CLIENTS, RECORDS, as_index, entry, record, split};
use crate::map::Mapping;
use crate::shared::{CLIENT_SLOTS, Local, Shared};
use crate::sys;
use crate::{objects, releasing, ring};

/// Interval of the checks for dead processes (ns).
const CHECK_EVERY_NS: u64 = 10_000_000;

impl Shared {
    /// Removes dead processes, if this process has not checked for a while.
    pub(crate) fn check_processes(&self, local: &mut Local) -> Result<(), CannotCommit> {
        if !self.liveness.has_others() || sys::monotonic_ns() < local.checked_ns + CHECK_EVERY_NS {
            return Ok(());
        }
        self.end_dead_processes(local)
    }

    /// Whether a dead process has not been removed yet.
    pub(super) fn is_any_dead(&self, core: &Core) -> bool {
        core.clients.iter().any(|row| !self.liveness.is_alive(row.slot))
    }

    /// Removes dead processes: memory, contexts and pending work are freed, and a record is kept.
    pub(crate) fn end_dead_processes(&self, local: &mut Local) -> Result<(), CannotCommit> {
        local.checked_ns = sys::monotonic_ns();
        self.refresh(local)?;
        let is_dead = |row: &&ClientRow| !self.liveness.is_alive(row.slot);
        let dead: Vec<u64> = local.base.clients.iter().filter(is_dead).map(|row| row.id).collect();
        dead.into_iter().try_for_each(|client| {
            let last_sign = self.last_sign(&local.base, client);
            self.end_process(local, client, last_sign)
        })?;
        self.drop_closed_descriptors(local)?;
        self.release_due(local)
    }

    /// Ends the holds of exported descriptors that are all closed.
    fn drop_closed_descriptors(&self, local: &mut Local) -> Result<(), CannotCommit> {
        self.refresh(local)?;
        let exported = |row: &&HoldRow| row.client == DESCRIPTORS;
        let exported: Vec<HoldRow> = local.base.holds.iter().filter(exported).copied().collect();
        for seen in exported {
            if self.objects.has_descriptors(seen.object) {
                continue;
            }
            let gone = self.transact(local, None, |core| {
                // If another process exported it meanwhile, the row has changed.
                if core.hold_of(seen.object, DESCRIPTORS) != Some(&seen) {
                    return Change::None(false);
                }
                Change::Made(releasing::until(core, self.retainer(), |core| {
                    objects::release(core, seen.object, DESCRIPTORS, u64::MAX)
                }))
            })?;
            if gone {
                self.objects.forget(&[seen.object]);
            }
        }
        Ok(())
    }

    /// The last time at which the process is known to have lived: its last submission, or the core's time, which its
    /// waiting kept recent. Later effects of its work are unknown, and not counted.
    fn last_sign(&self, core: &Core, client: u64) -> u64 {
        let streams = core.streams.iter().filter(|row| row.client == client);
        let submissions = streams.filter_map(|row| {
            let (ring, base) = split(row.id);
            let last = ring::tail(&self.map, ring).checked_sub(1).filter(|last| *last >= base)?;
            Some(self.map.load(entry(ring, last) + 2))
        });
        submissions.fold(core.now, u64::max).min(self.now())
    }

    /// Removes a process of the machine, after playing its work up to `until`.
    pub(crate) fn end_process(&self, local: &mut Local, client: u64, until: u64) -> Result<(), CannotCommit> {
        let next_record = local.base.history;
        self.reserve(record(next_record), record(next_record + 64) - record(next_record))?;
        let retainer = self.retainer_of_client(client);
        let gone = self.transact(local, Some(until), |core| {
            if !core.clients.iter().any(|row| row.id == client) {
                return Change::None(Vec::new());
            }
            Change::Made(releasing::until(core, retainer, |core| remove_client(core, &self.map, client)))
        })?;
        self.objects.forget(&gone);
        Ok(())
    }

    /// Claims a slot that no client has. A dead client's slot would look alive until the successor has joined.
    fn free_slot(&self, local: &mut Local) -> Result<u64, CannotCommit> {
        loop {
            self.refresh(local)?;
            let is_free = |slot: &u64| local.base.clients.iter().all(|row| row.slot != *slot);
            let slot = self.liveness.claim(CLIENT_SLOTS.filter(is_free));
            let slot = slot.ok_or(CannotCommit::NoSlot)?;
            self.refresh(local)?;
            if local.base.clients.iter().all(|row| row.slot != slot) {
                return Ok(slot);
            }
            // A process joined there and died meanwhile.
            self.liveness.release(slot);
            self.end_dead_processes(local)?;
        }
    }

    /// Adds a process. Returns its id and its slot.
    pub(crate) fn join(&self, pid: u32, name: &str) -> Result<(u64, u64), CannotCommit> {
        let local = &mut *self.local.lock();
        let mut strays = self.objects.all();
        self.end_dead_processes(local)?;
        self.refresh(local)?;
        strays.retain(|object| local.base.object(*object).is_none());
        self.objects.forget(&strays);
        let slot = self.free_slot(local)?;
        let predecessor = |core: &Core| core.clients.iter().find(|row| row.slot == slot).map(|row| row.id);
        let joined = self.transact(local, Some(self.now()), |core| {
            // The slot's previous process is dead, as the slot could be claimed.
            let gone = predecessor(core).map_or_else(Vec::new, |dead| {
                releasing::until(core, self.retainer_of_client(dead), |core| {
                    remove_client(core, &self.map, dead)
                })
            });
            if core.clients.len() >= as_index(CLIENTS) {
                return Change::None(None);
            }
            let id = core.next_client;
            core.next_client += 1;
            let (pid, seen) = (u64::from(pid), core.now);
            let host_pid = self.own_host_pid(pid);
            core.clients.push(ClientRow {
                id,
                slot,
                pid,
                namespace: self.own_namespace(),
                host_pid,
                name: pack_name(name),
                seen,
            });
            Change::Made(Some((id, gone)))
        });
        match joined {
            Ok(Some((id, gone))) => {
                self.objects.forget(&gone);
                Ok((id, slot))
            }
            failed => {
                self.liveness.release(slot);
                failed.map(drop).and(Err(CannotCommit::NoSlot))
            }
        }
    }
}

/// Removes a client from the core. Returns the removed objects.
fn remove_client(core: &mut Core, map: &Mapping, client: u64) -> Vec<u64> {
    let gone = objects::release_all(core, client);
    let pid = core.clients.iter().find(|row| row.id == client).map_or(0, |row| row.pid);
    let contexts: Vec<u64> =
        core.contexts.iter().filter(|row| row.client == client).map(|row| row.id).collect();
    for context in contexts {
        remove_context(core, map, context);
    }
    for position in (0..core.uses.len()).rev() {
        let Some(row) = core.uses.get(position).copied().filter(|row| row.client == client) else {
            continue;
        };
        core.uses.remove(position);
        if let Some(gpu) = core.gpus.get_mut(as_index(row.gpu)) {
            gpu.used -= row.used.min(gpu.used);
        }
        if core.history < RECORDS {
            core.records.push(RecordRow {
                index: core.history,
                pid,
                gpu: row.gpu,
                first: row.first,
                last: row.last,
                service: row.service,
                peak: row.peak,
                launches: row.launches,
                denied: row.denied,
            });
            core.history += 1;
        }
    }
    core.clients.retain(|row| row.id != client);
    core.checkpoints.retain(|row| row.client != client);
    core.members.retain(|row| row.client != client);
    gone
}

/// Removes a context and its streams from the core. Its memory stays.
pub(crate) fn remove_context(core: &mut Core, map: &Mapping, context: u64) {
    for position in (0..core.streams.len()).rev() {
        if core.streams.get(position).is_some_and(|row| row.context == context) {
            remove_stream(core, map, position);
        }
    }
    core.contexts.retain(|row| row.id != context);
}

/// Removes a stream from the core; its kernels stay counted.
pub(crate) fn remove_stream(core: &mut Core, map: &Mapping, position: usize) {
    if position >= core.streams.len() {
        return;
    }
    let row = core.streams.remove(position);
    let launches = ring::kernels(map, split(row.id).0).saturating_sub(row.kernels);
    if let Some(found) = core.position_of_use(row.client, row.gpu)
        && let Some(used) = core.uses.get_mut(found)
    {
        used.launches += launches;
    }
}

fn pack_name(name: &str) -> [u64; 8] {
    let mut bytes = [0u8; 64];
    for (to, from) in bytes.iter_mut().take(63).zip(name.bytes()) {
        *to = from;
    }
    let mut words = [0u64; 8];
    let chunks = bytes.as_chunks::<8>().0;
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}

/// The text packed by `pack_name`.
pub(crate) fn unpack_name(words: &[u64; 8]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
