//! Lock-free commit by copy on write.
//!
//! The root word names the current core: `version << 16 | buffer`. A process changes the core as follows:
//! 1. It reads the root, copies that buffer, and reads the root again. If the root is the same, the copy is whole (an owner
//!    rewrites a buffer only when the root names another).
//! 2. It stores the *effects* of this core (completions into rings, records into the history), as the core's writer may
//!    have died before. Each is an exchange or a store to a place written once, so a repetition is harmless.
//! 3. It changes its copy, writes it to its own buffer that the root does not name, and exchanges the root. If that fails,
//!    another process was first, and it begins again.
//!
//! A killed process only leaves its own buffers half written. A process that was stopped finds that its exchange fails. No
//! process waits for another. The version has 48 bits: at a million commits a second it wraps after nine years.

use crate::core::Core;
use crate::engine::{Played, play};
use crate::layout::{BUFFER_WORDS, ROOT, as_index, buffer, split};
use crate::shared::{Local, Shared, WRITER_SLOTS, Writer};
use crate::{history, ring, sys};
use std::sync::atomic::{Ordering, fence};

/// Reason why a change cannot be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CannotCommit {
    /// The core is larger than a buffer.
    TooLarge,
    NoSlot,
    /// No disk blocks for a buffer.
    DiskFull,
    /// The state is invalid.
    Damaged,
}

/// Outcome of an operation on the core.
#[derive(Debug)]
pub(crate) enum Change<R> {
    None(R),
    Made(R),
}

/// Words of a buffer that are reserved first, enough for some dozens of streams with a full list of effects.
const FIRST_RESERVE: usize = 4096;

/// Age at which a core is committed although only time has passed, so that a dead process is not served for long (ns).
const STALE_NS: u64 = 10_000_000;

impl Shared {
    /// Runs `operation` on the current core, played up to `until` if given, and commits the result. `operation` may run
    /// several times; only its last result counts.
    pub(crate) fn transact<R>(
        &self,
        local: &mut Local,
        until: Option<u64>,
        mut operation: impl FnMut(&mut Core) -> Change<R>,
    ) -> Result<R, CannotCommit> {
        let mut failures = 0u32;
        loop {
            self.refresh(local)?;
            local.work.copy_from(&local.base);
            let mut has_changed = false;
            if let Some(until) = until {
                match play(&mut local.work, &self.map, &self.rules, &mut local.scratch, until) {
                    Played::CaughtUp { has_events } => {
                        let age = local.work.now.saturating_sub(local.base.now);
                        has_changed = has_events || (age > STALE_NS && local.is_busy());
                    }
                    Played::Unfinished | Played::Reached => {
                        // Rivals that win the race do the same work, so less is left each time.
                        self.commit(local)?;
                        continue;
                    }
                }
            }
            let result = match operation(&mut local.work) {
                Change::None(result) => result,
                Change::Made(result) => {
                    has_changed = true;
                    result
                }
            };
            let is_current =
                if has_changed { self.commit(local)? } else { self.map.acquire(ROOT) == local.root };
            if is_current {
                return Ok(result);
            }
            failures += 1;
            if failures.is_multiple_of(8) {
                std::thread::yield_now();
            }
        }
    }

    /// Makes `local.base` the current core, its effects stored.
    pub(crate) fn refresh(&self, local: &mut Local) -> Result<(), CannotCommit> {
        while local.root == 0 || self.map.acquire(ROOT) != local.root {
            let root = self.map.acquire(ROOT);
            let start = buffer(root & 0xffff);
            let length = as_index(self.map.load(start)).min(BUFFER_WORDS);
            local.words.clear();
            local.words.extend((start..start + length).map(|word| self.map.load(word)));
            // Pairs with the release fence of `commit`: a process that rewrote a word read here had seen another root, so
            // this process sees it too.
            fence(Ordering::Acquire);
            if self.map.load(ROOT) != root {
                continue;
            }
            local.root = 0;
            local.base.decode(&local.words).ok_or(CannotCommit::Damaged)?;
            local.root = root;
            local.is_applied = false;
        }
        if !local.is_applied {
            self.apply(&local.base);
            local.is_applied = true;
        }
        Ok(())
    }

    /// Applies the effects of a committed core. Idempotent; any process can do it.
    fn apply(&self, core: &Core) {
        for effect in &core.effects {
            let (ring, seq) = split(effect.command);
            ring::complete(&self.map, ring, seq, effect.ns);
        }
        for record in &core.records {
            history::store(&self.map, record);
        }
    }

    /// Makes `local.work` the current core; `false` if another process was first.
    fn commit(&self, local: &mut Local) -> Result<bool, CannotCommit> {
        local.work.encode(&mut local.words);
        let writer = self.writer(local)?;
        // The slot's previous process may have committed after `base` was read, and died: the root then names a buffer that
        // now belongs to this process. After this check no other process makes the root name it.
        if self.map.acquire(ROOT) != local.root {
            return Ok(false);
        }
        let own = 2 * writer.slot;
        let target = if local.root & 0xffff == own { own + 1 } else { own };
        // Pairs with the acquire fence of `refresh`: the stores below follow the check that the root is elsewhere.
        fence(Ordering::Release);
        let start = buffer(target);
        for (word, value) in (start..).zip(&local.words) {
            self.map.store(word, *value);
        }
        let root = ((local.root >> 16) + 1) << 16 | target;
        if !self.map.exchange(ROOT, local.root, root) {
            return Ok(false);
        }
        std::mem::swap(&mut local.base, &mut local.work);
        local.root = root;
        self.apply(&local.base);
        local.is_applied = true;
        Ok(true)
    }

    /// This process's buffers, with disk blocks for `local.words`.
    fn writer(&self, local: &mut Local) -> Result<Writer, CannotCommit> {
        let length = local.words.len();
        if length > BUFFER_WORDS {
            return Err(CannotCommit::TooLarge);
        }
        let pid = std::process::id();
        let writer = match local.writer.filter(|writer| writer.pid == pid) {
            Some(writer) if length <= writer.reserved => return Ok(writer),
            Some(writer) => writer,
            None => {
                let slot = self.liveness.claim(WRITER_SLOTS).ok_or(CannotCommit::NoSlot)?;
                *local.writer.insert(Writer { pid, slot, reserved: 0 })
            }
        };
        let reserved = length.next_power_of_two().clamp(FIRST_RESERVE, BUFFER_WORDS);
        for half in [2 * writer.slot, 2 * writer.slot + 1] {
            self.reserve(buffer(half), reserved)?;
        }
        Ok(*local.writer.insert(Writer { reserved, ..writer }))
    }

    /// Reserves blocks for `words` words from `start`, so that stores there cannot raise SIGBUS.
    pub(crate) fn reserve(&self, start: usize, words: usize) -> Result<(), CannotCommit> {
        let Some(file) = &self.file else { return Ok(()) };
        sys::reserve(file, start as u64 * 8, words as u64 * 8).map_err(|_| CannotCommit::DiskFull)
    }
}

impl Local {
    /// Whether a process is using GPU time.
    fn is_busy(&self) -> bool {
        self.work.gpus.iter().zip(&self.base.gpus).any(|(now, before)| now.busy_ns != before.busy_ns)
    }
}
