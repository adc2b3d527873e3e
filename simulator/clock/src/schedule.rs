//! Scheduler of the world's threads. The thread that is earliest in virtual time has the turn, until it is as late as the
//! next one.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::kernel;
use crate::table::{Entry, Locked, NEVER, Table, state, turn};

/// Interval of the check that the world still has an owner (real ms).
const LOOK_MS: u32 = 1_000;

/// A thread that takes part, by its position in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread(u32);

impl Thread {
    /// The thread as a number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The thread with this number.
    pub const fn of_number(number: u32) -> Thread {
        Thread(number)
    }

    const fn turn(self) -> u32 {
        self.0 + 1
    }
}

/// Identity of a futex word across processes: its memory and the offset there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FutexKey {
    /// The process, or the file with the highest bit set.
    pub space: u64,
    /// Address, or offset in the file.
    pub place: u64,
}

/// Outcome of a wait on a futex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The word had another value.
    Changed,
    /// Another thread woke it.
    Woken,
    /// The time was over.
    TimedOut,
    /// By [`Table::interrupt`]: the thread is to send itself this signal.
    Interrupted(u32),
}

/// Futex that is woken at the end of a thread.
fn end_of(pid: u32, name: u64) -> FutexKey {
    FutexKey { space: u64::from(pid) | 1 << 62, place: name }
}

