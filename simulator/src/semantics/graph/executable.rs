//! Executable graphs: the content of a graph at its instantiation, and the commands of a launch.
//!
//! A launch runs in a given stream, node by node in an order that respects the edges. Kernels between other nodes are one
//! command (`plan.rs`, `schedule.rs`). docs/hardware.md, "graphs" (undocumented): a real device may also overlap copies
//! with independent kernels.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_machine::{Command, Ticket};

use crate::base::table::{Kind, Table};
use crate::base::thread::permit;
use crate::object::capture::NodeKey;
use crate::object::graph::Graph;
use crate::object::graph::frozen::Frozen;
use crate::object::graph_memory::{self, GraphBlock};
use crate::object::process::process;
use crate::object::stream::Stream;
use crate::semantics::graph::plan::{Action, free, plan, submit};
use crate::semantics::graph::update::{Misfit, update};
use crate::semantics::{effects, ordering};

static EXECUTABLES: Table<Executable> = Table::new(Kind::GraphExec);

#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) handle: usize,
    /// Flags given to instantiate, without the upload.
    flags: u64,
    graph: Weak<Graph>,
    state: Mutex<State>,
}

/// Mutable part of an executable graph.
#[derive(Debug)]
pub(crate) struct State {
    /// Its nodes, with the handles of the original graph's.
    pub(crate) nodes: Frozen,
    plan: Arc<[Action]>,
    /// End of the last launch: "each launch is ordered behind any previous launches".
    last: Option<Ticket>,
    /// Number of unfinished launches, during which memory that the graph frees itself stays.
    in_flight: Arc<AtomicUsize>,
}

impl Executable {
    /// Instantiates a graph. Error: `INVALID_VALUE`, with a node if the edges form a cycle, without one for a second
    /// instance of a graph with memory nodes.
    pub(crate) fn create(
        graph: &Arc<Graph>,
        flags: u64,
    ) -> Result<Arc<Executable>, (CUerror, Option<NodeKey>)> {
        let nodes = graph.freeze();
        let plan = plan(&nodes).map_err(|node| (CUerror::INVALID_VALUE, Some(node)))?;
        crate::object::graph::count_instance(graph).map_err(|error| (error, None))?;
        let state = State { nodes, plan: plan.into(), last: None, in_flight: Arc::default() };
        let make =
            |handle| Executable { handle, flags, graph: Arc::downgrade(graph), state: Mutex::new(state) };
        Ok(EXECUTABLES.insert_with(make).1)
    }

    /// Calls `look` with the state.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.state.lock())
    }

    /// Takes over a graph's parameters for future launches; all or none. Error: the first misfit.
    pub(crate) fn update(&self, new: &Frozen) -> Result<(), Misfit> {
        let mut state = self.state.lock();
        update(&mut state.nodes, new)?;
        // The shape is that of the instantiation, so an order exists.
        if let Ok(actions) = plan(&state.nodes) {
            state.plan = actions.into();
        }
        Ok(())
    }

    /// `cuGraphLaunch` into a stream that is not capturing. Errors: `INVALID_VALUE` if memory of an earlier launch was
    /// not freed and the graph was not instantiated with automatic freeing; `OUT_OF_MEMORY`.
    pub(crate) fn launch(&self, stream: &Stream) -> CUresult {
        let mut state = self.state.lock();
        if let Some(ticket) = state.last
            && !stream.has(ticket)
        {
            ordering::submit(stream, Command::Wait { ticket })?;
        }
        let own: Vec<u64> = state
            .plan
            .iter()
            .filter_map(|action| match action {
                Action::Alloc { block, is_freed_here: true } => Some(block.address()),
                _ => None,
            })
            .collect();
        if own.is_empty() {
            self.allocate(&state)?;
            state.last = Some(submit_all(&state.plan, stream)?);
            return Ok(());
        }
        // No launch may end meanwhile, as its memory is used by this one too.
        effects::hold_still(|| {
            self.allocate(&state)?;
            state.in_flight.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })?;
        let submitted = submit_all(&state.plan, stream).inspect_err(|_| {
            state.in_flight.fetch_sub(1, Ordering::Relaxed);
        });
        let end = submitted?;
        state.last = Some(end);
        let in_flight = Arc::clone(&state.in_flight);
        let free_own = move || {
            if in_flight.fetch_sub(1, Ordering::Relaxed) == 1 {
                own.iter().for_each(|address| free(*address));
            }
        };
        effects::add(end, Box::new(free_own));
        Ok(())
    }

    /// `cuGraphUpload`: takes the memory that a launch needs ("performing all mappings for that graph immediately",
    /// CUDA C++ Programming Guide, "Graph Memory Nodes").
    pub(crate) fn upload(&self) -> CUresult {
        let state = self.state.lock();
        let blocks = state.plan.iter().filter_map(|action| match action {
            Action::Alloc { block, .. } if !block.is_backed() => Some(block),
            _ => None,
        });
        graph_memory::prepare(blocks)
    }

    /// Provides memory for the graph's allocations, all or none.
    fn allocate(&self, state: &State) -> CUresult {
        const AUTO_FREE: u64 = CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH.0 as u64;
        let mut backed: Vec<&GraphBlock> = Vec::new();
        for action in &*state.plan {
            let Action::Alloc { block, is_freed_here } = action else {
                continue;
            };
            if block.is_backed() && *is_freed_here {
                continue;
            }
            if block.is_backed() && self.flags & AUTO_FREE != 0 {
                graph_memory::free(block.address())?;
            }
            if let Err(error) = block.back() {
                for block in backed {
                    graph_memory::free(block.address())?;
                }
                return Err(error);
            }
            backed.push(block);
        }
        Ok(())
    }
}

/// Submits the commands of one launch. Returns the ticket of its end. Error: `CUDA_ERROR_NOT_INITIALIZED`, or the error
/// of an action.
fn submit_all(plan: &[Action], stream: &Stream) -> Result<Ticket, CUerror> {
    for action in plan {
        submit(action, stream)?;
    }
    ordering::submit(stream, Command::Marker)
}

impl Drop for Executable {
    fn drop(&mut self) {
        if let Some(graph) = self.graph.upgrade() {
            graph.instances.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The executable graph of a caller's handle. Error: `INVALID_VALUE` for a handle that is none.
pub(crate) fn executable(handle: CUgraphExec) -> Result<Arc<Executable>, CUerror> {
    permit()?;
    process()?;
    EXECUTABLES.get(handle.0).ok_or(CUerror::INVALID_VALUE)
}

/// Destroys an executable graph; its launches continue. Error: `INVALID_VALUE` for a handle that is none.
pub(crate) fn destroy(handle: CUgraphExec) -> CUresult {
    permit()?;
    process()?;
    EXECUTABLES.remove(handle.0).map(drop).ok_or(CUerror::INVALID_VALUE)
}
