//! Handles of memory for other processes, and opened memory of other processes.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_machine::ObjectId;

use crate::object::context::Context;
use crate::object::memory::{self, Kind};
use crate::object::process::process;
use crate::object::sharing::{self, Shared, Sort};

/// Content of a handle; 64 bytes with the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) object: ObjectId,
    /// The client that made the handle.
    pub(crate) maker: u64,
    pub(crate) sort: Sort,
}

const WORDS: usize = 8;

impl Handle {
    /// The handle's bytes, always the same for one object.
    pub(crate) fn write(self) -> Result<[u8; 64], CUerror> {
        let machine = machine()?;
        let mut words = [0; WORDS];
        words[..4].copy_from_slice(&[machine, self.object.number(), self.maker, self.sort as u64]);
        words[WORDS - 1] = sum(&words[..WORDS - 1]);
        let mut bytes = [0; 64];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        Ok(bytes)
    }

    /// Parses the output of `write`, in any process of this machine. Error: `CUDA_ERROR_INVALID_VALUE` for anything
    /// else (docs/hardware.md, "IPC handles": garbage is an invalid value, a handle whose memory is gone an invalid
    /// handle).
    pub(crate) fn read(bytes: &[u8; 64], sort: Sort) -> Result<Handle, CUerror> {
        let words: Vec<u64> =
            bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
        if words[WORDS - 1] != sum(&words[..WORDS - 1]) || words[0] != machine()? || words[3] != sort as u64 {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok(Handle { object: ObjectId::of_number(words[1]), maker: words[2], sort })
    }
}

/// A hash that identifies this machine, made of its GPUs' UUIDs.
fn machine() -> Result<u64, CUerror> {
    let gpus = &process()?.machine.config().gpus;
    Ok(sum(&gpus.iter().flat_map(|gpu| gpu.uuid.bytes().map(u64::from)).collect::<Vec<_>>()))
}

/// FNV-1a over words.
fn sum(words: &[u64]) -> u64 {
    let step = |hash: u64, word: &u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    words.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// An object opened by this process.
#[derive(Clone, Copy, Debug)]
struct Opened {
    object: ObjectId,
    /// `Context::unique` of the context that opened it.
    context: u64,
    count: u32,
}

/// Opened objects by first address.
static OPENED: Mutex<BTreeMap<u64, Opened>> = Mutex::new(BTreeMap::new());

/// Opens an object of another process in a context, or counts a further opening. Error: `CUDA_ERROR_INVALID_CONTEXT` if
/// another context has opened it; those of [`Shared::hold`] and [`sharing::import`].
pub(crate) fn open(handle: Handle, context: &Context) -> Result<u64, CUerror> {
    let mut opened = OPENED.lock();
    if let Some((base, known)) = opened.iter_mut().find(|(_, known)| known.object == handle.object) {
        if known.context != context.unique {
            return Err(CUerror::INVALID_CONTEXT);
        }
        known.count += 1;
        return Ok(*base);
    }
    let shared = Shared::hold(handle.object, Some(handle.maker), Sort::Linear)?;
    let (device, bytes) = (shared.device, shared.bytes);
    let base = sharing::import(shared)?;
    memory::insert(base, bytes, Kind::Ipc, device, Some(context));
    opened.insert(base, Opened { object: handle.object, context: context.unique, count: 1 });
    Ok(base)
}

/// Closes an opening. "When the reference count reaches 0, this API unmaps the memory." Error:
/// `CUDA_ERROR_INVALID_VALUE` for an address that was not opened.
pub(crate) fn close_one(base: u64) -> CUresult {
    let mut opened = OPENED.lock();
    let known = opened.get_mut(&base).ok_or(CUerror::INVALID_VALUE)?;
    known.count -= 1;
    if known.count == 0 {
        opened.remove(&base);
        close(base);
    }
    Ok(())
}

/// Closes all openings, as the context ends.
pub(crate) fn close_all(base: u64) {
    OPENED.lock().remove(&base);
    close(base);
}

fn close(base: u64) {
    if memory::remove(base, |kind| kind == Kind::Ipc).is_some() {
        sharing::end(base);
    }
}
