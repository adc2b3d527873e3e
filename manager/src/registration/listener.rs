//! Socket in a tenant's directory.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use vcuda_region::registration::SOCKET;

use super::allowance::Allowance;
use super::memory::Waiting;

/// Name of the socket while it is being made.
const UNFINISHED: &str = ".manager.sock";
/// Length of the kernel's queue of connections.
const BACKLOG: i32 = 1024;

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) tenant: String,
    pub(super) socket: OwnedFd,
    /// Device and inode of the directory, and of the socket in it.
    directory: (u64, u64),
    name: (u64, u64),
    pub(super) allowance: Allowance,
    pub(super) questions: Allowance,
    /// Questions of the tenant that wait for NVML.
    pub(super) waiting: Waiting,
    /// Number of peers that have not sent anything yet.
    pub(super) silent: usize,
    /// End of a pause after too many connections (`CLOCK_MONOTONIC`, ns); 0 if there is none.
    pub(super) paused_until_ns: u64,
}

impl Listener {
    /// Makes the socket in `directory`. It gets its final name only when it accepts connections.
    pub(super) fn make(tenant: &str, directory: &Path, now_ns: u64) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, flags, Mode::empty())?;
        let own = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        // A previous manager may have left an unfinished socket.
        let _ = rustix::fs::unlinkat(&opened, UNFINISHED, AtFlags::empty());
        // Bound through the descriptor, as an address holds 107 bytes and the directory's path may be longer.
        bind(&own, &SocketAddrUnix::new(through(&opened).join(UNFINISHED))?)?;
        rustix::fs::chmodat(&opened, UNFINISHED, Mode::from_raw_mode(0o666), AtFlags::empty())?;
        listen(&own, BACKLOG)?;
        rustix::fs::renameat(&opened, UNFINISHED, &opened, SOCKET)?;
        let (directory, name) = place_of(directory).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            tenant: tenant.to_owned(),
            socket: own,
            directory,
            name,
            allowance: Allowance::new(now_ns),
            questions: Allowance::for_questions(now_ns),
            waiting: Waiting::default(),
            silent: 0,
            paused_until_ns: 0,
        })
    }

    /// Whether `directory` is still the same directory with the same socket.
    pub(super) fn is_in(&self, directory: &Path) -> bool {
        place_of(directory) == Some((self.directory, self.name))
    }
}

fn through(directory: &OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

type Inode = (u64, u64);

fn place_of(directory: &Path) -> Option<(Inode, Inode)> {
    let inode = |path: &Path| {
        let found = rustix::fs::lstat(path).ok()?;
        Some((found.st_dev, found.st_ino))
    };
    Some((inode(directory)?, inode(&directory.join(SOCKET))?))
}
