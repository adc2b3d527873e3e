//! The core: the part of the state that is copied and committed as a whole. Its invariants are in `check`.

use crate::layout::{BUFFER_WORDS, CLIENTS, CONTEXTS, STREAMS, USES, as_index, split};

mod history;
mod row;

pub(crate) use history::{Busy, PERIODS};
pub(crate) use row::Row;
use row::row;

/// Maximum number of completions in a commit. The next commit has the rest.
pub(crate) const MAX_EFFECTS: usize = 512;

row! {
    GpuRow {
        /// Resident context; 0: none.
        resident: u64,
        /// Context that becomes resident at `switch_until`; 0: no switch is going on.
        switching_to: u64,
        switch_until: u64,
        /// Time from which slices are counted.
        slice_start: u64,
        used: u64,
        peak: u64,
        busy_ns: u64,
        switched_ns: u64,
        busy: Busy,
    }
}
row! {
    /// A process.
    ClientRow {
        /// Id, never reused.
        id: u64,
        /// Its byte in the lock file.
        slot: u64,
        /// PID as the process knows it.
        pid: u64,
        /// PID namespace (inode); 0: unknown.
        namespace: u64,
        /// PID in the host's namespace; 0: no process of that namespace has looked yet.
        host_pid: u64,
        name: [u64; 8],
        /// Time of joining.
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
        /// Whether a kernel ever ran; `first` and `last` are then its times.
        has_run: u64,
        service: u64,
        used: u64,
        /// Managed memory, part of the total (bytes).
        managed: u64,
        peak: u64,
        /// Memory that a checkpoint has moved to the host (bytes); it counts nowhere else.
        away: u64,
        /// Kernels of streams that were removed.
        launches: u64,
        denied: u64,
        busy: Busy,
    }
}
row! {
    ContextRow { id: u64, client: u64, gpu: u64 }
}
row! {
    /// A stream. Rows are sorted by `id`, hence by ring.
    StreamRow {
        /// Ring, and the number of the stream's first command there.
        id: u64,
        context: u64,
        client: u64,
        gpu: u64,
        /// Priority plus 2^32.
        priority: u64,
        /// Number of the first unfinished command.
        head: u64,
        phase: u64,
        /// Remaining resident time of a begun kernel; end time of a begun copy.
        left: u64,
        /// The ring's count of kernels at the stream's beginning.
        kernels: u64,
    }
}
row! {
    /// A memory object that several processes can hold, see `objects`. Rows are sorted by `id`.
    ObjectRow {
        /// Id, never reused.
        id: u64,
        gpu: u64,
        bytes: u64,
        /// Kind of the object, defined by the driver that made it.
        tag: u64,
        /// Device and inode of its file if it came from outside the machine; else zeroes.
        file: [u64; 2],
    }
}
row! {
    /// A holder of an object. Rows of an object are in the order of the holders' arrival; an object without rows is gone.
    HoldRow {
        object: u64,
        /// Client, or `DESCRIPTORS`: exported file descriptors; `RELEASING`: no process any more; `INHERITED`: the driver's
        /// descriptors of a dead process in its children.
        client: u64,
        /// Number of holds. For descriptors: a number that each export changes. For memory being released: until when (ns).
        /// For inherited descriptors: the dead client.
        count: u64,
    }
}
row! {
    /// A client whose GPU state another process has asked about moving, see `checkpoint`.
    CheckpointRow {
        client: u64,
        /// `checkpoint::RUNNING` and the others.
        state: u64,
        /// What is asked for, as `Step::word`; 0: nothing.
        step: u64,
        requests: u64,
        /// Answer to the last request, as `checkpoint::to_word`.
        answer: u64,
    }
}
row! {
    /// Memory limits of a cgroup on a GPU (bytes), see `memory_limits`.
    LimitRow { gpu: u64, cgroup: u64, soft: u64, hard: u64 }
}
row! {
    /// A process is in this cgroup, or below it. Rows of a process go from its own cgroup up.
    MemberRow { client: u64, cgroup: u64, has_files: u64 }
}
row! {
    /// A completion to be stored in its ring.
    Effect { command: u64, ns: u64 }
}
row! {
    /// Final record of a dead process on a GPU, to be stored in the history.
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

/// `HoldRow::client` for exported descriptors. Clients count from 1.
pub(crate) const DESCRIPTORS: u64 = 0;

/// `HoldRow::client` for memory that no process holds and that is not free yet, see `releasing`.
pub(crate) const RELEASING: u64 = u64::MAX;

/// `HoldRow::client` for a dead process's memory held by the driver's descriptors in its children, see `releasing`.
pub(crate) const INHERITED: u64 = u64::MAX - 1;

/// `StreamRow::phase`: the first unfinished command has not begun.
pub(crate) const WAITING: u64 = 0;
/// A kernel has begun.
pub(crate) const RUNNING: u64 = 1;
/// A copy has begun.
pub(crate) const COPYING: u64 = 2;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Core {
    /// Time up to which everything was played.
    pub(crate) now: u64,
    pub(crate) next_client: u64,
    pub(crate) next_context: u64,
    pub(crate) next_object: u64,
    /// Number of records in the history.
    pub(crate) history: u64,
    pub(crate) gpus: Vec<GpuRow>,
    pub(crate) clients: Vec<ClientRow>,
    pub(crate) uses: Vec<UseRow>,
    pub(crate) contexts: Vec<ContextRow>,
    pub(crate) streams: Vec<StreamRow>,
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) holds: Vec<HoldRow>,
    pub(crate) checkpoints: Vec<CheckpointRow>,
    pub(crate) limits: Vec<LimitRow>,
    pub(crate) members: Vec<MemberRow>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) records: Vec<RecordRow>,
}

