//! Executable graphs: a graph as it was when instantiated, and the list of commands that a launch submits.
//!
//! A launch runs in the stream that it is given, node by node in an order that the edges allow; kernels
//! between other nodes are one command (`plan.rs`, `schedule.rs`). docs/hardware.md, "graphs" (the documentation
//! leaves it open): a real device may also overlap copies with independent kernels.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_machine::{Command, Ticket};

use crate::base::table::{Kind, Table};
use crate::base::thread::permit;
use crate::object::capture::NodeKey;
use crate::object::graph::Graph;
use crate::object::graph::frozen::Frozen;
use crate::object::graph::user_object::Reference;
use crate::object::graph_memory::{self, GraphBlock};
use crate::object::process::process;
use crate::object::stream::Stream;
use crate::semantics::graph::plan::{Action, free, plan, submit};
use crate::semantics::{effects, ordering};

static EXECUTABLES: Table<Executable> = Table::new(Kind::GraphExec);

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Executable {
    /// Handle in the program.
    pub(crate) handle: usize,
    /// `cuGraphExecGetId`.
    pub(crate) id: u32,
    /// As given to instantiate, the upload apart.
    pub(crate) flags: u64,
    graph: Weak<Graph>,
    state: Mutex<State>,
}

/// Parts of an executable graph that change.
#[derive(Debug)]
pub(crate) struct State {
    /// Its nodes, known by the handles of those they were made of.
    pub(crate) nodes: Frozen,
    /// Its graph's references to user objects.
    pub(crate) references: Vec<Reference>,
    /// Nodes that do nothing for now.
    pub(crate) disabled: HashSet<NodeKey>,
    plan: Arc<[Action]>,
    /// The end of the last launch: "each launch is ordered behind any previous launches".
    last: Option<Ticket>,
    /// Launches that have not ended; while there are any, memory that the graph frees itself stays.
    in_flight: Arc<AtomicUsize>,
}

impl Executable {
    /// Makes one of a graph.
    ///
    /// # Errors
    /// `INVALID_VALUE` and a node of it where the edges form a cycle, none for a second instance of a graph
    /// with memory nodes.
    pub(crate) fn create(
        graph: &Arc<Graph>,
        flags: u64,
    ) -> Result<Arc<Executable>, (CUerror, Option<NodeKey>)> {
        let nodes = graph.freeze();
        let plan = plan(&nodes, &HashSet::new()).map_err(|node| (CUerror::INVALID_VALUE, Some(node)))?;
        crate::object::graph::count_instance(graph).map_err(|error| (error, None))?;
        let state = State {
            nodes,
            references: graph.references(),
            disabled: HashSet::new(),
            plan: plan.into(),
            last: None,
            in_flight: Arc::default(),
        };
        let make = |handle| Executable {
            handle,
            id: crate::object::graph::next_id(),
            flags,
            graph: Arc::downgrade(graph),
            state: Mutex::new(state),
        };
        Ok(EXECUTABLES.insert_with(make).1)
    }

    /// Looks at it.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.state.lock())
    }

    /// Changes nodes; future launches do what they then say. A change that fails leaves all as it was.
    ///
    /// # Errors
    /// Those of the change.
    pub(crate) fn change<E>(&self, change: impl FnOnce(&mut State) -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        change(&mut state)?;
        // The shape is what it was when the graph was instantiated, so it has an order.
        if let Ok(actions) = plan(&state.nodes, &state.disabled) {
            state.plan = actions.into();
        }
        Ok(())
    }

    /// `cuGraphLaunch` into a stream that is not capturing.
    ///
    /// # Errors
    /// `INVALID_VALUE` if memory of an earlier launch has not been freed and the graph was not instantiated
    /// to free it by itself; `OUT_OF_MEMORY`.
    pub(crate) fn launch(&self, stream: &Stream) -> CUresult {
        let mut state = self.state.lock();
        if let Some(ticket) = state.last
            && !stream.is_where(ticket)
        {
            ordering::submit(stream, Command::Wait { ticket })?;
        }
        let own: Vec<u64> = state
            .plan
            .iter()
            .filter_map(|action| match action {
                Action::Alloc {
                    block,
                    is_freed_here: true,
                } => Some(block.address()),
                _ => None,
            })
            .collect();
        if own.is_empty() {
            self.allocate(&state)?;
            state.last = Some(submit_all(&state.plan, stream)?);
            return Ok(());
        }
        // No launch ends meanwhile: the memory of one that is in flight is this one's too.
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
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub(crate) fn upload(&self) -> CUresult {
        let state = self.state.lock();
        let blocks = state.plan.iter().filter_map(|action| match action {
            Action::Alloc { block, .. } if !block.is_backed() => Some(block),
            _ => None,
        });
        graph_memory::prepare(blocks)
    }

    /// Puts memory behind the graph's allocations; all or none.
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

/// Submits the commands of one launch. Returns the ticket of its end.
///
/// # Errors
/// `CUDA_ERROR_NOT_INITIALIZED`, or what an action's own function says.
fn submit_all(plan: &[Action], stream: &Stream) -> Result<Ticket, CUerror> {
    for action in plan {
        submit(action, stream)?;
    }
    ordering::submit(stream, Command::Marker)
}

impl Drop for Executable {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let references = core::mem::take(&mut state.references);
        if let Some(last) = state.last
            && !references.is_empty()
        {
            effects::add(last, Box::new(move || drop(references)));
        }
        if let Some(graph) = self.graph.upgrade() {
            graph.instances.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The executable graph that a caller means.
///
/// # Errors
/// `INVALID_VALUE` for a handle that is none.
pub(crate) fn executable(handle: CUgraphExec) -> Result<Arc<Executable>, CUerror> {
    permit()?;
    process()?;
    EXECUTABLES.get(handle.0).ok_or(CUerror::INVALID_VALUE)
}

/// Ends one; launches of it go on.
///
/// # Errors
/// `INVALID_VALUE` for a handle that is none.
pub(crate) fn destroy(handle: CUgraphExec) -> CUresult {
    permit()?;
    process()?;
    EXECUTABLES
        .remove(handle.0)
        .map(drop)
        .ok_or(CUerror::INVALID_VALUE)
}
