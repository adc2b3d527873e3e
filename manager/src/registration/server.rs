//! The registrar's thread: one event loop.

mod messages;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};
use vcuda_region::process::Identity;
use vcuda_region::registration::MOST_BYTES;
use vcuda_region::{clock, directory};

use super::listener::Listener;
use super::memory::Asker;
use super::table::{Counts, Key, Registry};
use super::{MOST_SILENT, MOST_SILENT_IN_ALL, SILENCE_LIMIT};

/// Event numbers of the thread itself; all others are of listeners, peers and processes.
const STOP: u64 = 0;
const DIRECTORIES: u64 = 1;
/// Interval between two listings of all directories (ns): with working notifications and all sockets, and without.
const LIST_NS: u64 = 10_000_000_000;
const LIST_UNHEARD_NS: u64 = 2_000_000_000;
/// Delay after a change, so that changes that come together share a listing (ns).
const SETTLE_NS: u64 = 5_000_000;
/// Pause for a tenant with too many connections (ns).
const PAUSE_NS: u64 = 100_000_000;
/// Maximum number of connections accepted from one tenant in a row.
const ROUND: usize = 64;

#[derive(Debug)]
pub(super) struct Server {
    root: PathBuf,
    me: Identity,
    registry: Arc<Registry>,
    asker: Asker,
    epoll: OwnedFd,
    changes: OwnedFd,
    _stop: OwnedFd,
    listeners: HashMap<u64, Listener>,
    /// Peers that have not sent anything, the oldest first.
    silent: BTreeMap<u64, Silent>,
    processes: HashMap<u64, Process>,
    last_number: u64,
    list_at_ns: u64,
}

#[derive(Debug)]
struct Silent {
    connection: OwnedFd,
    listener: u64,
    until_ns: u64,
}

#[derive(Debug)]
struct Process {
    tenant: String,
    key: Key,
    _pidfd: OwnedFd,
}

