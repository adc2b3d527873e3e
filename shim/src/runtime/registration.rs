//! Tells the manager, if there is one, that this process lives (see [`vcuda_region::registration`]). `question.rs`
//! has the questions to the manager. Only the worker's thread registers. It does not wait for the connection, the
//! message or the answer. Whatever the manager does changes nothing in the application.
//!
//! A restarted manager makes a new socket. So the socket's inode and time tell whether this manager knows the process
//! already, and no descriptor is kept. The descriptor of a registration under way is checked for its inode before
//! each use: a program may close descriptors that it does not know and open its own under the same number.

mod question;

pub(crate) use question::{Haste, Pacing};

use core::ffi::c_int;
use std::os::unix::ffi::OsStrExt as _;

use vcuda_region::registration::{ANSWER_BYTES, Answer, Hello, SOCKET, Status};

use crate::runtime::shim::Shim;
use vcuda_region::clock::now_ns;

/// A manager that has not answered after this time is left alone until [`AGAIN_NS`] have passed (ns).
const WAIT_MAX_NS: u64 = 1_000_000_000;
/// Pause before a manager that did not answer, or refused for now, is asked again (ns).
const AGAIN_NS: u64 = 2_000_000_000;

/// The state of this process's registration.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    /// The connection on which an answer is awaited, and its begin (ns).
    pending: Option<(Connection, u64)>,
    /// Inode and time (s, ns) of the socket to which this process has sent its registration.
    settled: (u64, i64, i64),
    /// Time from which on that socket is tried again (ns).
    again_ns: u64,
}

/// A socket of the shim.
#[derive(Debug)]
struct Connection {
    fd: c_int,
    inode: u64,
}

impl Registration {
    /// Goes one step on. Returns whether the next step should follow soon.
    #[cold]
    #[inline(never)]
    pub(crate) fn step(&mut self, shim: &'static Shim, now_ns: u64) -> bool {
        match self.pending.take() {
            Some((connection, since_ns)) => self.listen(connection, since_ns, now_ns),
            None => {
                let _ = self.begin(shim, now_ns);
            }
        }
        self.pending.is_some()
    }

    fn begin(&mut self, shim: &'static Shim, now_ns: u64) -> Option<()> {
        let (region, me, slot) = (shim.region()?, shim.identity()?, shim.claimed()?);
        let address = address_in(region.directory.as_os_str().as_bytes())?;
        // No socket: there is no manager, or it is about to make one.
        let mut found = NOTHING;
        // SAFETY: the path ends in a zero, and `found` is valid for writing.
        if unsafe { libc::lstat(address.sun_path.as_ptr(), &raw mut found) } != 0 {
            return None;
        }
        // The inode alone does not do: its number may be given out again.
        let socket = (found.st_ino, found.st_ctime, found.st_ctime_nsec);
        if self.settled == socket && now_ns < self.again_ns {
            return None;
        }
        let connection = Connection::to(&address)?;
        if connection.send(&Hello::new(me, Some(slot.index())).encode()) {
            self.settled = socket;
            self.again_ns = now_ns + AGAIN_NS;
            self.pending = Some((connection, now_ns));
        }
        Some(())
    }

    fn listen(&mut self, connection: Connection, since_ns: u64, now_ns: u64) {
        match connection.receive() {
            // Registered, or refused for good.
            Ok(status) if status != Status::Full => self.again_ns = u64::MAX,
            Err(true) if now_ns < since_ns + WAIT_MAX_NS => self.pending = Some((connection, since_ns)),
            // The manager refuses for now, has ended, or its answer is invalid: tried again later, or with the next
            // socket.
            Ok(_) | Err(_) => {}
        }
    }
}

// SAFETY: numbers only, of which zero is one.
const NOTHING: libc::stat = unsafe { core::mem::zeroed() };

/// The address of the socket in `directory`; `None` if it does not fit.
fn address_in(directory: &[u8]) -> Option<libc::sockaddr_un> {
    let mut address = libc::sockaddr_un { sun_family: 1, sun_path: [0; 108] };
    let path = directory.iter().chain(b"/").chain(SOCKET.as_bytes());
    let (_, room) = address.sun_path.split_last_mut()?;
    let mut room = room.iter_mut();
    for byte in path {
        *room.next()? = libc::c_char::from_ne_bytes([*byte]);
    }
    Some(address)
}

impl Connection {
    fn to(address: &libc::sockaddr_un) -> Option<Self> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes numbers and returns a new descriptor, or -1.
        let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
        let mut connection = Self { fd, inode: 0 };
        connection.inode = connection.found();
        // SAFETY: the address is as long as said, and read only; -1 is no descriptor.
        let failed = unsafe { libc::connect(fd, core::ptr::from_ref(address).cast(), ADDRESS_BYTES) };
        (failed == 0).then_some(connection)
    }

    /// The inode behind the descriptor; 0 if the descriptor is not open.
    fn found(&self) -> u64 {
        let mut found = NOTHING;
        // SAFETY: `found` is valid for writing; a descriptor that is not open is an error.
        unsafe { libc::fstat(self.fd, &raw mut found) };
        found.st_ino
    }

    fn send(&self, bytes: &[u8]) -> bool {
        // SAFETY: the bytes are valid for reading; no signal is raised, and nothing waited for.
        let sent = unsafe { libc::send(self.fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        sent.cast_unsigned() == bytes.len()
    }

    /// Puts the message that comes before `until_ns` (`CLOCK_MONOTONIC`) into `bytes`. Returns its size, or `None` if
    /// none comes.
    fn await_message(&self, bytes: &mut [u8], until_ns: u64) -> Option<usize> {
        loop {
            let left_ns = until_ns.checked_sub(now_ns()).filter(|left| *left > 0)?;
            let mut question = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
            let left_ms = libc::c_int::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX);
            // SAFETY: one record, valid for reading and writing.
            let found = unsafe { libc::poll(&raw mut question, 1, left_ms) };
            // The program may have closed the descriptor meanwhile, and opened its own under the same number.
            if self.found() != self.inode {
                return None;
            }
            // 0: the time is over; less: a signal came.
            if found > 0 {
                break;
            }
        }
        // SAFETY: the bytes are valid for writing; nothing is waited for.
        let size = unsafe { libc::recv(self.fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        usize::try_from(size).ok()
    }

    /// The answer. The error tells whether it may still come.
    fn receive(&self) -> Result<Status, bool> {
        let mut bytes = [0_u8; ANSWER_BYTES];
        if self.found() != self.inode {
            return Err(false);
        }
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the bytes are valid for writing; nothing is waited for.
        let size = unsafe { libc::recv(self.fd, bytes.as_mut_ptr().cast(), bytes.len(), flags) };
        if size < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN));
        }
        // A shorter answer has zeros at its end: at worst it is taken for a valid one.
        Answer::decode(&bytes).map(|answer| answer.status).map_err(|_| false)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.inode != 0 && self.found() == self.inode {
            // SAFETY: still ours, and used no more.
            unsafe { libc::close(self.fd) };
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "110")]
const ADDRESS_BYTES: libc::socklen_t = size_of::<libc::sockaddr_un>() as libc::socklen_t;
