//! Messages between a process that registers and the manager. One goes each way over the `manager.sock` in the
//! tenant's directory, of fixed size and little-endian.
//!
//! The socket is of the kind `SOCK_SEQPACKET`. A message comes whole or not at all, and a peer that is gone is noticed.
//! Connecting only needs the path of the socket: it works through a read-only mount, and with any libc. The kernel
//! tells the manager which process connects (`SO_PEERCRED`). The message only tells which of the tenant's slots is the
//! process's own.
//!
//! Versions: the process offers a range, and the manager chooses the newest that both know. The first [`HELLO_BYTES`]
//! of a message have the same meaning in every version. A later version may append to them, as a [`Question`] does.

mod question;

pub use question::{ProcessMemory, QUESTION_BYTES, Question, REPLY_BYTES, Reply};

use crate::process::Identity;
use crate::release;

/// Name of the socket in the tenant's directory.
pub const SOCKET: &str = "manager.sock";
/// The protocol version of this source; [`release::protocols`] tells the versions of a program.
pub const VERSION: u32 = 1;
/// The oldest version that is still supported.
pub const OLDEST: u32 = 1;
/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 64;
/// The longest message of any version (bytes). A longer one is malformed.
pub const MOST_BYTES: usize = 256;
/// Bytes of an [`Answer`].
pub const ANSWER_BYTES: usize = 16;
/// The value for no slot.
pub const NO_SLOT: u32 = u32::MAX;

const HELLO_MAGIC: u64 = u64::from_le_bytes(*b"vcuhello");
const ANSWER_MAGIC: u64 = u64::from_le_bytes(*b"vcuanswr");

/// The message of a process about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The oldest and the newest version that it speaks.
    pub versions: (u32, u32),
    /// Its PID in its own namespace.
    pub pid: u32,
    /// Its slot in `usage`, or [`NO_SLOT`].
    pub slot: u32,
    /// Start time (clock ticks since boot), by the process's own clock.
    pub start_ticks: u64,
    /// Inode of its PID namespace.
    pub pid_namespace: u32,
    /// Inode of its time namespace, 0 if the kernel has none.
    pub time_namespace: u32,
    /// The oldest and the newest layout of `limits` and `usage` that it uses.
    pub layouts: (u32, u32),
    /// Release of its library, numbered as [`release::NUMBER`].
    pub release: u32,
}

/// Outcome of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// The process is registered now.
    Accepted = 0,
    /// No version is common.
    Version = 1,
    /// The message is malformed.
    Malformed = 2,
    /// The tenant has too many processes; try again later.
    Full = 3,
    /// The kernel's facts about the process differ from the message.
    Stranger = 4,
}

/// The manager's answer to a [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The version chosen; the manager's newest if none is common.
    pub version: u32,
    /// Outcome of the registration.
    pub status: Status,
}

/// The error for a malformed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Hello {
    /// The hello of the process `me` in `slot`.
    pub fn new(me: &Identity, slot: Option<usize>) -> Self {
        Self {
            versions: release::protocols(),
            pid: me.pid,
            slot: slot.and_then(|slot| u32::try_from(slot).ok()).unwrap_or(NO_SLOT),
            start_ticks: me.start_ticks,
            pid_namespace: me.pid_namespace,
            time_namespace: me.time_namespace,
            layouts: release::layouts(),
            release: release::number(),
        }
    }

    /// The bytes to send.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [
            HELLO_MAGIC,
            pair(self.versions.0, self.versions.1),
            pair(self.pid, self.slot),
            self.start_ticks,
            pair(self.pid_namespace, self.time_namespace),
            pair(self.layouts.0, self.layouts.1),
            pair(self.release, 0),
            0,
        ];
        let mut bytes = [0; HELLO_BYTES];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Decodes a received message.
    ///
    /// # Errors
    /// Fails if it is no hello, or if no program of these versions would send it.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > MOST_BYTES {
            return Err(Malformed);
        }
        let (words, _) = bytes.first_chunk::<HELLO_BYTES>().ok_or(Malformed)?.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next().ok_or(Malformed);
        if next()? != HELLO_MAGIC {
            return Err(Malformed);
        }
        let hello = Self {
            versions: halves(next()?),
            pid: 0,
            slot: 0,
            start_ticks: 0,
            pid_namespace: 0,
            time_namespace: 0,
            layouts: (0, 0),
            release: 0,
        };
        let (pid, slot) = halves(next()?);
        let start_ticks = next()?;
        let (pid_namespace, time_namespace) = halves(next()?);
        let layouts = halves(next()?);
        let (release, _) = halves(next()?);
        if hello.versions.0 > hello.versions.1 || pid == 0 || i32::try_from(pid).is_err() {
            return Err(Malformed);
        }
        Ok(Self { pid, slot, start_ticks, pid_namespace, time_namespace, layouts, release, ..hello })
    }

    /// The version to use with a peer that supports `oldest` to `newest`; `None` if none is common.
    pub fn choose(&self, oldest: u32, newest: u32) -> Option<u32> {
        let common = self.versions.1.min(newest);
        (common >= self.versions.0 && common >= oldest).then_some(common)
    }
}

