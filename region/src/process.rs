//! Who a process is, and whether it still lives.

use core::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::sys;

/// What tells one process from every other: a PID alone is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// PID in its own PID namespace.
    pub pid: u32,
    /// Start time (clock ticks since boot, `/proc/PID/stat` field 22).
    pub start_ticks: u64,
    /// Inode of its PID namespace.
    pub pid_namespace: u32,
    /// Inode of its time namespace, by which the start time is shifted; 0 where the kernel has none.
    pub time_namespace: u32,
    /// The command's name as the kernel has it, padded with zeros.
    pub name: [u8; 16],
}

impl Identity {
    /// The calling process.
    ///
    /// # Errors
    /// `/proc` is not mounted or not readable: then a process cannot be told from the next one of the same PID.
    pub fn current() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let stat =
            Stat::parse(&stat).ok_or_else(|| io::Error::other("/proc/self/stat is not as proc(5) says"))?;
        let mut name = [0; 16];
        for (byte, from) in name.iter_mut().zip(stat.name.bytes().take(15)) {
            *byte = from;
        }
        Ok(Self {
            pid: std::process::id(),
            start_ticks: stat.start_ticks,
            pid_namespace: namespace("pid")?,
            time_namespace: namespace("time").unwrap_or(0),
            name,
        })
    }

    /// The command's name, with anything unprintable replaced.
    #[must_use]
    pub fn command(&self) -> String {
        let bytes = self.name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes)
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.command())
    }
}

/// Whether a process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It lives (or cannot be told from a living one).
    Alive,
    /// It is gone: the kernel says so.
    Dead,
}

/// The inode of one of our namespaces.
fn namespace(kind: &str) -> io::Result<u32> {
    u32::try_from(fs::metadata(format!("/proc/self/ns/{kind}"))?.ino()).map_err(io::Error::other)
}

/// What is used of `/proc/PID/stat` (proc(5)).
struct Stat<'a> {
    name: &'a str,
    state: &'a str,
    threads: u64,
    start_ticks: u64,
}

impl<'a> Stat<'a> {
    /// The name may hold spaces and brackets, so the fields are counted from the last bracket.
    fn parse(text: &'a str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(") ")?;
        let (_, name) = head.split_once('(')?;
        let mut fields = tail.split_ascii_whitespace();
        let state = fields.next()?;
        let threads = fields.nth(16)?.parse().ok()?;
        let start_ticks = fields.nth(1)?.parse().ok()?;
        Some(Self {
            name,
            state,
            threads,
            start_ticks,
        })
    }
}

/// How this process sees others.
#[derive(Debug, Clone, Copy)]
pub struct ProcessView {
    me: Identity,
}

impl ProcessView {
    /// The view of the calling process, whose identity is `me`.
    #[must_use]
    pub fn new(me: Identity) -> Self {
        Self { me }
    }

    /// Whether `other` lives.
    #[must_use]
    pub fn liveness(&self, other: &Identity) -> Liveness {
        if *other == self.me {
            return Liveness::Alive;
        }
        if other.pid_namespace == self.me.pid_namespace && !sys::process_exists(other.pid) {
            return Liveness::Dead;
        }
        Liveness::Alive
    }
}
