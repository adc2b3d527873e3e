//! What a device's driver itself takes for this process and the container, as the ledger has it. How it is measured, see
//! [`crate::memory::overhead`].

use core::sync::atomic::Ordering;

use vcuda_region::process::ProcessView;

use super::Device;

impl Device {
    /// What the driver itself takes for this process, as last measured (bytes).
    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.amounts().1
    }

    /// Whether the driver may say at any moment that this process has what another one has until then: it holds something
    /// together with a process that pays for it, and that may end. Those that have ended by now are cleared.
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

    /// What this process has allocated of managed memory on the device (bytes).
    pub(crate) fn allocated_managed_bytes(&self) -> u64 {
        self.managed_bytes.load(Ordering::SeqCst)
    }

    /// So many bytes that are counted here are managed memory.
    pub(crate) fn note_managed(&self, bytes: u64) {
        self.managed_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// So many bytes that are counted here are no managed memory any more.
    pub(crate) fn forget_managed(&self, bytes: u64) {
        self.managed_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Charges the current context, if this process has none here that is known.
    #[inline]
    pub(crate) fn notice_contexts(&'static self) {
        if !self.is_noticed.load(Ordering::Relaxed) && self.grant.is_some() {
            self.shim.memory.notice_contexts(self);
        }
    }

    /// Notes whether this process has contexts here that are known. Returns what was noted before.
    pub(crate) fn set_noticed(&self, is_noticed: bool) -> bool {
        self.is_noticed.swap(is_noticed, Ordering::Relaxed)
    }

    /// What this process has on the device, and what of that is overhead (bytes).
    pub(crate) fn amounts(&self) -> (u64, u64) {
        self.place().map_or((0, 0), |(index, slot)| slot.amounts(index))
    }

    /// Sets what the driver itself takes for this process (bytes), whether it fits or not.
    pub(crate) fn set_overhead(&self, bytes: u64) {
        if let Some((index, slot)) = self.place() {
            slot.set_overhead(index, bytes);
        }
    }

    /// Sets what the driver itself takes for this process (bytes), as measured, and notes whether that is certain.
    pub(crate) fn set_measured(&self, bytes: u64, is_certain: bool) {
        self.set_overhead(bytes);
        self.note_certain(is_certain);
    }

    /// Notes whether what is counted now for the driver itself is certain. The caller measures.
    pub(crate) fn note_certain(&self, is_certain: bool) {
        let bytes = if is_certain {
            self.overhead_bytes()
        } else {
            u64::MAX
        };
        self.certain_overhead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether what is counted for the driver itself was measured, and nothing else could have explained it.
    pub(crate) fn is_overhead_certain(&self) -> bool {
        self.certain_overhead_bytes.load(Ordering::Relaxed) == self.overhead_bytes()
    }

    /// Takes from what the driver itself takes for this process (bytes).
    pub(crate) fn release_overhead(&self, bytes: u64) {
        if let Some((index, slot)) = self.place() {
            slot.release_overhead(index, bytes);
        }
    }

    /// What the last context took that a process of the container made here (bytes): the first one of its process, or a
    /// further one. 0 if none is known.
    pub(crate) fn context_bytes(&self, is_first: bool) -> u64 {
        self.region().map_or(0, |(region, index)| {
            region.usage.bucket(index).context_bytes(is_first)
        })
    }

    /// What to reserve for a context that is about to be made (bytes, at least 1): what the last one of its kind took, or,
    /// while none of that kind was measured, of the other kind. Of the container's very first context nothing is known.
    pub(crate) fn most_context_bytes(&self, is_first: bool) -> u64 {
        match self.context_bytes(is_first) {
            0 => self.context_bytes(!is_first).max(1),
            known_bytes => known_bytes,
        }
    }

    /// Whether so much is what a context takes, and therefore likely somebody's context (bytes).
    pub(crate) fn is_like_a_context(&self, bytes: u64) -> bool {
        self.region()
            .is_some_and(|(region, index)| region.usage.bucket(index).is_like_a_context(bytes))
    }

    /// What the container has on the device but for this process's overhead (bytes).
    pub(crate) fn besides_overhead_bytes(&self) -> u64 {
        let used_bytes = self
            .region()
            .map_or(0, |(region, index)| region.usage.used_bytes(index));
        used_bytes.saturating_sub(self.overhead_bytes())
    }

    /// Notes what a context took (bytes).
    pub(crate) fn note_context(&self, is_first: bool, bytes: u64) {
        if let Some((region, index)) = self.region() {
            region.usage.bucket(index).note_context(is_first, bytes);
        }
    }
}
