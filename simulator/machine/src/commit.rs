//! The commit: copy on write without a lock.
//!
//! The root word names the current core: `version << 16 | buffer`. To change anything, a process
//! 1. reads the root, copies that buffer, and looks at the root again: if it is the same, the copy is whole (a buffer is
//!    rewritten by its owner only, and only when the root names another);
//! 2. stores the *effects* that this core carries (completions into rings, records into the history) in case its writer
//!    did not live to do so: each by an exchange or to a place that is written once, so doing it again does no harm;
//! 3. changes its copy, writes it to that one of its own two buffers which the root does not name, and exchanges the
//!    root. If that fails another process was first, and it begins again.
//!
//! A process killed anywhere leaves nothing but its own buffers half written; one that is stopped anywhere finds, when
//! it goes on, that its exchange fails. No process waits for another. The version has 48 bits: at a million commits a second
//! it comes round after nine years.

use crate::core::Core;
use crate::engine::{Played, play};
use crate::layout::{BUFFER_WORDS, ROOT, as_index, buffer, split};
use crate::shared::{Local, Shared, WRITER_SLOTS, Writer};
use crate::{history, ring, sys};
use std::sync::atomic::{Ordering, fence};

/// Why a change cannot be committed at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CannotCommit {
    /// The core is larger than a buffer.
    TooLarge,
    /// No writer slot is free.
    NoSlot,
    /// No blocks for a buffer.
    DiskFull,
    /// The state is no state.
    Damaged,
}

/// Effect of an operation on the core that it was given.
#[derive(Debug)]
pub(crate) enum Change<R> {
    /// It only looked.
    None(R),
    /// It changed the core.
    Made(R),
}

/// Words reserved of a buffer at first: the core of a machine with some dozens of streams, with a full list of effects.
const FIRST_RESERVE: usize = 4096;

/// A core older than this is committed although nothing but time went on, so that a dead process is not served long.
const STALE_NS: u64 = 10_000_000;

impl Shared {
    /// Runs `operation` on the current core, played up to `until` if given, and commits what it made.
    /// `operation` may run several times; only its last result counts.
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
                        // Rivals that get ahead do the same work, so there is less of it each time.
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
            let is_current = if has_changed {
                self.commit(local)?
            } else {
                self.map.acquire(ROOT) == local.root
            };
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
            local
                .words
                .extend((start..start + length).map(|word| self.map.load(word)));
            // Pairs with the release fence of `commit`: a process that rewrote a word that was just read had seen another root,
            // so it is seen here too.
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

    /// Stores what a committed core says about the world outside it. Can be done any number of times, by any process.
    fn apply(&self, core: &Core) {
        for effect in &core.effects {
            let (ring, seq) = split(effect.command);
            ring::complete(&self.map, ring, seq, effect.ns);
        }
        for record in &core.records {
            history::store(&self.map, record);
        }
    }

    /// Makes `local.work` the current core; `false`: another process was first.
    fn commit(&self, local: &mut Local) -> Result<bool, CannotCommit> {
        local.work.encode(&mut local.words);
        let writer = self.writer(local)?;
        // A process that had this slot before may have committed after `base` was read, and died then: the root would name one
        // of its buffers, which are now this process's. From here on, no other process makes the root name them.
        if self.map.acquire(ROOT) != local.root {
            return Ok(false);
        }
        let own = 2 * writer.slot;
        let target = if local.root & 0xffff == own { own + 1 } else { own };
        // Pairs with the acquire fence of `refresh`: the stores below come after this process saw the root elsewhere.
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

    /// This process's buffers, with blocks for `local.words`.
    fn writer(&self, local: &mut Local) -> Result<Writer, CannotCommit> {
        let length = local.words.len();
        if length > BUFFER_WORDS {
            return Err(CannotCommit::TooLarge);
        }
        let writer = match local.writer {
            Some(writer) if length <= writer.reserved => return Ok(writer),
            Some(writer) => writer,
            None => {
                let slot = self.liveness.claim(WRITER_SLOTS).ok_or(CannotCommit::NoSlot)?;
                *local.writer.insert(Writer { slot, reserved: 0 })
            }
        };
        let reserved = length.next_power_of_two().clamp(FIRST_RESERVE, BUFFER_WORDS);
        for half in [2 * writer.slot, 2 * writer.slot + 1] {
            self.reserve(buffer(half), reserved)?;
        }
        Ok(*local.writer.insert(Writer { reserved, ..writer }))
    }

    /// Blocks for `words` words from `start`, so that storing there cannot raise SIGBUS.
    pub(crate) fn reserve(&self, start: usize, words: usize) -> Result<(), CannotCommit> {
        let Some(file) = &self.file else { return Ok(()) };
        sys::reserve(file, start as u64 * 8, words as u64 * 8).map_err(|_| CannotCommit::DiskFull)
    }
}

impl Local {
    /// Whether time on a GPU is going to a process.
    fn is_busy(&self) -> bool {
        self.work
            .gpus
            .iter()
            .zip(&self.base.gpus)
            .any(|(now, before)| now.busy_ns != before.busy_ns)
    }
}
