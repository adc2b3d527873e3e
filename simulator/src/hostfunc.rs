//! What streams have the host do: functions and callbacks (`cuLaunchHostFunc`, `cuStreamAddCallback`), waits
//! for and writes of values in memory (`stream/memory_operations.rs`).
//!
//! The machine knows a gate: the stream stops there until this process opens it. One thread per process,
//! started at the first need, watches the marker before each gate, does the task and opens the gate. It
//! never waits for one stream only, as another stream's task may be what that stream waits for.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::cell::Cell;

use parking_lot::{Condvar, Mutex};
use vcuda_driver_api::prelude::*;
use vcuda_machine::{Client, Command, Ticket};

use crate::capture;
use crate::ffi::export;
use crate::graph::node::Operation;
use crate::process::process;
use crate::stream::memory_operations::{Condition, MemoryOperation, Width};
use crate::stream::queue::Stream;
use crate::stream::{Null, resolve, settle};

export! {
    cuLaunchHostFunc => launch_host_function::<false>;
    cuLaunchHostFunc_ptsz => launch_host_function::<true>;
    cuLaunchHostFunc_v2 => launch_host_function_v2::<false>;
    cuLaunchHostFunc_v2_ptsz => launch_host_function_v2::<true>;
    cuStreamAddCallback => add_callback::<false>;
    cuStreamAddCallback_ptsz => add_callback::<true>;
}

/// A program's function and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    /// The function.
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    /// Its argument.
    pub(crate) data: *mut c_void,
}

// SAFETY: the API's contract is that the function may be called from the driver's thread with its argument.
unsafe impl Send for HostFunction {}
// SAFETY: as above; the argument is only handed on.
unsafe impl Sync for HostFunction {}

/// A callback of a stream.
#[derive(Clone, Copy, Debug)]
struct Callback {
    stream: CUstream,
    function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
    data: *mut c_void,
}

// SAFETY: the API's contract is that the callback may be called from the driver's thread with its argument.
unsafe impl Send for Callback {}

/// What the host does at one place of a stream.
#[derive(Debug)]
enum Task {
    Call(HostFunction),
    Callback(Callback),
    /// Operations that are still to do, the next one last.
    Memory(Vec<MemoryOperation>),
}

#[derive(Debug)]
struct Item {
    /// The marker before the task and the gate behind it; none for a task outside streams.
    place: Option<(Ticket, Ticket)>,
    task: Task,
}

static NEW: Mutex<Vec<Item>> = Mutex::new(Vec::new());
static WAKE: Condvar = Condvar::new();
static STARTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IS_HOST_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// To be asked by calls that a host function may not make.
///
/// # Errors
/// `CUDA_ERROR_NOT_PERMITTED` in a host function or callback ("attempting to use a CUDA API will result in
/// CUDA_ERROR_NOT_PERMITTED").
#[inline]
pub(crate) fn permit() -> CUresult {
    if STARTED.load(Ordering::Relaxed) && IS_HOST_THREAD.try_with(Cell::get).unwrap_or(false) {
        return Err(CUerror::NOT_PERMITTED);
    }
    Ok(())
}

/// Puts a call of a host function into a stream that is not capturing.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` where no thread can be made.
pub(crate) fn call(stream: &Stream, function: HostFunction) -> CUresult {
    put_in(stream, Task::Call(function))
}

/// Puts operations on memory into a stream that is not capturing.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` where no thread can be made.
pub(crate) fn operate(stream: &Stream, mut operations: Vec<MemoryOperation>) -> CUresult {
    operations.reverse();
    put_in(stream, Task::Memory(operations))
}

/// Runs a kernel until the word at `address` is not 0.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` where no thread can be made.
pub(crate) fn spin(stream: &Stream, address: u64, sms: u32) -> CUresult {
    let wait = MemoryOperation::Wait {
        address,
        width: Width::Four,
        value: u64::from(u32::MAX),
        condition: Condition::And,
    };
    start()?;
    let place = stream.mark_and_hold(Command::Spin { sms })?;
    hand_over(Some(place), Task::Memory(vec![wait]));
    Ok(())
}

/// Has a function called on the thread, outside streams (a user object's destructor).
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` where no thread can be made.
pub(crate) fn call_soon(function: HostFunction) -> CUresult {
    start()?;
    hand_over(None, Task::Call(function));
    Ok(())
}

fn put_in(stream: &Stream, task: Task) -> CUresult {
    start()?;
    hand_over(Some(stream.mark_and_hold(Command::Gate)?), task);
    Ok(())
}

fn hand_over(place: Option<(Ticket, Ticket)>, task: Task) {
    NEW.lock().push(Item { place, task });
    WAKE.notify_one();
}

/// Starts the thread once, with all signals blocked: the program's handlers run on its own threads.
fn start() -> CUresult {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock();
    if STARTED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let client = &process()?.client;
    let mut old = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is this function's own; sigfillset makes it valid.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` was filled, `old` is written by the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr()) };
    let thread = std::thread::Builder::new()
        .name("cuda-host".to_owned())
        .spawn(move || run(client));
    // SAFETY: `old` was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), core::ptr::null_mut()) };
    thread.map_err(|_| CUerror::OUT_OF_MEMORY)?;
    STARTED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Shortest and longest time between two looks at what streams are doing.
const SHORT: Duration = Duration::from_micros(20);
const LONG: Duration = Duration::from_micros(500);

/// The thread.
fn run(client: &'static Client) {
    IS_HOST_THREAD.set(true);
    // SAFETY: sets this thread's timer slack to a nanosecond; a failure leaves the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let mut items: Vec<Item> = Vec::new();
    let mut pause = SHORT;
    loop {
        {
            let mut new = NEW.lock();
            while items.is_empty() && new.is_empty() {
                WAKE.wait(&mut new);
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

/// Does what is to do in one place; true when it is finished and the stream goes on.
fn step(client: &Client, item: &mut Item) -> bool {
    if item.place.is_some_and(|(marker, _)| !client.is_done(marker)) {
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
        Task::Callback(Callback {
            stream,
            function,
            data,
        }) => {
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
    if let Some((_, gate)) = item.place {
        client.open_gate(gate);
    }
    true
}

fn launch_host_function<const PER_THREAD: bool>(
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    let function = HostFunction {
        function: function.ok_or(CUerror::INVALID_VALUE)?,
        data,
    };
    match capture::intercept(&stream)? {
        Some(recording) => recording.add(Operation::Host(function)).map(drop),
        None => call(&stream, function),
    }
}

/// The synchronisation mode (CUDA 13.1) says how the driver's thread waits; it has one way here.
fn launch_host_function_v2<const PER_THREAD: bool>(
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
    _mode: c_uint,
) -> CUresult {
    launch_host_function::<PER_THREAD>(stream, function, data)
}

/// "Not supported with cuStreamBeginCapture".
fn add_callback<const PER_THREAD: bool>(
    handle: CUstream,
    callback: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(handle, Null::of(PER_THREAD))?;
    capture::refuse(&stream)?;
    let function = callback.ok_or(CUerror::INVALID_VALUE)?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put_in(
        &stream,
        Task::Callback(Callback {
            stream: handle,
            function,
            data,
        }),
    )
}