impl Server {
    pub(super) fn new(root: &Path, registry: Arc<Registry>, stop: OwnedFd, asker: Asker) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let changes = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let watch =
            |what, number| epoll::add(&epoll, what, epoll::EventData::new_u64(number), epoll::EventFlags::IN);
        watch(&stop, STOP)?;
        watch(&changes, DIRECTORIES)?;
        Ok(Self {
            root: root.to_owned(),
            me: Identity::current()?,
            registry,
            asker,
            epoll,
            changes,
            _stop: stop,
            listeners: HashMap::new(),
            silent: BTreeMap::new(),
            processes: HashMap::new(),
            last_number: DIRECTORIES,
            list_at_ns: 0,
        })
    }

    /// Runs until it is told to stop.
    pub(super) fn run(&mut self) {
        let mut events = Vec::with_capacity(256);
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= self.list_at_ns {
                let is_all = self.update_listeners(now_ns);
                self.list_at_ns = now_ns + if is_all { LIST_NS } else { LIST_UNHEARD_NS };
            }
            self.close_silent(now_ns);
            self.resume_paused(now_ns);
            let due_ns = self.due_ns().saturating_sub(now_ns);
            let timeout = Timespec {
                tv_sec: i64::try_from(due_ns / 1_000_000_000).unwrap_or(1),
                tv_nsec: i64::try_from(due_ns % 1_000_000_000).unwrap_or(0),
            };
            events.clear();
            // An error (interruption, no kernel memory) is ignored: the next turn waits again.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout));
            for event in &events {
                match event.data.u64() {
                    STOP => return,
                    DIRECTORIES => self.note_changes(),
                    number => self.serve(number),
                }
            }
        }
    }

    /// Time of the next task without an event (ns).
    fn due_ns(&self) -> u64 {
        let silent = self.silent.values().next().map(|silent| silent.until_ns);
        let paused =
            self.listeners.values().filter(|one| one.paused_until_ns > 0).map(|one| one.paused_until_ns);
        paused.chain(silent).fold(self.list_at_ns, u64::min)
    }

    fn serve(&mut self, number: u64) {
        let now_ns = clock::now_ns();
        if self.listeners.contains_key(&number) {
            self.accept(number, now_ns);
        } else if let Some(silent) = self.silent.remove(&number) {
            self.forget_silent(silent.listener);
            self.read_message(silent.connection, silent.listener, None);
        } else if let Some(process) = self.processes.remove(&number) {
            // A readable pidfd: all threads of the process have ended.
            self.registry.end(&process.tenant, process.key);
        }
    }

    fn accept(&mut self, number: u64, now_ns: u64) {
        for _ in 0..ROUND {
            let Some(listener) = self.listeners.get_mut(&number) else {
                return;
            };
            if !listener.allowance.consume(now_ns) {
                self.registry.count(&listener.tenant, |counts| counts.floods += 1);
                return self.pause(number, now_ns);
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&listener.socket, flags) {
                Ok(connection) => self.read_message(connection, number, Some(now_ns)),
                // The peer closed the connection before it was accepted.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // No descriptor is left: silent peers are disconnected, and all others wait in the kernel's queue.
                Err(_) => {
                    self.silent.clear();
                    self.listeners.values_mut().for_each(|one| one.silent = 0);
                    return self.pause(number, now_ns);
                }
            }
        }
    }

    /// Reads a peer's message. A `new` peer without one is waited for.
    fn read_message(&mut self, connection: OwnedFd, listener: u64, new: Option<u64>) {
        let mut bytes = [0; MOST_BYTES + 1];
        let read = recv(&connection, &mut bytes, RecvFlags::DONTWAIT);
        match (read, new) {
            (Err(Errno::AGAIN), Some(now_ns)) => self.await_message(connection, listener, now_ns),
            // The peer has closed its end, or the read failed.
            (Err(_), _) | (Ok((0, _)), _) => self.count(listener, |counts| counts.silent += 1),
            (Ok((size, _)), _) => {
                self.handle_message(connection, bytes.get(..size).unwrap_or_default(), listener)
            }
        }
    }

    fn await_message(&mut self, connection: OwnedFd, listener: u64, now_ns: u64) {
        let own = self.listeners.get_mut(&listener).map_or(0, |one| {
            one.silent += 1;
            one.silent
        });
        let number = self.next_number();
        if self.watch(&connection, number).is_err() {
            self.forget_silent(listener);
            return;
        }
        let until_ns = now_ns + u64::try_from(SILENCE_LIMIT.as_nanos()).unwrap_or(u64::MAX);
        let silent = Silent { connection, listener, until_ns };
        self.silent.insert(number, silent);
        if own > MOST_SILENT {
            self.close_oldest_of(listener);
        } else if self.silent.len() > MOST_SILENT_IN_ALL {
            let most = self.listeners.iter().max_by_key(|(_, one)| one.silent);
            if let Some((&most, _)) = most {
                self.close_oldest_of(most);
            }
        }
    }

    fn close_oldest_of(&mut self, listener: u64) {
        let oldest = self.silent.iter().find(|(_, one)| one.listener == listener);
        if let Some((&number, _)) = oldest {
            self.silent.remove(&number);
            self.forget_silent(listener);
            self.count(listener, |counts| counts.silent += 1);
        }
    }

    fn close_silent(&mut self, now_ns: u64) {
        while let Some(oldest) = self.silent.first_entry() {
            if oldest.get().until_ns > now_ns {
                return;
            }
            let listener = oldest.remove().listener;
            self.forget_silent(listener);
            self.count(listener, |counts| counts.silent += 1);
        }
    }

    /// Decrements the number of a tenant's silent peers.
    fn forget_silent(&mut self, listener: u64) {
        if let Some(listener) = self.listeners.get_mut(&listener) {
            listener.silent = listener.silent.saturating_sub(1);
        }
    }

    fn pause(&mut self, number: u64, now_ns: u64) {
        if let Some(listener) = self.listeners.get_mut(&number) {
            listener.paused_until_ns = now_ns + PAUSE_NS;
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
    }

    fn resume_paused(&mut self, now_ns: u64) {
        for (&number, listener) in &mut self.listeners {
            if listener.paused_until_ns > 0 && now_ns >= listener.paused_until_ns {
                listener.paused_until_ns = 0;
                let data = epoll::EventData::new_u64(number);
                let _ = epoll::add(&self.epoll, &listener.socket, data, epoll::EventFlags::IN);
            }
        }
    }

    /// Schedules a listing after a change in the folder of the directories.
    fn note_changes(&mut self) {
        let mut bytes = [core::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.changes, &mut bytes);
        while reader.next().is_ok() {}
        self.list_at_ns = self.list_at_ns.min(clock::now_ns() + SETTLE_NS);
    }

    /// Opens the sockets of new directories, closes those of removed ones, and makes deleted sockets again. Returns whether
    /// each directory has its socket and changes are notified.
    fn update_listeners(&mut self, now_ns: u64) -> bool {
        let is_notified = self.watch_folder();
        // If the folder cannot be read, everything stays until the next attempt.
        let Ok(listed) = directory::list(&self.root) else {
            return false;
        };
        let mut new: HashMap<String, PathBuf> = listed.into_iter().collect();
        self.registry.keep_only(|tenant| new.contains_key(tenant));
        self.processes.retain(|_, process| new.contains_key(&process.tenant));
        self.listeners.retain(|_, listener| {
            let is_there = new.get(&listener.tenant).is_some_and(|path| listener.is_in(path));
            if is_there {
                new.remove(&listener.tenant);
            }
            is_there
        });
        let (has_new, mut is_all) = (!new.is_empty(), is_notified);
        for (tenant, path) in new {
            match Listener::make(&tenant, &path, now_ns) {
                Ok(listener) => {
                    let number = self.next_number();
                    if self.watch(&listener.socket, number).is_ok() {
                        self.listeners.insert(number, listener);
                    }
                }
                Err(_) => {
                    is_all = false;
                    self.registry.count(&tenant, |counts| counts.broken += 1);
                }
            }
        }
        if has_new {
            self.registry.wake();
        }
        is_all
    }

    /// Watches the folder, which may be made after the manager's start. Returns whether changes are notified.
    fn watch_folder(&mut self) -> bool {
        let folder = self.root.join("containers");
        let kinds = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MOVED_FROM
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::ONLYDIR;
        // Adding the same watch again changes nothing.
        inotify::add_watch(&self.changes, &folder, kinds).is_ok()
    }

    fn watch(&self, what: &OwnedFd, number: u64) -> rustix::io::Result<()> {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.epoll, what, data, epoll::EventFlags::IN)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn count(&self, listener: u64, count: impl FnOnce(&mut Counts)) {
        if let Some(listener) = self.listeners.get(&listener) {
            self.registry.count(&listener.tenant, count);
        }
    }
}
