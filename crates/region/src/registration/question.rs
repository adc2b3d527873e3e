//! The question of a process about itself: "which memory of this GPU does NVML attribute to me?". The manager sees
//! every process by its host PID, which a process in a container often does not know.
//!
//! The question is a [`Hello`] with an appendix. A manager of the previous release reads the hello alone, registers
//! the process, and answers with a plain [`Answer`], which means that it cannot tell. The reply is an [`Answer`] with
//! an appendix too, so that both sides check it in the same way.

use super::{ANSWER_BYTES, Answer, HELLO_BYTES, Hello, Malformed};
use crate::GpuUuid;

/// Bytes of a [`Question`].
pub const QUESTION_BYTES: usize = HELLO_BYTES + 24;
/// Bytes of a [`Reply`].
pub const REPLY_BYTES: usize = ANSWER_BYTES + 16;

const QUESTION_MAGIC: u64 = u64::from_le_bytes(*b"vcuasked");

/// The question of a process for NVML's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The process.
    pub hello: Hello,
    /// The GPU.
    pub gpu: GpuUuid,
}

/// NVML's answer about one process on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessMemory {
    /// Its memory (bytes); not 0, as a listed process has a context.
    Bytes(u64),
    /// NVML does not list the process on the GPU.
    NotListed,
    /// NVML does not tell, or could not be asked in time.
    Unknown,
}

/// The manager's answer to a [`Question`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The answer to the hello: whether the process is the one that it says it is.
    pub answer: Answer,
    /// NVML's figure.
    pub memory: ProcessMemory,
}

impl Question {
    /// The bytes to send.
    pub fn encode(&self) -> [u8; QUESTION_BYTES] {
        let mut bytes = [0; QUESTION_BYTES];
        let parts = self.hello.encode().into_iter();
        let parts = parts.chain(QUESTION_MAGIC.to_le_bytes());
        let parts = parts.chain(*self.gpu.as_bytes());
        for (place, byte) in bytes.iter_mut().zip(parts) {
            *place = byte;
        }
        bytes
    }

    /// The GPU that a message asks about, after its hello; `None` if it asks nothing.
    pub fn gpu_in(bytes: &[u8]) -> Option<GpuUuid> {
        let (magic, rest) = bytes.get(HELLO_BYTES..)?.split_first_chunk::<8>()?;
        let gpu = rest.first_chunk::<16>()?;
        (u64::from_le_bytes(*magic) == QUESTION_MAGIC).then_some(GpuUuid::from_bytes(*gpu))
    }
}

impl Reply {
    /// The bytes to send.
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let (kind, amount_bytes) = match self.memory {
            ProcessMemory::Bytes(bytes) => (1_u64, bytes),
            ProcessMemory::NotListed => (2, 0),
            ProcessMemory::Unknown => (3, 0),
        };
        let mut bytes = [0; REPLY_BYTES];
        let parts = self.answer.encode().into_iter();
        let parts = parts.chain(kind.to_le_bytes());
        let parts = parts.chain(amount_bytes.to_le_bytes());
        for (place, byte) in bytes.iter_mut().zip(parts) {
            *place = byte;
        }
        bytes
    }

    /// Decodes a received message.
    ///
    /// # Errors
    /// Fails if it is no reply, such as the plain answer of a manager that does not know the question.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (answer, rest) = bytes.split_first_chunk::<ANSWER_BYTES>().ok_or(Malformed)?;
        let ([kind, amount_bytes], []) = rest.as_chunks::<8>() else {
            return Err(Malformed);
        };
        let memory = match (u64::from_le_bytes(*kind), u64::from_le_bytes(*amount_bytes)) {
            (1, bytes) if bytes > 0 => ProcessMemory::Bytes(bytes),
            (2, 0) => ProcessMemory::NotListed,
            (3, 0) => ProcessMemory::Unknown,
            _ => return Err(Malformed),
        };
        Ok(Self { answer: Answer::decode(answer)?, memory })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MOST_BYTES, NO_SLOT, Status};
    use super::*;
    use proptest::prelude::*;

    fn question() -> Question {
        let hello = Hello {
            versions: (1, 1),
            pid: 7,
            slot: NO_SLOT,
            start_ticks: 4711,
            pid_namespace: 1,
            time_namespace: 2,
            layouts: (3, 4),
            release: 0x100,
        };
        let gpu = GpuUuid::from_bytes(core::array::from_fn(|at| u8::try_from(at).unwrap()));
        Question { hello, gpu }
    }

    #[test]
    fn a_manager_of_the_release_before_reads_a_registration() {
        let bytes = question().encode();
        assert!(bytes.len() <= MOST_BYTES);
        assert_eq!(Hello::decode(&bytes), Ok(question().hello));
        assert_eq!(Question::gpu_in(&bytes), Some(question().gpu));
        assert_eq!(Question::gpu_in(&question().hello.encode()), None);
        assert_eq!(Question::gpu_in(&bytes[..QUESTION_BYTES - 1]), None, "cut");
    }

    #[test]
    fn the_plain_answer_of_the_release_before_is_no_reply() {
        let answer = Answer { version: 1, status: Status::Accepted };
        assert_eq!(Reply::decode(&answer.encode()), Err(Malformed));
        let memory = ProcessMemory::Bytes(5);
        let bytes = Reply { answer, memory }.encode();
        assert_eq!(&bytes[ANSWER_BYTES..], b"\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0");
        assert_eq!(
            Answer::decode(&bytes[..ANSWER_BYTES]),
            Ok(answer),
            "a shim of the release before cuts it"
        );
    }

    proptest! {
        #[test]
        fn a_reply_survives_the_way(status in 0_u32..6, kind in 0_u64..5, amount in 0_u64..3) {
            let mut bytes = Answer { version: 1, status: Status::Accepted }.encode().to_vec();
            bytes[12..].copy_from_slice(&status.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(amount.to_le_bytes());
            let makes_sense = status < 5 && matches!((kind, amount), (1, 1..) | (2 | 3, 0));
            match Reply::decode(&bytes) {
                Ok(reply) => prop_assert_eq!(reply.encode().to_vec(), bytes),
                Err(Malformed) => prop_assert!(!makes_sense),
            }
        }

        #[test]
        fn any_bytes_are_refused_or_mean_what_they_say(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Reply::decode(&bytes).is_err());
            prop_assert_eq!(Question::gpu_in(&bytes), None, "without the magic");
        }
    }
}
