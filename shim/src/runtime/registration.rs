//! Tells the manager, if there is one, that this process lives (see [`vcuda_region::registration`]); what it asks the manager
//! is in `question.rs`. Registration is done by the worker's thread alone, which waits for nothing: not to connect, not to send, not for the answer. Whatever the manager does or
//! leaves undone changes nothing here.
//!
//! A manager that was started again makes a new socket: so the socket's inode and its time say whether this one knows of us already. No
//! descriptor is kept for that. The one of a registration under way is asked for its inode before each use, as a program may
//! close descriptors that it does not know and open its own under the same number.

mod question;

pub(crate) use question::{Haste, Manners};

use core::ffi::c_int;
use std::os::unix::ffi::OsStrExt as _;

use vcuda_region::registration::{ANSWER_BYTES, Answer, Hello, SOCKET, Status};

use crate::runtime::shim::Shim;
use vcuda_region::clock::now_ns;

/// A manager that has not answered by then is left alone until [`AGAIN_NS`] have passed (ns).
const WAIT_MAX_NS: u64 = 1_000_000_000;
/// Until a manager that did not answer, or said that it cannot, is asked again (ns).
const AGAIN_NS: u64 = 2_000_000_000;

/// What is known of the manager.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    /// The connection on which an answer is awaited, and since when.
    pending: Option<(Connection, u64)>,
    /// Inode and time of the socket that needs no more from us.
    settled: (u64, i64),
    /// When it is asked again all the same.
    again_ns: u64,
}

/// A socket of ours.
#[derive(Debug)]
struct Connection {
    fd: c_int,
    inode: u64,
}

impl Registration {
    /// Goes one step on. Whether the next one is to be soon.
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
        // None: no manager, or one that is about to make it.
        let mut found = NOTHING;
        // SAFETY: the path ends in a zero, and `found` is valid for writing.
        if unsafe { libc::lstat(address.sun_path.as_ptr(), &raw mut found) } != 0 {
            return None;
        }
        // Not the inode alone: its number may be given out again.
        let socket = (found.st_ino, found.st_ctime_nsec);
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
            // Known, or refused for good.
            Ok(status) if status != Status::Full => self.again_ns = u64::MAX,
            Err(true) if now_ns < since_ns + WAIT_MAX_NS => self.pending = Some((connection, since_ns)),
            // It cannot now, has ended, or makes no sense: later, unless there is another by then.
            Ok(_) | Err(_) => {}
        }
    }
}

// SAFETY: numbers only, of which zero is one.
const NOTHING: libc::stat = unsafe { core::mem::zeroed() };

/// The address of the socket in `directory`; nothing if there is no room for it.
fn address_in(directory: &[u8]) -> Option<libc::sockaddr_un> {
    let mut address = libc::sockaddr_un {
        sun_family: 1,
        sun_path: [0; 108],
    };
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

    /// The inode behind the descriptor; 0 if it is none.
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

    /// The size of the message that comes before `until_ns` (`CLOCK_MONOTONIC`), put into `bytes`; nothing if none does.
    fn await_message(&self, bytes: &mut [u8], until_ns: u64) -> Option<usize> {
        loop {
            let left_ns = until_ns.checked_sub(now_ns()).filter(|left| *left > 0)?;
            let mut question = libc::pollfd {
                fd: self.fd,
                events: libc::POLLIN,
                revents: 0,
            };
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
        let size = unsafe {
            libc::recv(
                self.fd,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(size).ok()
    }

    /// The answer; or whether it may yet come.
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
        // A shorter one has zeros at its end: at worst it counts as one.
        Answer::decode(&bytes)
            .map(|answer| answer.status)
            .map_err(|_| false)
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
