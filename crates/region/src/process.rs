//! The identity of a process, and whether it is alive.

mod environment;

use core::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

pub use environment::{environment, environment_now};

use crate::sys;

/// Facts that tell one process from every other: a PID alone is reused.
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
    /// Fails if `/proc` is not mounted or not readable: then a process cannot be told from the next one of the same
    /// PID.
    pub fn current() -> io::Result<Self> {
        let text = read("/proc/self/stat")?;
        let stat =
            Stat::parse(&text).ok_or_else(|| io::Error::other("/proc/self/stat is not as proc(5) says"))?;
        let mut name = [0; 16];
        for (byte, from) in name.iter_mut().zip(stat.name.bytes().take(15)) {
            *byte = from;
        }
        Ok(Self {
            pid: std::process::id(),
            start_ticks: stat.start_ticks,
            pid_namespace: namespace("/proc/self", "pid")?,
            time_namespace: namespace("/proc/self", "time").unwrap_or(0),
            name,
        })
    }

    /// The identity of another process, by its PID in the caller's namespace, as far as the caller can see it. It has
    /// the PID in its own namespace, the start time by the caller's clock, and 0 for each namespace that is hidden
    /// from the caller.
    ///
    /// # Errors
    /// Fails if there is no process of this PID, or `/proc` does not show it.
    pub fn of(host_pid: u32) -> io::Result<Self> {
        Self::seen(host_pid, None)
    }

    /// As [`Identity::of`], with `self` as the caller: in half the time for a process of the same PID namespace.
    pub fn see(&self, host_pid: u32) -> io::Result<Self> {
        Self::seen(host_pid, Some(self.pid_namespace))
    }

    fn seen(host_pid: u32, own_namespace: Option<u32>) -> io::Result<Self> {
        let process = format!("/proc/{host_pid}");
        let text = read(&format!("{process}/stat"))?;
        let stat =
            Stat::parse(&text).ok_or_else(|| io::Error::other("a stat that is not as proc(5) says"))?;
        let mut name = [0; 16];
        for (byte, from) in name.iter_mut().zip(stat.name.bytes().take(15)) {
            *byte = from;
        }
        let pid_namespace = namespace(&process, "pid").unwrap_or(0);
        // The longest of the files, and the kernel makes it anew for each read.
        let pid = if own_namespace == Some(pid_namespace) {
            host_pid
        } else {
            inner_pid(&read(&format!("{process}/status"))?).unwrap_or(host_pid)
        };
        Ok(Self {
            pid,
            start_ticks: stat.start_ticks,
            pid_namespace,
            time_namespace: namespace(&process, "time").unwrap_or(0),
            name,
        })
    }

    /// Whether `other` is the same process. Its name may have changed, by `exec` or `prctl`.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.pid, self.start_ticks, self.pid_namespace)
            == (other.pid, other.start_ticks, other.pid_namespace)
    }

    /// The command's name, with anything unprintable replaced.
    pub fn command(&self) -> String {
        let bytes = self.name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
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
    /// The process is alive.
    Alive,
    /// The process is gone, as the kernel says.
    Dead,
    /// The process cannot be seen from here, and counts as alive: unused quota is better than quota used twice.
    Unknown,
}

/// The inode of one of a process's namespaces. If the main thread has ended, the kernel tells it only for the other
/// threads.
fn namespace(process: &str, kind: &str) -> io::Result<u32> {
    let file = format!("ns/{kind}");
    let found = fs::metadata(format!("{process}/{file}"));
    let found = match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            of_any_thread(process, &file).ok_or(error)?
        }
        found => found?,
    };
    u32::try_from(found.ino()).map_err(io::Error::other)
}

fn of_any_thread(process: &str, file: &str) -> Option<fs::Metadata> {
    let threads = fs::read_dir(format!("{process}/task")).ok()?.flatten();
    threads.filter_map(|thread| fs::metadata(thread.path().join(file)).ok()).next()
}

/// The folder of `/proc` that describes a process: its own, or, once its main thread has ended, that of another
/// thread. The kernel shows no root, mappings or environment of a thread that has ended.
pub fn folder_of(pid: u32) -> PathBuf {
    let process = format!("/proc/{pid}");
    let main_thread = process.clone().into();
    let Ok(text) = read(&format!("{process}/stat")) else {
        return main_thread;
    };
    if Stat::parse(&text).is_none_or(|stat| stat.state != "Z") {
        return main_thread;
    }
    let threads = fs::read_dir(format!("{process}/task")).into_iter().flatten().flatten();
    threads
        .map(|thread| thread.path())
        .find(|thread| fs::metadata(thread.join("ns/uts")).is_ok())
        .unwrap_or(main_thread)
}

/// Supplementary groups that the process at the other end of a unix socket had when it connected, as the kernel tells them.
///
/// # Errors
/// Fails before Linux 4.13, or if this is no connected unix socket.
pub fn peer_groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    sys::peer_groups(socket.as_fd())
}

/// The path of a file of `/proc/self`, such as `maps`. It names the calling thread's file: the main thread's files
/// are empty once that thread has ended.
pub fn own_file(name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/task/{}/{name}", sys::thread_id()))
}

/// A file of `/proc`, in one read: the kernel makes the text anew for each. Invalid UTF-8 is replaced: the kernel
/// cuts names after 15 bytes, even within a character.
fn read(path: &str) -> io::Result<String> {
    let mut text = [0; 4096];
    let length = fs::File::open(path)?.read(&mut text)?;
    let text = text.get(..length).unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// The fields used of `/proc/PID/stat` (proc(5)).
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
        Some(Self { name, state, threads, start_ticks })
    }

    /// Whether the process has ended. A zombie has given everything back, unless other threads of it still run.
    fn is_dead(&self) -> bool {
        matches!(self.state, "Z" | "X" | "x") && self.threads <= 1
    }
}

