//! The core: the part of the state that is copied and committed as one. Plain numbers; its invariants are in `check`.

use crate::layout::{BUFFER_WORDS, CLIENTS, CONTEXTS, STREAMS, USES, as_index, split};

mod history;
mod row;

pub(crate) use history::{Busy, PERIODS};
pub(crate) use row::Row;
use row::row;

/// Completions that one commit can carry. What is left is the next commit's.
pub(crate) const MAX_EFFECTS: usize = 512;

row! {
    /// A GPU.
    GpuRow {
        /// Resident context, 0: none.
        resident: u64,
        /// Context to be resident at `switch_until`, 0: no switch going on.
        switching_to: u64,
        switch_until: u64,
        /// Slices are counted from here.
        slice_start: u64,
        used: u64,
        peak: u64,
        busy_ns: u64,
        /// Time that changes of the resident context took.
        switched_ns: u64,
        busy: Busy,
    }
}
row! {
    /// A process.
    ClientRow {
        /// Never used twice.
        id: u64,
        /// Its byte in the lock file.
        slot: u64,
        /// As it knows itself.
        pid: u64,
        /// Its PID namespace, as the kernel numbers it; 0: not known.
        namespace: u64,
        /// Its PID in the host's namespace; 0: no process of that namespace has looked yet.
        host_pid: u64,
        name: [u64; 8],
        /// When it joined.
        seen: u64,
    }
}
row! {
    /// A process on a GPU.
    UseRow {
        client: u64,
        gpu: u64,
        first: u64,
        last: u64,
        /// Whether a kernel ever ran, which is what `first` and `last` then tell.
        has_run: u64,
        service: u64,
        used: u64,
        /// Bytes of managed memory among them.
        managed: u64,
        peak: u64,
        /// Kernels of streams that are gone.
        launches: u64,
        denied: u64,
        busy: Busy,
    }
}
row! {
    /// A context.
    ContextRow { id: u64, client: u64, gpu: u64 }
}
row! {
    /// A stream. Rows are in order of `id`, hence of rings.
    StreamRow {
        /// Ring, and number of the ring's first command that is this stream's.
        id: u64,
        context: u64,
        client: u64,
        gpu: u64,
        /// Priority plus 2^32.
        priority: u64,
        /// Number of the command at the head.
        head: u64,
        phase: u64,
        /// Begun kernel: resident time still needed. Begun copy: its end.
        left: u64,
        /// The ring's count of kernels when the stream began.
        kernels: u64,
    }
}
row! {
    /// Memory that more than one process can hold, see `objects`. Rows are in order of `id`.
    ObjectRow {
        /// Never used twice.
        id: u64,
        gpu: u64,
        bytes: u64,
        /// Kind of the object, in the words of the driver that made it.
        tag: u64,
        /// Device and inode of the file that it is known by, if it came from outside the machine; else zeroes.
        file: [u64; 2],
    }
}
row! {
    /// Holder of an object. An object's rows are in the order in which the holders came; one without rows is gone.
    HoldRow {
        object: u64,
        /// `DESCRIPTORS`: the file descriptors that were exported of it. `RELEASING`: no process any more. `INHERITED`: the
        /// driver's descriptors of a dead process, in children of it.
        client: u64,
        /// Count of holds; of descriptors, a number that each export changes; of what is being released, until when,
        /// ns; of inherited descriptors, the dead client.
        count: u64,
    }
}
row! {
    /// A completion, to be stored in its ring.
    Effect { command: u64, ns: u64 }
}
row! {
    /// The last word on a dead process and a GPU, to be stored in the history.
    RecordRow {
        index: u64,
        pid: u64,
        gpu: u64,
        first: u64,
        last: u64,
        service: u64,
        peak: u64,
        launches: u64,
        denied: u64,
    }
}

/// `HoldRow::client` of a holder that is no process. Clients count from 1.
pub(crate) const DESCRIPTORS: u64 = 0;

/// `HoldRow::client` of memory that no process holds and that the GPU does not have back yet, see `releasing`.
pub(crate) const RELEASING: u64 = u64::MAX;

/// `HoldRow::client` of a dead process's memory that the driver's descriptors keep in children of it, see `releasing`.
pub(crate) const INHERITED: u64 = u64::MAX - 1;

/// `StreamRow::phase`: the command at the head has not begun.
pub(crate) const WAITING: u64 = 0;
/// A kernel has begun.
pub(crate) const RUNNING: u64 = 1;
/// A copy has begun.
pub(crate) const COPYING: u64 = 2;

/// The whole core.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Core {
    /// Everything has been played up to here.
    pub(crate) now: u64,
    pub(crate) next_client: u64,
    pub(crate) next_context: u64,
    pub(crate) next_object: u64,
    /// Records in the history.
    pub(crate) history: u64,
    pub(crate) gpus: Vec<GpuRow>,
    pub(crate) clients: Vec<ClientRow>,
    pub(crate) uses: Vec<UseRow>,
    pub(crate) contexts: Vec<ContextRow>,
    pub(crate) streams: Vec<StreamRow>,
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) holds: Vec<HoldRow>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) records: Vec<RecordRow>,
}

impl Core {
    /// A machine that has just been switched on.
    pub(crate) fn new(gpus: usize, now: u64) -> Core {
        let gpus = vec![
            GpuRow {
                slice_start: now,
                ..GpuRow::default()
            };
            gpus
        ];
        Core {
            now,
            next_client: 1,
            next_context: 1,
            next_object: 1,
            gpus,
            ..Core::default()
        }
    }