impl Core {
    /// The core of a new machine.
    pub(crate) fn new(gpus: usize, now: u64) -> Core {
        let gpus = vec![GpuRow { slice_start: now, ..GpuRow::default() }; gpus];
        Core { now, next_client: 1, next_context: 1, next_object: 1, gpus, ..Core::default() }
    }

    /// Copies `other` without its effects, reusing allocations.
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
        self.checkpoints.clone_from(&other.checkpoints);
        self.limits.clone_from(&other.limits);
        self.members.clone_from(&other.members);
        self.effects.clear();
        self.records.clear();
    }

    /// Appends the core as words, with its length first.
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
        put(&self.checkpoints, out);
        put(&self.limits, out);
        put(&self.members, out);
        put(&self.effects, out);
        put(&self.records, out);
        let length = out.len() as u64;
        if let Some(first) = out.first_mut() {
            *first = length;
        }
    }

    /// Reads the output of `encode`; `None` if it is invalid.
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
        get(&mut self.checkpoints, words)?;
        get(&mut self.limits, words)?;
        get(&mut self.members, words)?;
        get(&mut self.effects, words)?;
        get(&mut self.records, words)?;
        (words.len() == 0 && self.check()).then_some(())
    }

    pub(crate) fn check(&self) -> bool {
        let has_gpu = |gpu: u64| as_index(gpu) < self.gpus.len();
        self.clients.len() <= as_index(CLIENTS)
            && self.uses.len() <= USES
            && self.contexts.len() <= CONTEXTS
            && self.streams.len() <= as_index(STREAMS)
            && self.uses.iter().all(|row| has_gpu(row.gpu) && row.used <= row.peak && row.managed <= row.used)
            && self.contexts.iter().all(|row| has_gpu(row.gpu))
            && self.streams.iter().all(|row| has_gpu(row.gpu) && split(row.id).0 < STREAMS)
            && self.streams.is_sorted_by_key(|row| split(row.id).0)
            && (0u64..)
                .zip(&self.gpus)
                .all(|(gpu, row)| row.used == self.used_on(gpu) && row.used <= row.peak)
            && self.check_objects()
            && self.check_checkpoints()
            && self.check_limits()
    }

    fn used_on(&self, gpu: u64) -> u64 {
        self.uses
            .iter()
            .filter(|row| row.gpu == gpu)
            .fold(self.objects_of(None, gpu), |sum, row| sum.saturating_add(row.used))
    }

    /// Position of the ring's present stream.
    pub(crate) fn stream_on_ring(&self, ring: u64) -> Option<usize> {
        self.streams.binary_search_by_key(&ring, |row| split(row.id).0).ok()
    }

    /// The stream, if it has not ended.
    pub(crate) fn stream(&self, id: u64) -> Option<&StreamRow> {
        self.streams.get(self.stream_on_ring(split(id).0)?).filter(|row| row.id == id)
    }

    /// Whether the command has finished, or its stream was removed.
    pub(crate) fn is_done(&self, command: u64) -> bool {
        let (ring, seq) = split(command);
        let row = self.stream_on_ring(ring).and_then(|position| self.streams.get(position));
        row.is_none_or(|row| row.head > seq || split(row.id).1 > seq)
    }

    /// Position of the row of a process on a GPU.
    pub(crate) fn position_of_use(&self, client: u64, gpu: u64) -> Option<usize> {
        self.uses.iter().position(|row| row.client == client && row.gpu == gpu)
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
        core.clients.push(ClientRow { id: 1, pid: 42, ..ClientRow::default() });
        core.streams.push(StreamRow { id: 3, gpu: 1, ..StreamRow::default() });
        core.next_object = 6;
        core.objects.push(ObjectRow { id: 5, ..ObjectRow::default() });
        core.holds.push(HoldRow { object: 5, client: 1, count: 1 });
        core.effects.push(Effect { command: 9, ns: 8 });
        let (mut words, mut back) = (Vec::new(), Core::default());
        core.encode(&mut words);
        back.decode(&words).unwrap();
        assert_eq!(back, core);
        words.pop();
        assert!(back.decode(&words).is_none());
    }
}