/// Inode of the PID namespace that the kernel boots with; from there every process can be seen.
const FIRST_PID_NAMESPACE: u32 = 0xefff_fffc;

/// The calling process's view of others.
///
/// The processes of one tenant normally share a PID namespace, and there the kernel's answer is exact. A process of
/// another namespace is looked for in `/proc`, where an ancestor namespace sees it under another PID. So the host's
/// tools and the arbiter find every dead one. If a namespace cannot be seen at all, its processes are
/// [`Liveness::Unknown`]. They keep what they hold until a process that sees the namespace looks.
#[derive(Debug, Clone, Copy)]
pub struct ProcessView {
    me: Identity,
    proc_is_ours: bool,
    is_brief: bool,
}

impl ProcessView {
    /// The view of the calling process, whose identity is `me`.
    pub fn new(me: Identity) -> Self {
        // A `/proc` mounted in another PID namespace shows other processes under these numbers.
        let listed = fs::read_link("/proc/self").ok();
        let proc_is_ours = listed.and_then(|pid| pid.to_str()?.parse().ok()) == Some(me.pid);
        Self { me, proc_is_ours, is_brief: false }
    }

    /// A view for frequent callers, which takes a microsecond a process. It sees only processes of the same PID
    /// namespace, and does not notice that a PID belongs to another process by now.
    pub fn brief(me: Identity) -> Self {
        Self { me, proc_is_ours: false, is_brief: true }
    }

    /// Whether `other` is alive.
    pub fn liveness(&self, other: &Identity) -> Liveness {
        if self.me.is_same(other) {
            Liveness::Alive
        } else if other.pid_namespace == self.me.pid_namespace {
            self.liveness_by_pid(other)
        } else {
            self.liveness_by_search(other)
        }
    }

    /// Whether every process of the machine can be seen from here.
    pub fn sees_all(&self) -> bool {
        self.proc_is_ours && self.me.pid_namespace == FIRST_PID_NAMESPACE
    }

    /// Whether this view cannot see `other`: its PID namespace is another, and not one below.
    pub(crate) fn cannot_see(&self, other: &Identity) -> bool {
        !self.is_brief && other.pid_namespace != self.me.pid_namespace
    }

    /// Whether no process has this PID, for a process of which nothing else is known.
    pub(crate) fn pid_is_gone(&self, pid: u32) -> bool {
        !sys::process_exists(pid)
    }

    fn liveness_by_pid(&self, other: &Identity) -> Liveness {
        if self.is_brief {
            return match sys::has_ended(other.pid) {
                Ok(true) => Liveness::Dead,
                Ok(false) | Err(_) => Liveness::Unknown,
            };
        }
        if !sys::process_exists(other.pid) {
            return Liveness::Dead;
        }
        if !self.proc_is_ours {
            return Liveness::Unknown;
        }
        // Unreadable: it ended just now, or `/proc` hides it (hidepid). The next look tells.
        let Ok(text) = read(&format!("/proc/{}/stat", other.pid)) else {
            return Liveness::Unknown;
        };
        let Some(stat) = Stat::parse(&text) else {
            return Liveness::Unknown;
        };
        self.liveness_by_stat(&stat, other)
    }

    /// The liveness of `other`, given the `stat` that its PID shows now. The PID may belong to another process by now.
    /// So may the namespace's number, which the kernel reuses once the namespace is gone.
    fn liveness_by_stat(&self, stat: &Stat<'_>, other: &Identity) -> Liveness {
        let same_clock = other.time_namespace == self.me.time_namespace;
        if stat.is_dead() || (same_clock && stat.start_ticks != other.start_ticks) {
            Liveness::Dead
        } else {
            Liveness::Alive
        }
    }

    fn liveness_by_search(&self, other: &Identity) -> Liveness {
        if !self.proc_is_ours {
            return Liveness::Unknown;
        }
        let Ok(entries) = fs::read_dir("/proc") else {
            return Liveness::Unknown;
        };
        let mut sees_namespace = self.me.pid_namespace == FIRST_PID_NAMESPACE;
        for entry in entries.flatten() {
            if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
                continue;
            }
            let path = entry.path();
            let Some(path) = path.to_str() else { continue };
            let Ok(status) = read(&format!("{path}/status")) else {
                continue;
            };
            // This one is in the caller's namespace, so it is not the process that is looked for.
            let Some(pid) = inner_pid(&status) else { continue };
            let same_pid = pid == other.pid;
            match namespace(path, "pid") {
                Ok(inode) if inode == other.pid_namespace => sees_namespace = true,
                Ok(_) => continue,
                // Another user's process: its namespace is hidden, so only the number can be compared.
                Err(_) if same_pid => return Liveness::Unknown,
                Err(_) => continue,
            }
            if same_pid {
                let text = read(&format!("{path}/stat")).unwrap_or_default();
                return Stat::parse(&text).map_or(Liveness::Dead, |stat| self.liveness_by_stat(&stat, other));
            }
        }
        if sees_namespace { Liveness::Dead } else { Liveness::Unknown }
    }
}

/// The last number of the line `NSpid` (proc(5)): the PID in the process's own namespace. `None` if that namespace is
/// the one of this `/proc`, as the line then has one number only.
fn inner_pid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().skip(1).last()?.parse().ok()
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests;
