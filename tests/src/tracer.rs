//! Runs a program one instruction at a time (ptrace(2)), so that it can be stopped or killed at each of them.
//!
//! Only a library and the program itself are stepped through. Whatever they call elsewhere (the driver, libc) runs at
//! full speed up to its return: it takes a breakpoint there, and no step.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use libc::{c_int, c_long, c_uint, c_ulong, pid_t, user_regs_struct};

use crate::running::next_line;

/// The instruction `int3`, which is a mark in the program and a breakpoint of ours elsewhere.
const BREAKPOINT: u8 = 0xcc;

/// The thread of the shim that starts NVML, for which the call that makes the first context waits.
const NVML_THREAD: &str = "vcuda-nvml";

/// A child that stands still, with all its threads, its first one between two instructions. Only the thread that started
/// it may move it on.
#[derive(Debug)]
pub struct Traced {
    child: Child,
    pid: pid_t,
    /// Its other threads, which ran until they had a name.
    threads: RefCell<Vec<pid_t>>,
    library: Range<u64>,
    program: Range<u64>,
}

/// Where a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Before the instruction at this offset in the library's code.
    In(u64),
    /// Behind a mark of the program.
    Mark,
}

/// Whether a process may trace its children here.
pub fn is_permitted() -> bool {
    let mut probe = Command::new("true");
    // SAFETY: between fork and exec only ptrace is called, which is a bare system call.
    unsafe { probe.pre_exec(trace_me) };
    probe.spawn().is_ok_and(|mut child| {
        // It stands at its beginning.
        let _ = child.kill();
        let _ = child.wait();
        true
    })
}

impl Traced {
    /// Starts the command, whose stdin and stdout are pipes.
    pub fn start(command: &mut Command) -> Self {
        // Calls go straight where they go: the loader's resolver does not come back by a return.
        command
            .env("LD_BIND_NOW", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // SAFETY: between fork and exec only ptrace is called, which is a bare system call.
        unsafe { command.pre_exec(trace_me) };
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let traced = Traced {
            pid: pid_t::try_from(child.id()).unwrap(),
            child,
            threads: RefCell::default(),
            library: 0..0,
            program: 0..0,
        };
        traced.wait();
        // If the test fails, no process is left stopped.
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE;
        traced.ask(libc::PTRACE_SETOPTIONS, 0, c_long::from(options));
        traced
    }

    /// Lets it run to its first mark. The library that is stepped through (a part of its path) is loaded by then.
    pub fn run_to_first_mark(&mut self, library: &str) {
        self.run_to_mark();
        self.library = self.code_of(library);
        let program = std::fs::read_link(format!("/proc/{}/exe", self.pid)).unwrap();
        self.program = self.code_of(program.to_str().unwrap());
    }

    /// Writes a line to its stdin.
    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next line that it has printed.
    pub fn hear(&mut self) -> String {
        next_line(self.child.stdout.as_mut().unwrap()).unwrap()
    }

    /// Lets it run to its next mark.
    pub fn run_to_mark(&self) {
        while self.resume() != libc::SIGTRAP {}
    }

    /// To the next instruction of the library, or to the next mark.
    pub fn step(&self) -> Stop {
        loop {
            self.ask(libc::PTRACE_SINGLESTEP, 0, 0);
            if libc::WSTOPSIG(self.wait()) != libc::SIGTRAP {
                continue;
            }
            let registers = self.registers();
            let at = registers.rip;
            if self.library.contains(&at) {
                return Stop::In(at - self.library.start);
            }
            if self.program.contains(&at) {
                if self.is_at_mark() {
                    return Stop::Mark;
                }
                continue;
            }
            // Called, or jumped to from what was called: its return address lies on top of the stack.
            let back = self.read(registers.rsp).cast_unsigned();
            assert!(
                self.library.contains(&back) || self.program.contains(&back),
                "{at:#x} was not called"
            );
            assert!(self.run_to(back, Some(registers.rsp + 8)), "a mark within a call");
            if self.library.contains(&back) {
                return Stop::In(back - self.library.start);
            }
        }
    }

    /// Where it passes through the library up to the next mark, instruction by instruction.
    pub fn path_to_mark(&self) -> Vec<u64> {
        let mut path = Vec::new();
        while let Stop::In(offset) = self.step() {
            path.push(offset);
        }
        path
    }

    /// Lets it run to a place of the path that it took when it last did what it does now. `false` if it came to a mark
    /// instead: it took another path.
    ///
    /// A step costs as much as a thousand system calls under some hypervisors: it runs to the last instruction before
    /// that place which the path had not been to, and takes steps from there only.
    pub fn run_along(&self, path: &[u64], place: usize) -> bool {
        let mut newest = HashMap::new();
        for (nth, offset) in path[..=place].iter().enumerate() {
            newest.entry(offset).or_insert(nth);
        }
        let from = newest.into_values().max().unwrap();
        self.run_to(self.library.start + path[from], None) && (from..place).all(|_| self.step() != Stop::Mark)
    }

    /// Kills it where it stands. Then it is a zombie until it is dropped.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        // Its first thread is a zombie only when the others, which are waited for apart, are gone.
        for thread in self.threads.take() {
            // SAFETY: writes nothing.
            unsafe { libc::waitpid(thread, core::ptr::null_mut(), libc::__WALL) };
        }
        // Dead from here on, however long the kernel took for it; not yet waited for.
        let id = libc::id_t::try_from(self.pid).unwrap();
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: integers only, for which zeros are a value.
        let mut cause: libc::siginfo_t = unsafe { core::mem::zeroed() };
        // SAFETY: the kernel fills the structure.
        unsafe { libc::waitid(libc::P_PID, id, &raw mut cause, options) };
    }