    /// Becomes a copy of `other` without its effects, keeping its own memory.
    pub(crate) fn copy_from(&mut self, other: &Core) {
        (self.now, self.history) = (other.now, other.history);
        (self.next_client, self.next_context) = (other.next_client, other.next_context);
        self.next_object = other.next_object;
        self.gpus.clone_from(&other.gpus);
        self.clients.clone_from(&other.clients);
        self.uses.clone_from(&other.uses);
        self.contexts.clone_from(&other.contexts);
        self.streams.clone_from(&other.streams);
        self.objects.clone_from(&other.objects);
        self.holds.clone_from(&other.holds);
        self.effects.clear();
        self.records.clear();
    }

    /// Writes the core as words, a length first.
    pub(crate) fn encode(&self, out: &mut Vec<u64>) {
        out.clear();
        out.extend_from_slice(&[0, self.now, self.next_client, self.next_context]);
        out.extend_from_slice(&[self.next_object, self.history]);
        put(&self.gpus, out);
        put(&self.clients, out);
        put(&self.uses, out);
        put(&self.contexts, out);
        put(&self.streams, out);
        put(&self.objects, out);
        put(&self.holds, out);
        put(&self.effects, out);
        put(&self.records, out);
        let length = out.len() as u64;
        if let Some(first) = out.first_mut() {
            *first = length;
        }
    }

    /// Reads what `encode` wrote; `None` if it cannot be that.
    pub(crate) fn decode(&mut self, words: &[u64]) -> Option<()> {
        let words = &mut words.iter();
        let _length = words.next()?;
        self.now = *words.next()?;
        self.next_client = *words.next()?;
        self.next_context = *words.next()?;
        self.next_object = *words.next()?;
        self.history = *words.next()?;
        get(&mut self.gpus, words)?;
        get(&mut self.clients, words)?;
        get(&mut self.uses, words)?;
        get(&mut self.contexts, words)?;
        get(&mut self.streams, words)?;
        get(&mut self.objects, words)?;
        get(&mut self.holds, words)?;
        get(&mut self.effects, words)?;
        get(&mut self.records, words)?;
        (words.len() == 0 && self.check()).then_some(())
    }

    /// Invariants that always hold.
    pub(crate) fn check(&self) -> bool {
        let has_gpu = |gpu: u64| as_index(gpu) < self.gpus.len();
        self.clients.len() <= as_index(CLIENTS)
            && self.uses.len() <= USES
            && self.contexts.len() <= CONTEXTS
            && self.streams.len() <= as_index(STREAMS)
            && self
                .uses
                .iter()
                .all(|row| has_gpu(row.gpu) && row.used <= row.peak && row.managed <= row.used)
            && self.contexts.iter().all(|row| has_gpu(row.gpu))
            && self
                .streams
                .iter()
                .all(|row| has_gpu(row.gpu) && split(row.id).0 < STREAMS)
            && self.streams.is_sorted_by_key(|row| split(row.id).0)
            && (0u64..)
                .zip(&self.gpus)
                .all(|(gpu, row)| row.used == self.used_on(gpu) && row.used <= row.peak)
            && self.check_objects()
    }

    fn used_on(&self, gpu: u64) -> u64 {
        self.uses
            .iter()
            .filter(|row| row.gpu == gpu)
            .fold(self.objects_of(None, gpu), |sum, row| {
                sum.saturating_add(row.used)
            })
    }

    /// Position of the stream that has this ring now.
    pub(crate) fn stream_on_ring(&self, ring: u64) -> Option<usize> {
        self.streams
            .binary_search_by_key(&ring, |row| split(row.id).0)
            .ok()
    }

    /// The stream, if it has not ended.
    pub(crate) fn stream(&self, id: u64) -> Option<&StreamRow> {
        self.streams
            .get(self.stream_on_ring(split(id).0)?)
            .filter(|row| row.id == id)
    }

    /// Whether the command has finished, or went with its stream.
    pub(crate) fn is_done(&self, command: u64) -> bool {
        let (ring, seq) = split(command);
        let row = self
            .stream_on_ring(ring)
            .and_then(|position| self.streams.get(position));
        row.is_none_or(|row| row.head > seq || split(row.id).1 > seq)
    }

    /// Position of the row of a process on a GPU.
    pub(crate) fn position_of_use(&self, client: u64, gpu: u64) -> Option<usize> {
        self.uses
            .iter()
            .position(|row| row.client == client && row.gpu == gpu)
    }
}

fn put<R: Row>(rows: &[R], out: &mut Vec<u64>) {
    out.push(rows.len() as u64);
    for row in rows {
        row.put(out);
    }
}

fn get<R: Row>(rows: &mut Vec<R>, words: &mut std::slice::Iter<'_, u64>) -> Option<()> {
    rows.clear();
    let count = as_index(*words.next()?);
    if count > BUFFER_WORDS {
        return None;
    }
    for _ in 0..count {
        rows.push(R::get(words)?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_back() {
        let mut core = Core::new(2, 7);
        core.clients.push(ClientRow {
            id: 1,
            pid: 42,
            ..ClientRow::default()
        });
        core.streams.push(StreamRow {
            id: 3,
            gpu: 1,
            ..StreamRow::default()
        });
        core.next_object = 6;
        core.objects.push(ObjectRow {
            id: 5,
            ..ObjectRow::default()
        });
        core.holds.push(HoldRow {
            object: 5,
            client: 1,
            count: 1,
        });
        core.effects.push(Effect { command: 9, ns: 8 });
        let (mut words, mut back) = (Vec::new(), Core::default());
        core.encode(&mut words);
        back.decode(&words).unwrap();
        assert_eq!(back, core);
        words.pop();
        assert!(back.decode(&words).is_none());
    }
}
