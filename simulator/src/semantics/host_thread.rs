//! Host work in streams: functions and callbacks (`cuLaunchHostFunc`, `cuStreamAddCallback`), waits for and writes of
//! values in memory (`object/memory_operation.rs`).
//!
//! The machine has gates: a stream stops at one until this process opens it. A thread of the process, started when first
//! needed, watches the marker before each gate, does the task and opens the gate. It never waits for one stream only, as
//! that stream may wait for another stream's task. Memory operations have a thread of their own (docs/hardware.md,
//! "operations on memory in a stream").

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use parking_lot::{Condvar, Mutex};
use vcuda_driver_api::prelude::*;
use vcuda_machine::{Client, Command, Ticket};

use crate::base::thread::{become_host_thread, start_quietly};
use crate::object::host_function::HostFunction;
use crate::object::memory_operation::{Condition, MemoryOperation, Width};
use crate::object::process::process;
use crate::object::stream::Stream;
use crate::semantics::effects::settle;
use crate::semantics::ordering;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    /// Stream handle for the callback, as the program named it.
    pub(crate) stream: CUstream,
    pub(crate) function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
    pub(crate) data: *mut c_void,
}

// SAFETY: the API's contract is that the callback may be called from the driver's thread with its argument.
unsafe impl Send for Callback {}

/// Host task at one position of a stream.
#[derive(Debug)]
enum Task {
    Call(HostFunction),
    Callback(Callback),
    /// Remaining operations, the next one last.
    Memory(Vec<MemoryOperation>),
}

#[derive(Debug)]
struct Item {
    /// The marker before the task and the gate behind it.
    place: (Ticket, Ticket),
    task: Task,
}

/// A thread for tasks, and its queue.
#[derive(Debug)]
struct Worker {
    name: &'static str,
    new: Mutex<Vec<Item>>,
    wake: Condvar,
    has_started: AtomicBool,
}

impl Worker {
    const fn new(name: &'static str) -> Self {
        Self { name, new: Mutex::new(Vec::new()), wake: Condvar::new(), has_started: AtomicBool::new(false) }
    }
}

/// Worker for the program's functions.
static HOST: Worker = Worker::new("cuda-host");
/// Worker for memory operations.
static GPU: Worker = Worker::new("cuda-memory-ops");

/// Submits a host function to a stream that is not capturing. Error: `CUDA_ERROR_OUT_OF_MEMORY` if no thread can be
/// started.
pub(crate) fn call(stream: &Stream, function: HostFunction) -> CUresult {
    HOST.put_in(stream, Task::Call(function))
}

/// Submits a callback to a stream that is not capturing. Error: `CUDA_ERROR_OUT_OF_MEMORY` if no thread can be started.
pub(crate) fn call_back(stream: &Stream, callback: Callback) -> CUresult {
    HOST.put_in(stream, Task::Callback(callback))
}

/// Submits memory operations to a stream that is not capturing. Error: `CUDA_ERROR_OUT_OF_MEMORY` if no thread can be
/// started.
pub(crate) fn operate(stream: &Stream, mut operations: Vec<MemoryOperation>) -> CUresult {
    operations.reverse();
    GPU.put_in(stream, Task::Memory(operations))
}

/// Submits a kernel that runs until the word at `address` is not 0. Error: `CUDA_ERROR_OUT_OF_MEMORY` if no thread can
/// be started.
pub(crate) fn spin(stream: &Stream, address: u64, sms: u32) -> CUresult {
    let wait = MemoryOperation::Wait {
        address,
        width: Width::Four,
        value: u64::from(u32::MAX),
        condition: Condition::And,
    };
    GPU.start()?;
    let place = ordering::mark_and_hold(stream, Command::Spin { sms })?;
    GPU.hand_over(place, Task::Memory(vec![wait]));
    Ok(())
}

impl Worker {
    fn put_in(&'static self, stream: &Stream, task: Task) -> CUresult {
        self.start()?;
        self.hand_over(ordering::mark_and_hold(stream, Command::Gate)?, task);
        Ok(())
    }

    fn hand_over(&self, place: (Ticket, Ticket), task: Task) {
        self.new.lock().push(Item { place, task });
        self.wake.notify_one();
    }

    /// Starts the thread once.
    fn start(&'static self) -> CUresult {
        static STARTING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = STARTING.lock();
        if self.has_started.load(Ordering::Relaxed) {
            return Ok(());
        }
        let client = &process()?.client;
        start_quietly(self.name, move || self.run(client)).map_err(|_| CUerror::OUT_OF_MEMORY)?;
        self.has_started.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn run(&self, client: &'static Client) {
        become_host_thread();
        // SAFETY: sets this thread's timer slack to a nanosecond; a failure leaves the default.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let mut items: Vec<Item> = Vec::new();
        let mut pause = SHORT;
        loop {
            {
                let mut new = self.new.lock();
                while items.is_empty() && new.is_empty() {
                    self.wake.wait(&mut new);
                }
                if !new.is_empty() {
                    pause = SHORT;
                    items.append(&mut new);
                }
            }
            let before = items.len();
            items.retain_mut(|item| !step(client, item));
            if items.len() < before {
                pause = SHORT;
            } else {
                std::thread::sleep(pause);
                pause = (pause + pause / 8).min(LONG);
            }
        }
    }
}

/// Shortest and longest interval between two polls of streams.
const SHORT: Duration = Duration::from_micros(20);
const LONG: Duration = Duration::from_micros(500);

/// Continues an item; true when it is finished and the stream may continue.
fn step(client: &Client, item: &mut Item) -> bool {
    let (marker, gate) = item.place;
    if !client.is_done(marker) {
        return false;
    }
    // "The start of execution has the same effect as synchronizing an event recorded in the same stream
    // immediately prior."
    settle();
    match &mut item.task {
        Task::Call(HostFunction { function, data }) => {
            // SAFETY: the program gave the function to be called with this argument, once.
            unsafe { function(*data) };
        }
        Task::Callback(Callback { stream, function, data }) => {
            // SAFETY: the program gave the callback to be called with its stream and this argument, once.
            unsafe { function(*stream, Ok(()), *data) };
        }
        Task::Memory(operations) => {
            while let Some(operation) = operations.last() {
                if !operation.attempt() {
                    return false;
                }
                operations.pop();
            }
        }
    }
    client.open_gate(gate);
    true
}