    /// Lets it run to its end.
    pub fn finish(mut self) -> ExitStatus {
        for thread in self.threads.take() {
            Self::ask_thread(thread, libc::PTRACE_DETACH, 0, 0);
        }
        self.ask(libc::PTRACE_DETACH, 0, 0);
        self.child.wait().unwrap()
    }

    /// Runs until it comes to an address, with the stack at a height if one is given (deeper, it is another call). `false`
    /// if it comes to a mark instead.
    fn run_to(&self, address: u64, stack: Option<u64>) -> bool {
        let word = self.read(address);
        let mut bytes = word.to_le_bytes();
        bytes[0] = BREAKPOINT;
        loop {
            self.ask(libc::PTRACE_POKETEXT, address, c_long::from_le_bytes(bytes));
            self.run_to_mark();
            self.ask(libc::PTRACE_POKETEXT, address, word);
            let mut registers = self.registers();
            if registers.rip != address + 1 {
                return false;
            }
            registers.rip = address;
            self.ask(libc::PTRACE_SETREGS, 0, address_of(&raw mut registers));
            if stack.is_none_or(|stack| stack == registers.rsp) {
                return true;
            }
            self.ask(libc::PTRACE_SINGLESTEP, 0, 0);
            assert_eq!(libc::WSTOPSIG(self.wait()), libc::SIGTRAP);
        }
    }

