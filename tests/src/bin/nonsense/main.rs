//! Calls functions of the driver with invalid arguments, and prints each result: `nonsense STAGE NAME...`.
//!
//! A line has the call, its status, and the buffers behind its pointers that the driver wrote to, so that runs with and
//! without the shim can be compared. A failed call must leave the used memory by NVML unchanged; otherwise the line says
//! so. Each function runs in a process of its own, and a new one is started after each call that succeeded (which may have
//! changed anything) or ended the process.
//!
//! STAGE: `nothing` (no initialisation), `started` (no context), `context` (one is current). `forks` compares nothing: it
//! forks while threads call all functions.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test program: it stops at the first thing that is not as it should be, and its output is its result"
)]

mod forks;
mod live;
mod prototypes;
mod values;

use std::ffi::c_void;
use std::fmt::Write as _;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use live::{Driver, Live, Stage};
use prototypes::{Prototype, prototype};
use values::{Case, Content, ROOM, Value, cases};

/// Time after which a call counts as hanging (s).
const PATIENCE_S: u32 = 10;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let stage = arguments.next().unwrap_or_default();
    if stage == "forks" {
        return forks::fork_among(arguments);
    }
    let stage = Stage::named(&stage);
    let stage = stage.unwrap_or_else(|| panic!("usage: nonsense nothing|started|context|forks NAME..."));
    let at = shared();
    for name in arguments {
        match prototype(&name) {
            Some(prototype) => try_all(prototype, stage, at),
            None => println!("{name} has no prototype in driver-api"),
        }
    }
}

/// Index of the child's present call, shared with the parent.
fn shared() -> &'static AtomicUsize {
    let bytes = size_of::<AtomicUsize>();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which nothing else uses.
    let place = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    assert!(place != libc::MAP_FAILED);
    // SAFETY: mapped, aligned to a page, zero, and never unmapped.
    unsafe { &*place.cast::<AtomicUsize>() }
}

fn try_all(prototype: &'static Prototype, stage: Stage, at: &AtomicUsize) {
    let cases = cases(prototype);
    let mut next = 0;
    while next < cases.len() {
        at.store(next, Ordering::SeqCst);
        // SAFETY: this process has one thread and has not touched the driver.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: takes no pointer.
            unsafe { libc::alarm(PATIENCE_S) };
            try_from(prototype, stage, &cases, at);
            // SAFETY: the child ends here and runs no handlers of its parent's.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: our child; the status is a variable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        next = at.load(Ordering::SeqCst);
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            println!("{} ended by signal {signal}", describe(prototype, &cases[next]));
            next += 1;
        } else if libc::WEXITSTATUS(status) != 0 {
            println!("{} ended with {}", prototype.name, libc::WEXITSTATUS(status));
            return;
        }
    }
}

/// Makes the calls from the current one on, until one succeeds.
fn try_from(prototype: &'static Prototype, stage: Stage, cases: &[Case], at: &AtomicUsize) {
    let driver = Driver::open(stage);
    let function = driver.symbol(prototype.name);
    if function.is_null() {
        println!("{} is not there", prototype.name);
        at.store(cases.len(), Ordering::SeqCst);
        return;
    }
    let mut live = Live::default();
    let first = at.load(Ordering::SeqCst);
    for (index, case) in cases.iter().enumerate().skip(first) {
        at.store(index, Ordering::SeqCst);
        let mut buffers: Vec<Option<Vec<u8>>> = case.iter().map(buffer).collect();
        let before = buffers.clone();
        let mut bytes = Vec::new();
        for ((value, argument), buffer) in case.iter().zip(prototype.arguments).zip(&mut buffers) {
            bytes.push(match value {
                Value::Number(number) => padded(&number.to_le_bytes(), argument.size),
                Value::Bytes(bytes) => padded(bytes, argument.size),
                Value::Live(more) => {
                    let object = live.object(&driver, argument.type_name);
                    let object = if object == 0 { 0 } else { object + more };
                    object.to_le_bytes()[..argument.size].to_vec()
                }
                Value::Buffer(_) => {
                    address(buffer.as_mut().map_or(null_mut(), |buffer| buffer.as_mut_ptr().cast()))
                }
                Value::Callback => address(nothing as *mut c_void),
            });
        }
        let call = || {
            let used = driver.used_bytes();
            // SAFETY: the function of this name; the values have its types, but may be invalid.
            let status = unsafe { (prototype.call)(function, &bytes) };
            (status, used, driver.used_bytes())
        };
        let (status, mut used, mut used_now) = call();
        let mut line = format!("{} = {status}, wrote", describe(prototype, case));
        for (at, (before, after)) in before.iter().zip(&buffers).enumerate() {
            if before != after {
                let _ = write!(line, " {}", prototype.arguments[at].name);
            }
        }
        if status != 0 && used != used_now {
            // The driver's own memory is charged once it is measured, maybe meanwhile. What the call charges, it charges again.
            (_, used, used_now) = call();
        }
        if status != 0 && used != used_now {
            let _ = write!(line, ", ACCOUNTED {used:?} -> {used_now:?}");
        }
        println!("{line}");
        at.store(index + 1, Ordering::SeqCst);
        if status == 0 {
            return;
        }
    }
}

/// Bytes behind a pointer before the call.
fn buffer(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Buffer(Content::Bytes(byte)) => Some(vec![*byte; ROOM]),
        Value::Buffer(Content::Start(start)) => {
            let mut bytes = vec![0; ROOM];
            bytes[..start.len()].copy_from_slice(start);
            Some(bytes)
        }
        _ => None,
    }
}

/// The argument's bytes, padded with zeros.
fn padded(bytes: &[u8], size: usize) -> Vec<u8> {
    bytes.iter().chain(&[0; 128]).copied().take(size).collect()
}

fn address(address: *mut c_void) -> Vec<u8> {
    address.addr().to_le_bytes().to_vec()
}

/// A callback without effect.
extern "C" fn nothing() {}

/// The call as text, equal in every run.
fn describe(prototype: &Prototype, case: &Case) -> String {
    let mut text = format!("{}(", prototype.name);
    for (at, value) in case.iter().enumerate() {
        if at > 0 {
            text += ", ";
        }
        let _ = match value {
            Value::Number(0) => write!(text, "0"),
            Value::Number(number) => write!(text, "{number:#x}"),
            Value::Bytes(bytes) => write!(text, "[{}]", hex(bytes)),
            Value::Live(0) => write!(text, "live"),
            Value::Live(more) => write!(text, "live+{more}"),
            Value::Buffer(Content::Bytes(byte)) => write!(text, "&{byte:02x}.."),
            Value::Buffer(Content::Start(start)) => write!(text, "&{}", hex(start)),
            Value::Callback => write!(text, "callback"),
        };
    }
    text + ")"
}

/// Hexadecimal digits without trailing zeros; a repeated byte is written once.
fn hex(bytes: &[u8]) -> String {
    if bytes.len() > 64 && bytes.iter().all(|byte| *byte == bytes[0]) {
        return format!("{:02x}..", bytes[0]);
    }
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    bytes[..end].iter().map(|byte| format!("{byte:02x}")).collect()
}
