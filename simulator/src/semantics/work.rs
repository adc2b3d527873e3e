//! Requests (copies, memsets, stream-ordered memory) as data, for streams, captures and graphs.
//!
//! A request becomes a [`Work`], which can be kept in a graph node and run many times. [`enqueue`] makes a graph node of it
//! if the stream captures. Otherwise it submits [`Work::command`] to the machine, and calls [`Work::run`] in this process
//! after completion, in the order of completion.

use std::sync::Arc;

use vcuda_driver_api::CUresult;
use vcuda_machine::{Command, Engine};

use crate::object::fill::Fill;
use crate::object::graph::node::{Allocation, Operation};
use crate::object::graph_memory::GraphBlock;
use crate::object::process::{Process, process};
use crate::object::stream::Stream;
use crate::object::transfer::Transfer;
use crate::semantics::effects::Effect;
use crate::semantics::stream::synchronize;
use crate::semantics::{capture, ordering};

/// Command for a copy over a copy engine, or within the GPU, at the machine's configured rate.
fn copy_command(process: &Process, engine: Option<Engine>, bytes: u64) -> Command {
    let config = process.machine.config();
    let rate = match engine {
        None => config.device_copy_bytes_per_us,
        Some(_) => config.copy_bytes_per_us,
    };
    let moving_ns = bytes.saturating_mul(1000) / rate.max(1);
    let duration_ns = config.copy_latency_ns.saturating_add(moving_ns);
    match engine {
        None => Command::Transfer { duration_ns },
        Some(engine) => Command::Copy { duration_ns, engine },
    }
}

/// Work of a stream, other than kernels and stream control.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "made once per call and moved on; a box would cost more")]
pub(crate) enum Work {
    Copy(Transfer),
    Set(Fill),
    /// Provides memory for a graph's allocation node. Only valid while the stream captures.
    Alloc(GraphBlock),
    /// `cuMemFreeAsync`: returns the block to its pool when the stream gets here.
    Free(u64),
}

impl Work {
    /// Command that occupies the machine for the duration of the work.
    pub(crate) fn command(&self, process: &Process) -> Command {
        match self {
            Work::Copy(copy) => copy_command(process, copy.engine(), copy.bytes()),
            Work::Set(fill) => copy_command(process, None, fill.bytes()),
            Work::Alloc(_) | Work::Free(_) => Command::Marker,
        }
    }

    /// The graph node for it, in the context of this handle.
    pub(crate) fn into_operation(self, context: usize) -> Operation {
        match self {
            Work::Copy(transfer) => Operation::Copy(transfer, context),
            Work::Set(fill) => Operation::Set(fill, context),
            Work::Alloc(block) => Operation::Alloc(Allocation { block, access: Arc::default() }),
            Work::Free(address) => Operation::Free(address),
        }
    }

    /// Does the synchronous part of the call: pageable host memory is read into a staging buffer, as the caller may then
    /// reuse it ("API synchronization behavior"). Not for a graph node, which reads the memory when it runs.
    pub(crate) fn stage(&mut self) {
        if let Work::Copy(copy) = self {
            copy.stage();
        }
    }

    /// Does the work on memory, once per completion. Only [`Work::Alloc`] can fail: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(crate) fn run(&self) -> CUresult {
        match self {
            Work::Copy(copy) => copy.run(),
            Work::Set(fill) => fill.run(),
            Work::Alloc(block) => return block.back(),
            Work::Free(address) => crate::semantics::pool::free_now(*address),
        }
        Ok(())
    }
}

/// The effect of a work. A failure is ignored: only allocation nodes can fail, and those run when their graph is launched.
pub(crate) fn effect(work: Work) -> Effect {
    Box::new(move || {
        let _ = work.run();
    })
}

/// Enqueues a memset, and waits if the call does.
pub(crate) fn set(fill: Fill, stream: &Stream, is_synchronous: bool) -> CUresult {
    if fill.bytes() == 0 {
        return Ok(());
    }
    let is_captured = capture::intercept(stream)?.is_some();
    enqueue(stream, Work::Set(fill))?;
    if is_synchronous && !is_captured && fill.blocks_host_if_synchronous() {
        return synchronize(stream);
    }
    Ok(())
}

/// Enqueues a copy, and waits if the call does.
pub(crate) fn copy(mut transfer: Transfer, stream: &Stream, is_synchronous: bool) -> CUresult {
    if transfer.bytes() == 0 {
        return Ok(());
    }
    let waits = if is_synchronous { transfer.blocks_host_if_synchronous() } else { transfer.blocks_host() };
    let is_captured = capture::intercept(stream)?.is_some();
    transfer.is_awaited = waits;
    enqueue(stream, Work::Copy(transfer))?;
    if waits && !is_captured { synchronize(stream) } else { Ok(()) }
}

/// Enqueues a copy, a memset or stream-ordered memory: as a node if the stream captures, otherwise as the next command,
/// with its effect after completion. Error: those of capture (900 to 906).
pub(crate) fn enqueue(stream: &Stream, mut work: Work) -> CUresult {
    if let Some(recording) = capture::intercept(stream)? {
        return recording.add(work.into_operation(stream.context)).map(drop);
    }
    work.stage();
    let command = work.command(process()?);
    ordering::submit_with_effect(stream, command, effect(work))
}
