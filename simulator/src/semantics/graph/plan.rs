//! Commands of a launch of an executable graph.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vcuda_driver_api::CUresult;
use vcuda_machine::Command;

use crate::object::capture::NodeKey;
use crate::object::event::Event;
use crate::object::graph::frozen::{Frozen, Step};
use crate::object::graph::node::Operation;
use crate::object::graph_memory::{self, GraphBlock};
use crate::object::host_function::HostFunction;
use crate::object::memory_operation::MemoryOperation;
use crate::object::process::process;
use crate::object::stream::Stream;
use crate::semantics::graph::schedule::{Job, combine};
use crate::semantics::work::{Work, effect};
use crate::semantics::{event, host_thread, ordering};

/// A command of a launch.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "few, and most of them copies")]
pub(super) enum Action {
    /// Kernels, combined into one.
    Kernels {
        duration_ns: u64,
        sms: u32,
    },
    /// A copy or a set.
    Run(Work),
    Call(HostFunction),
    /// Waits for and writes values.
    Operate(Vec<MemoryOperation>),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    /// Provides memory for an allocation node, with whether this graph also frees it.
    Alloc {
        block: GraphBlock,
        is_freed_here: bool,
    },
    /// Frees memory that another graph, or this one in an earlier launch, allocated.
    Free(u64),
}

/// Frees memory that a graph allocated. Memory that was freed meanwhile, as by `cuMemFree`, is skipped.
pub(super) fn free(address: u64) {
    let _ = graph_memory::free(address);
}

/// Submits one command of a launch.
pub(super) fn submit(action: &Action, stream: &Stream) -> CUresult {
    match action {
        Action::Kernels { duration_ns, sms } => {
            let (duration_ns, sms) = (*duration_ns, *sms);
            ordering::submit(stream, Command::Kernel { duration_ns, sms }).map(drop)
        }
        Action::Run(work) => {
            let command = work.command(process()?);
            let work = work.clone();
            ordering::submit_with_effect(stream, command, effect(work))
        }
        Action::Call(function) => host_thread::call(stream, *function),
        Action::Operate(operations) => host_thread::operate(stream, operations.clone()),
        Action::Record(event) => event::mark(event, stream),
        Action::Wait(event) => event::hold_up(event, stream),
        Action::Alloc { .. } => Ok(()),
        Action::Free(address) => {
            let address = *address;
            ordering::submit_with_effect(stream, Command::Marker, Box::new(move || free(address)))
        }
    }
}

/// Kernels to be combined into one command.
#[derive(Default)]
struct Group {
    jobs: Vec<Job>,
    /// Positions of this group's nodes in it.
    places: HashMap<NodeKey, usize>,
    sms: u32,
}

impl Group {
    fn flush(&mut self, actions: &mut Vec<Action>) {
        let group = core::mem::take(self);
        if group.jobs.iter().any(|job| job.sms > 0) {
            let (duration_ns, sms) = combine(&group.jobs, group.sms);
            actions.push(Action::Kernels { duration_ns, sms });
        }
    }
}

/// The commands of a launch. Error: A node of a cycle.
pub(super) fn plan(nodes: &Frozen) -> Result<Vec<Action>, NodeKey> {
    let mut actions = Vec::new();
    extend(nodes, &mut actions)?;
    let freed: HashSet<u64> = actions
        .iter()
        .filter_map(|a| if let Action::Free(address) = a { Some(*address) } else { None })
        .collect();
    let mut own = HashSet::new();
    for action in &mut actions {
        if let Action::Alloc { block, is_freed_here } = action
            && freed.contains(&block.address())
        {
            *is_freed_here = true;
            own.insert(block.address());
        }
    }
    // Memory that the graph frees itself is freed at the launch's end, so that launches may follow each other closely.
    actions.retain(|action| !matches!(action, Action::Free(address) if own.contains(address)));
    Ok(actions)
}

fn extend(nodes: &Frozen, actions: &mut Vec<Action>) -> Result<(), NodeKey> {
    let mut group = Group::default();
    for node in nodes.order()?.into_iter().filter_map(|position| nodes.nodes().get(position)) {
        let operation = match &node.payload {
            Step::Do(operation) => operation,
            Step::Embedded(child) => {
                group.flush(actions);
                extend(child, actions)?;
                continue;
            }
        };
        let (duration_ns, sms) = match operation {
            Operation::Kernel(kernel) => {
                group.sms = kernel.function.sms;
                kernel.cost()
            }
            Operation::Empty => (0, 0),
            other => {
                group.flush(actions);
                actions.extend(action(other));
                continue;
            }
        };
        let after =
            node.dependencies.iter().filter_map(|edge| group.places.get(&edge.from).copied()).collect();
        group.places.insert(node.key, group.jobs.len());
        group.jobs.push(Job { duration_ns, sms, after });
    }
    group.flush(actions);
    Ok(())
}

/// The command of a node other than a kernel.
fn action(operation: &Operation) -> Option<Action> {
    Some(match operation {
        Operation::Copy(transfer, _) => Action::Run(Work::Copy(transfer.clone())),
        Operation::Set(fill, _) => Action::Run(Work::Set(*fill)),
        Operation::Host(function) => Action::Call(*function),
        Operation::EventRecord(event) => Action::Record(Arc::clone(event)),
        Operation::EventWait(event) => Action::Wait(Arc::clone(event)),
        Operation::Alloc(allocation) => {
            Action::Alloc { block: allocation.block.clone(), is_freed_here: false }
        }
        Operation::Free(address) => Action::Free(*address),
        Operation::Memory(operations) => Action::Operate(operations.clone()),
        Operation::Kernel(_) | Operation::Child(_) | Operation::Empty => return None,
    })
}
