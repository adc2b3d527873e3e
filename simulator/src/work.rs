//! The interface between what is asked (copies, sets, stream-ordered memory: this half of the crate) and
//! when it happens (streams, capture, graphs: `stream.rs` and its neighbours).
//!
//! A request becomes a [`Work`]: plain data that can be kept in a graph node and run many times. It is
//! handed to `stream::enqueue`, which either makes a graph node of it (the stream captures) or submits
//! [`Work::command`] to the machine and calls [`Work::run`] in this process once the machine says that it
//! has completed, in the order of completion.

use vcuda_driver_api::CUresult;
use vcuda_machine::{Command, Engine};

use crate::fill::Fill;
use crate::graph_memory::GraphBlock;
use crate::process::Process;
use crate::transfer::Transfer;

/// Bytes over a copy engine, or within the GPU by the GPU itself, at the machine's configured rate.
fn moving(process: &Process, engine: Option<Engine>, bytes: u64) -> Command {
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

/// What a stream is to do, kernels and stream control excepted.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "made once per call and moved on; a box would cost more"
)]
pub(crate) enum Work {
    /// A copy of any shape.
    Copy(Transfer),
    /// A memset of any shape.
    Set(Fill),
    /// Memory of a graph's allocation node becomes usable. Only handed over while the stream captures.
    Alloc(GraphBlock),
    /// `cuMemFreeAsync`: the block goes back to its pool when the stream gets here.
    Free(u64),
}

impl Work {
    /// What the GPU is kept busy with.
    pub(crate) fn command(&self, process: &Process) -> Command {
        match self {
            Work::Copy(copy) => moving(process, copy.engine(), copy.bytes()),
            Work::Set(fill) => moving(process, None, fill.bytes()),
            Work::Alloc(_) | Work::Free(_) => Command::Marker,
        }
    }

    /// What is done at the call itself, before the stream is asked: pageable host memory is read into a
    /// staging buffer, as the caller may use it again at once ("API synchronization behavior"). Not
    /// called for a node of a graph, which reads the host's memory when it runs.
    pub(crate) fn stage(&mut self) {
        if let Work::Copy(copy) = self {
            copy.stage();
        }
    }

    /// Does it: contents move. Called once per completion.
    ///
    /// # Errors
    /// Only of [`Work::Alloc`], which takes memory: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(crate) fn run(&self) -> CUresult {
        match self {
            Work::Copy(copy) => copy.run(),
            Work::Set(fill) => fill.run(),
            Work::Alloc(block) => return block.back(),
            Work::Free(address) => crate::pool::free_now(*address),
        }
        Ok(())
    }
}