impl Answer {
    /// The bytes to send.
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let rest = u64::from(self.version) | u64::from(self.status as u32) << 32;
        let mut bytes = [0; ANSWER_BYTES];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip([ANSWER_MAGIC, rest]) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Decodes a received message.
    ///
    /// # Errors
    /// Fails if it is no answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let ([magic, rest], []) = bytes.as_chunks::<8>() else {
            return Err(Malformed);
        };
        let (version, status) = halves(u64::from_le_bytes(*rest));
        let status = match status {
            0 => Status::Accepted,
            1 => Status::Version,
            2 => Status::Malformed,
            3 => Status::Full,
            4 => Status::Stranger,
            _ => return Err(Malformed),
        };
        if u64::from_le_bytes(*magic) != ANSWER_MAGIC {
            return Err(Malformed);
        }
        Ok(Self { version, status })
    }
}

/// The low and the high half.
#[expect(clippy::cast_possible_truncation, reason = "the halves are taken on purpose")]
const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello(oldest: u32, newest: u32) -> Hello {
        Hello {
            versions: (oldest, newest),
            pid: 7,
            slot: 3,
            start_ticks: 4711,
            pid_namespace: 1,
            time_namespace: 2,
            layouts: (3, 4),
            release: 0x100,
        }
    }

    #[test]
    fn each_of_two_releases_speaks_with_the_other() {
        // A process of the release before, of this and of the next, and a manager of this one: (oldest, newest) spoken.
        assert_eq!(hello(4, 5).choose(5, 6), Some(5));
        assert_eq!(hello(5, 6).choose(5, 6), Some(6));
        assert_eq!(hello(6, 7).choose(5, 6), Some(6));
        // Two releases apart, they do not.
        assert_eq!(hello(3, 4).choose(5, 6), None);
        assert_eq!(hello(7, 8).choose(5, 6), None);
        // What this program offers, it accepts.
        assert_eq!(hello(OLDEST, VERSION).choose(OLDEST, VERSION), Some(VERSION));
    }

    #[test]
    fn places_of_the_words_are_the_protocol() {
        let bytes = hello(1, 2).encode();
        assert_eq!(&bytes[..16], b"vcuhello\x01\0\0\0\x02\0\0\0");
        assert_eq!(&bytes[16..32], b"\x07\0\0\0\x03\0\0\0\x67\x12\0\0\0\0\0\0");
        assert_eq!(&bytes[48..], [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let bytes = Answer { version: 9, status: Status::Full }.encode();
        assert_eq!(&bytes, b"vcuanswr\x09\0\0\0\x03\0\0\0");
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        let bytes = hello(1, 1).encode();
        assert_eq!(Hello::decode(&bytes[..63]), Err(Malformed), "cut");
        assert_eq!(Hello::decode(&[0; HELLO_BYTES]), Err(Malformed), "no magic");
        assert_eq!(Hello::decode(&hello(2, 1).encode()), Err(Malformed), "an empty range");
        assert_eq!(Hello::decode(&Hello { pid: 0, ..hello(1, 1) }.encode()), Err(Malformed));
        assert_eq!(Hello::decode(&Hello { pid: 1 << 31, ..hello(1, 1) }.encode()), Err(Malformed));
        let mut long = bytes.to_vec();
        long.resize(MOST_BYTES, 0xff);
        assert_eq!(Hello::decode(&long), Ok(hello(1, 1)), "a later version appends");
        long.push(0);
        assert_eq!(Hello::decode(&long), Err(Malformed), "oversized");
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_mean_what_they_say(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Answer::decode(&bytes).is_err() || bytes.len() == ANSWER_BYTES);
            prop_assert_eq!(Hello::decode(&bytes).map(drop), Err(Malformed), "without the magic");
        }

        #[test]
        fn a_hello_survives_the_way(
            words in prop::array::uniform7(any::<u64>()), tail in prop::collection::vec(any::<u8>(), 0..192)
        ) {
            let mut bytes = HELLO_MAGIC.to_le_bytes().to_vec();
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            bytes.extend(tail);
            if let Ok(hello) = Hello::decode(&bytes) {
                prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
                prop_assert_eq!(&hello.encode()[8..52], &bytes[8..52]);
                prop_assert!(hello.versions.0 <= hello.versions.1 && hello.pid > 0);
            }
        }

        #[test]
        fn the_version_chosen_is_the_newest_common_one(a in 0_u32..9, b in 0_u32..9, c in 0_u32..9, d in 0_u32..9) {
            let (offered, own) = ((a.min(b), a.max(b)), (c.min(d), c.max(d)));
            let common = (0..9).rev().find(|v| (offered.0..=offered.1).contains(v) && (own.0..=own.1).contains(v));
            prop_assert_eq!(hello(offered.0, offered.1).choose(own.0, own.1), common);
        }

        #[test]
        fn an_answer_survives_the_way(version in any::<u32>(), status in 0_u32..6) {
            let mut bytes = ANSWER_MAGIC.to_le_bytes().to_vec();
            bytes.extend((u64::from(version) | u64::from(status) << 32).to_le_bytes());
            match Answer::decode(&bytes) {
                Ok(answer) => prop_assert_eq!(answer.encode().to_vec(), bytes),
                Err(Malformed) => prop_assert_eq!(status, 5),
            }
        }
    }
}
