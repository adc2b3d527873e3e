//! Memory that the driver itself takes on a device for this process and the tenant, as the ledger has it. Its
//! measurement: [`crate::memory::overhead`].

use core::sync::atomic::Ordering;

use vcuda_region::process::ProcessView;

use super::Device;

impl Device {
    /// Memory that the driver itself takes for this process, as last measured (bytes).
    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.amounts().1
    }

    /// Whether the driver may at any moment attribute another process's memory to this one: it holds an object together
    /// with a process that pays for it, and that may end. Those that have ended by now are cleared.
    pub(crate) fn may_inherit(&self) -> bool {
        let holds = || {
            let place = self.place();
            place.is_some_and(|(index, slot)| slot.holds_of_others(index))
        };
        holds() && {
            self.shim.reap(ProcessView::brief);
            holds()
        }
    }

    /// Managed memory that this process has allocated on the device (bytes).
    pub(crate) fn allocated_managed_bytes(&self) -> u64 {
        self.managed_bytes.load(Ordering::SeqCst)
    }

    /// Notes that `bytes` of what is counted here are managed memory.
    pub(crate) fn note_managed(&self, bytes: u64) {
        self.managed_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Notes that `bytes` of what is counted here are no longer managed memory.
    pub(crate) fn forget_managed(&self, bytes: u64) {
        self.managed_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Charges the current context, if no context of this process on the device is known.
    #[inline]
    pub(crate) fn notice_contexts(&'static self) {
        if !self.is_noticed.load(Ordering::Relaxed) && self.grant.is_some() {
            self.shim.memory.notice_contexts(self);
        }
    }

    /// Notes whether a context of this process on the device is known. Returns what was noted before.
    pub(crate) fn set_noticed(&self, is_noticed: bool) -> bool {
        self.is_noticed.swap(is_noticed, Ordering::Relaxed)
    }

    /// Memory of this process on the device, and the overhead in it (bytes).
    pub(crate) fn amounts(&self) -> (u64, u64) {
        self.place().map_or((0, 0), |(index, slot)| slot.amounts(index))
    }

    /// Sets the overhead (bytes), whether it fits or not.
    pub(crate) fn set_overhead(&self, bytes: u64) {
        if let Some((index, slot)) = self.place() {
            slot.set_overhead(index, bytes);
        }
    }

    /// Sets the overhead as measured (bytes), and notes whether it is certain.
    pub(crate) fn set_measured(&self, bytes: u64, is_certain: bool) {
        self.set_overhead(bytes);
        self.note_certain(is_certain);
    }

    /// Notes whether the overhead that is counted now is certain. Called by the thread that measures.
    pub(crate) fn note_certain(&self, is_certain: bool) {
        let bytes = if is_certain { self.overhead_bytes() } else { u64::MAX };
        self.certain_overhead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether the counted overhead was measured, and nothing else could have explained the figure.
    pub(crate) fn is_overhead_certain(&self) -> bool {
        self.certain_overhead_bytes.load(Ordering::Relaxed) == self.overhead_bytes()
    }

    /// Gives back `bytes` of the overhead.
    pub(crate) fn release_overhead(&self, bytes: u64) {
        if let Some((index, slot)) = self.place() {
            slot.release_overhead(index, bytes);
        }
    }

    /// Size of the last context that a process of the tenant made here (bytes): the first one of its process, or a
    /// further one. 0 if none is known.
    pub(crate) fn context_bytes(&self, is_first: bool) -> u64 {
        self.region().map_or(0, |(region, index)| region.usage.bucket(index).context_bytes(is_first))
    }

    /// Bytes to reserve for a context that is about to be made, at least 1: the size of the last one of its kind, or
    /// else of the other kind. For the tenant's very first context no size is known.
    pub(crate) fn most_context_bytes(&self, is_first: bool) -> u64 {
        match self.context_bytes(is_first) {
            0 => self.context_bytes(!is_first).max(1),
            known_bytes => known_bytes,
        }
    }

    /// Whether `bytes` is the size of a context, and therefore likely another process's context.
    pub(crate) fn is_like_a_context(&self, bytes: u64) -> bool {
        self.region().is_some_and(|(region, index)| region.usage.bucket(index).is_like_a_context(bytes))
    }

    /// Memory of the tenant on the device without this process's overhead (bytes).
    pub(crate) fn besides_overhead_bytes(&self) -> u64 {
        let used_bytes = self.region().map_or(0, |(region, index)| region.usage.used_bytes(index));
        used_bytes.saturating_sub(self.overhead_bytes())
    }

    /// Notes the size of a context (bytes).
    pub(crate) fn note_context(&self, is_first: bool, bytes: u64) {
        if let Some((region, index)) = self.region() {
            region.usage.bucket(index).note_context(is_first, bytes);
        }
    }
}