impl Table {
    fn entry(&self, thread: Thread) -> &Entry {
        #[expect(
            clippy::indexing_slicing,
            reason = "numbers come from this table, and are taken modulo its length"
        )]
        &self.entries[thread.0 as usize % self.entries.len()]
    }

    /// Adds a thread of process `pid`, which may run from now on; `None` if the table is full. It does not yet wait for its
    /// turn.
    pub fn enter(&self, pid: u32) -> Option<Thread> {
        let locked = self.lock();
        let position = self.entries.iter().position(|entry| entry.state.load(Relaxed) == state::FREE)?;
        let thread = Thread(u32::try_from(position).ok()?);
        let entry = self.entry(thread);
        entry.pid.store(pid, Relaxed);
        entry.name.store(0, Relaxed);
        entry.stopped.store(0, Relaxed);
        entry.signal.store(0, Relaxed);
        self.arrive(&locked, thread);
        Some(thread)
    }

    /// The thread of process `pid` that survived execve(2) or was made for it; the process's other threads are removed.
    pub fn adopt(&self, pid: u32) -> Option<Thread> {
        let locked = self.lock();
        let own = |position: &u32| {
            let entry = self.entry(Thread(*position));
            entry.state.load(Relaxed) != state::FREE && entry.pid.load(Relaxed) == pid
        };
        let all = || (0..).take(self.entries.len()).filter(own);
        let has_turn = |position: &u32| self.turn.load(Relaxed) == Thread(*position).turn();
        let kept = all().find(has_turn).or_else(|| all().next()).map(Thread)?;
        for other in all().map(Thread).filter(|other| *other != kept) {
            self.entry(other).state.store(state::FREE, Relaxed);
        }
        drop(locked);
        Some(kept)
    }

    /// Makes `thread` ready, behind the threads that are ready already.
    fn arrive(&self, locked: &Locked<'_>, thread: Thread) {
        let now_ns = self.now_ns.load(Relaxed);
        self.be(thread, state::READY, now_ns);
        self.horizon_ns.fetch_min(now_ns, Relaxed);
        if self.turn.load(Relaxed) == turn::NONE {
            self.pass_on(locked);
        }
    }

    fn be(&self, thread: Thread, state: u32, at_ns: u64) {
        let entry = self.entry(thread);
        entry.woken.store(0, Relaxed);
        entry.at_ns.store(at_ns, Relaxed);
        entry.order.store(self.next_order(), Relaxed);
        entry.state.store(state, Relaxed);
    }

    /// Waits for the turn, in real time, unless `thread` has it. Ends the process if the world's owner is gone.
    pub fn await_turn(&self, thread: Thread) {
        let go = &self.entry(thread).go;
        loop {
            let seen = go.load(Acquire);
            if self.turn.load(Acquire) == thread.turn() {
                return;
            }
            kernel::sleep_on(go, seen, LOOK_MS);
            if go.load(Relaxed) == seen && self.is_orphaned() {
                kernel::end_process();
            }
        }
    }

    /// Advances the running `thread` by `cost_ns`. Returns its time; others may have run meanwhile.
    pub fn spend(&self, thread: Thread, cost_ns: u64) -> u64 {
        self.await_turn(thread);
        let now_ns = self.now_ns.load(Relaxed) + cost_ns;
        self.now_ns.store(now_ns, Release);
        if now_ns >= self.horizon_ns.load(Relaxed) {
            self.give_up(thread, state::READY, now_ns);
        }
        self.now_ns.load(Relaxed)
    }

    /// Suspends the running `thread` until `at_ns`: `TimedOut`, or `Interrupted`.
    pub fn sleep_until(&self, thread: Thread, at_ns: u64) -> Waited {
        self.await_turn(thread);
        let at_ns = at_ns.max(self.now_ns()).saturating_add(self.costs().late_ns);
        // A wait on a futex that no thread wakes.
        self.entry(thread).mask.store(0, Relaxed);
        self.wait(thread, at_ns)
    }

    fn wait(&self, thread: Thread, until_ns: u64) -> Waited {
        let entry = self.entry(thread);
        if entry.signal.load(Relaxed) == 0 {
            self.give_up(thread, state::WAITING, until_ns);
        }
        match entry.signal.swap(0, Relaxed) {
            0 if entry.woken.load(Relaxed) == 1 => Waited::Woken,
            0 => Waited::TimedOut,
            signal => Waited::Interrupted(signal),
        }
    }

    /// Interrupts the wait of the thread `name` of process `pid`, or its next one: as a signal does, but at the place where the thread
    /// gives up its turn. Returns whether there is such a thread.
    pub fn interrupt(&self, thread: Thread, pid: u32, name: u64, signal: u32) -> bool {
        self.await_turn(thread);
        let locked = self.lock();
        let is_it = |entry: &&Entry| {
            entry.state.load(Relaxed) != state::FREE
                && entry.pid.load(Relaxed) == pid
                && entry.name.load(Relaxed) == name
        };
        let Some(entry) = self.entries.iter().find(is_it) else { return false };
        entry.signal.store(signal, Relaxed);
        if entry.state.load(Relaxed) == state::WAITING {
            self.ready(entry);
        }
        drop(locked);
        self.spend(thread, self.costs().yield_ns);
        true
    }

    /// Makes a waiting thread ready.
    fn ready(&self, entry: &Entry) {
        let at_ns = self.now_ns.load(Relaxed) + self.costs().late_ns;
        entry.at_ns.store(at_ns, Relaxed);
        entry.state.store(state::READY, Relaxed);
        self.horizon_ns.fetch_min(at_ns, Relaxed);
    }

    /// Suspends the running `thread` on a futex until `until_ns`, unless `is_changed` returns true.
    pub fn wait_on(
        &self,
        thread: Thread,
        key: FutexKey,
        mask: u32,
        until_ns: Option<u64>,
        is_changed: impl FnOnce() -> bool,
    ) -> Waited {
        self.await_turn(thread);
        if is_changed() {
            self.spend(thread, self.costs().yield_ns);
            return Waited::Changed;
        }
        let entry = self.entry(thread);
        entry.key[0].store(key.space, Relaxed);
        entry.key[1].store(key.place, Relaxed);
        entry.mask.store(mask, Relaxed);
        let late_ns = self.costs().late_ns;
        let at_ns = until_ns.map_or(NEVER, |until_ns| until_ns.max(self.now_ns()).saturating_add(late_ns));
        self.wait(thread, at_ns)
    }

    /// Wakes at most `count` waiters of a futex in the order of arrival. Returns their number.
    pub fn wake(&self, thread: Thread, key: FutexKey, mask: u32, count: u32) -> u32 {
        self.await_turn(thread);
        let woken = self.wake_some(&self.lock(), key, mask, count);
        self.spend(thread, self.costs().yield_ns);
        woken
    }

    /// As [`Table::wake`], for a caller outside of virtual time.
    pub fn wake_from_outside(&self, key: FutexKey, mask: u32, count: u32) -> u32 {
        let locked = self.lock();
        let woken = self.wake_some(&locked, key, mask, count);
        if woken > 0 && self.turn.load(Relaxed) == turn::NONE {
            self.pass_on(&locked);
        }
        woken
    }

    fn wake_some(&self, _: &Locked<'_>, key: FutexKey, mask: u32, count: u32) -> u32 {
        let mut woken = 0;
        while woken < count {
            let waits = |entry: &&Entry| {
                entry.state.load(Relaxed) == state::WAITING
                    && entry.key[0].load(Relaxed) == key.space
                    && entry.key[1].load(Relaxed) == key.place
                    && entry.mask.load(Relaxed) & mask != 0
            };
            let waiting = self.entries.iter().filter(waits);
            let Some(entry) = waiting.min_by_key(|entry| entry.order.load(Relaxed)) else {
                break;
            };
            entry.woken.store(1, Relaxed);
            self.ready(entry);
            woken += 1;
        }
        woken
    }

    /// Gives `thread` a name within its process (not 0), for [`Table::await_end`].
    pub fn call(&self, thread: Thread, name: u64) {
        self.entry(thread).name.store(name, Relaxed);
    }

    /// Suspends the running `thread` until the thread `name` of process `pid` has ended, if it exists.
    pub fn await_end(&self, thread: Thread, pid: u32, name: u64) {
        self.await_turn(thread);
        let is_it = |entry: &Entry| {
            entry.state.load(Relaxed) != state::FREE
                && entry.pid.load(Relaxed) == pid
                && entry.name.load(Relaxed) == name
        };
        let has_ended = || !self.entries.iter().any(is_it);
        while let Waited::Interrupted(_) = self.wait_on(thread, end_of(pid, name), u32::MAX, None, has_ended)
        {
        }
    }

    /// Runs `wait`, which waits outside of virtual time, without holding the turn.
    pub fn outside<R>(&self, thread: Thread, wait: impl FnOnce() -> R) -> R {
        self.await_turn(thread);
        let locked = self.lock();
        self.be(thread, state::OUTSIDE, NEVER);
        self.pass_on(&locked);
        drop(locked);
        let result = wait();
        self.arrive(&self.lock(), thread);
        self.await_turn(thread);
        result
    }

    /// Removes `thread`, which has ended.
    pub fn leave(&self, thread: Thread) {
        let locked = self.lock();
        let entry = self.entry(thread);
        entry.state.store(state::FREE, Relaxed);
        let key = end_of(entry.pid.load(Relaxed), entry.name.load(Relaxed));
        self.wake_some(&locked, key, u32::MAX, u32::MAX);
        self.pass_on_if(&locked, thread);
    }

    /// Removes the threads of process `pid`, which has ended.
    pub fn end_process(&self, pid: u32) {
        let locked = self.lock();
        for position in (0..).take(self.entries.len()).map(Thread) {
            let entry = self.entry(position);
            if entry.state.load(Relaxed) != state::FREE && entry.pid.load(Relaxed) == pid {
                entry.state.store(state::FREE, Relaxed);
                self.pass_on_if(&locked, position);
            }
        }
    }

    /// Whether a thread of process `pid` takes part.
    pub fn has(&self, pid: u32) -> bool {
        let _locked = self.lock();
        self.entries
            .iter()
            .any(|entry| entry.state.load(Relaxed) != state::FREE && entry.pid.load(Relaxed) == pid)
    }

    fn pass_on_if(&self, locked: &Locked<'_>, thread: Thread) {
        if self.turn.load(Relaxed) == thread.turn() {
            self.pass_on(locked);
        }
    }

    /// Makes the running `thread` ready again, without the turn.
    pub(crate) fn wait_again(&self, locked: &Locked<'_>, thread: Thread) {
        self.be(thread, state::READY, self.now_ns.load(Relaxed));
        self.pass_on(locked);
    }

    /// Changes the state of the running `thread`, and returns when it has the turn again.
    fn give_up(&self, thread: Thread, state: u32, at_ns: u64) {
        let locked = self.lock();
        self.be(thread, state, at_ns);
        self.pass_on(&locked);
        drop(locked);
        self.await_turn(thread);
    }

    /// Gives the turn to the next thread. The caller does not run, or is the owner.
    pub(crate) fn pass_on(&self, _: &Locked<'_>) {
        let limit_ns = self.limit_ns.load(Relaxed);
        let Some((thread, at_ns, horizon_ns)) = self.earliest() else {
            let is_outside = |entry: &Entry| entry.state.load(Relaxed) == state::OUTSIDE;
            if self.entries.iter().any(is_outside) {
                self.turn.store(turn::NONE, Release);
            } else {
                self.stand_still(limit_ns);
            }
            return;
        };
        if at_ns > limit_ns {
            self.stand_still(limit_ns);
            return;
        }
        let next = self.entry(thread);
        next.state.store(state::RUNNING, Relaxed);
        self.now_ns.fetch_max(at_ns, Release);
        self.horizon_ns.store(horizon_ns.min(limit_ns + 1), Relaxed);
        self.turn.store(thread.turn(), Release);
        next.go.fetch_add(1, Release);
        kernel::wake(&next.go);
    }

    /// The thread that runs next, its time, and that of the one behind it ([`NEVER`] if there is none).
    fn earliest(&self) -> Option<(Thread, u64, u64)> {
        // Time and order of arrival.
        let mut first = (NEVER, u64::MAX);
        let mut thread = None;
        let mut horizon_ns = NEVER;
        for (position, entry) in (0..).zip(&self.entries) {
            let can_run = matches!(entry.state.load(Relaxed), state::READY | state::WAITING)
                && entry.stopped.load(Relaxed) == 0;
            let place = (entry.at_ns.load(Relaxed), entry.order.load(Relaxed));
            if !can_run || place.0 == NEVER {
                continue;
            }
            if place < first {
                horizon_ns = first.0;
                first = place;
                thread = Some(Thread(position));
            } else {
                horizon_ns = horizon_ns.min(place.0);
            }
        }
        thread.map(|thread| (thread, first.0, horizon_ns))
    }

    fn stand_still(&self, limit_ns: u64) {
        self.now_ns.fetch_max(limit_ns, Release);
        self.turn.store(turn::OWNER, Release);
        self.owner_futex.fetch_add(1, Release);
        kernel::wake(&self.owner_futex);
    }
}