    /// The addresses of the code of a mapped file.
    fn code_of(&self, file: &str) -> Range<u64> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap();
        let line = maps
            .lines()
            .find(|line| line.contains(file) && line.contains("r-xp"))
            .unwrap_or_else(|| panic!("{file} is not mapped:\n{maps}"));
        let (from, rest) = line.split_once('-').unwrap();
        let (to, _) = rest.split_once(' ').unwrap();
        u64::from_str_radix(from, 16).unwrap()..u64::from_str_radix(to, 16).unwrap()
    }

    fn registers(&self) -> user_regs_struct {
        // SAFETY: integers only, for which zeros are a value.
        let mut registers: user_regs_struct = unsafe { core::mem::zeroed() };
        self.ask(libc::PTRACE_GETREGS, 0, address_of(&raw mut registers));
        registers
    }

    /// Whether it was an `int3` that it stopped for, and not the end of a step.
    fn is_at_mark(&self) -> bool {
        // SAFETY: integers only, for which zeros are a value.
        let mut cause: libc::siginfo_t = unsafe { core::mem::zeroed() };
        self.ask(libc::PTRACE_GETSIGINFO, 0, address_of(&raw mut cause));
        cause.si_code != libc::TRAP_TRACE
    }

    /// Lets it run to the next signal and returns that.
    fn resume(&self) -> i32 {
        loop {
            self.ask(libc::PTRACE_CONT, 0, 0);
            let status = self.wait();
            if status >> 16 != libc::PTRACE_EVENT_CLONE {
                return libc::WSTOPSIG(status);
            }
            let mut thread: c_ulong = 0;
            self.ask(libc::PTRACE_GETEVENTMSG, 0, address_of(&raw mut thread));
            let thread = pid_t::try_from(thread).unwrap();
            Self::wait_for(thread);
            // Before the first mark there are no breakpoints of ours, which a thread could meet.
            if self.library.is_empty() && self.name_of(thread) == NVML_THREAD {
                Self::run_to_end(thread);
            } else {
                self.threads.borrow_mut().push(thread);
            }
        }
    }

    /// The name that a new thread gives itself; nothing if it does not soon. It stands still then.
    fn name_of(&self, thread: pid_t) -> String {
        let name = || std::fs::read_to_string(format!("/proc/{}/task/{thread}/comm", self.pid)).unwrap();
        let inherited = name();
        // A beginning and an end for each of the few calls that the C library makes first.
        for _ in 0..40 {
            if name() != inherited {
                return name().trim_end().to_owned();
            }
            Self::ask_thread(thread, libc::PTRACE_SYSCALL, 0, 0);
            Self::wait_for(thread);
        }
        String::new()
    }

    /// Lets another thread run to its end, while the first one stands still.
    fn run_to_end(thread: pid_t) {
        let mut status = 0;
        loop {
            Self::ask_thread(thread, libc::PTRACE_CONT, 0, 0);
            // SAFETY: the kernel writes one word.
            unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
            if libc::WIFEXITED(status) {
                return;
            }
        }
    }

    /// The status that it stopped with.
    fn wait(&self) -> c_int {
        Self::wait_for(self.pid)
    }

    fn wait_for(thread: pid_t) -> c_int {
        let mut status = 0;
        // SAFETY: the kernel writes one word.
        let found = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        assert_eq!(found, thread, "{}", io::Error::last_os_error());
        assert!(libc::WIFSTOPPED(status), "it ended: {status:#x}");
        status
    }

    fn read(&self, address: u64) -> c_long {
        // SAFETY: reads the other process's memory; an address that it does not have is an error.
        unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, self.pid, address, 0) }
    }

    /// `data` is a number, or the address of the structure that the request reads or fills.
    fn ask(&self, request: c_uint, address: u64, data: c_long) {
        Self::ask_thread(self.pid, request, address, data);
    }

    fn ask_thread(thread: pid_t, request: c_uint, address: u64, data: c_long) {
        // SAFETY: the callers pair each request with what it takes.
        let answer = unsafe { libc::ptrace(request, thread, address, data) };
        assert_eq!(answer, 0, "ptrace {request}: {}", io::Error::last_os_error());
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // Already gone is fine.
        if let Ok(None) = self.child.try_wait() {
            self.kill();
        }
        let _ = self.child.wait();
    }
}

fn address_of<T>(place: *mut T) -> c_long {
    c_long::try_from(place.expose_provenance()).unwrap()
}

fn trace_me() -> io::Result<()> {
    // SAFETY: takes no pointers.
    match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
