//! Single-stepping of a program (ptrace(2)), so that it can be stopped or killed at each instruction.
//!
//! Only one library and the program itself are stepped. Calls into other code (the driver, libc) run at full speed up to a
//! breakpoint at their return.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use libc::{c_int, c_long, c_uint, c_ulong, pid_t, user_regs_struct};

use crate::running::next_line;

/// The instruction `int3`: a mark in the program, and our breakpoint elsewhere.
const BREAKPOINT: u8 = 0xcc;

/// Name of the shim's thread that starts NVML. The call that makes the first context waits for it.
const NVML_THREAD: &str = "vcuda-nvml";

/// A stopped child with its threads, the first one between two instructions. Only the thread that started it may continue
/// it.
#[derive(Debug)]
pub struct Traced {
    child: Child,
    pid: pid_t,
    /// Its other threads, stopped since they set their name.
    threads: RefCell<Vec<pid_t>>,
    library: Range<u64>,
    program: Range<u64>,
}

/// End of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Before the instruction at this offset in the library's code.
    In(u64),
    /// After a mark of the program.
    Mark,
}

/// Whether a process may trace its children here.
pub fn is_permitted() -> bool {
    let mut probe = Command::new("true");
    // SAFETY: between fork and exec only ptrace is called, which is a bare system call.
    unsafe { probe.pre_exec(trace_me) };
    probe.spawn().is_ok_and(|mut child| {
        // It is stopped at its beginning.
        let _ = child.kill();
        let _ = child.wait();
        true
    })
}

impl Traced {
    /// Starts the command, whose stdin and stdout are pipes.
    pub fn start(command: &mut Command) -> Self {
        // Calls are bound at once, as the loader's resolver does not return by a return instruction.
        command.env("LD_BIND_NOW", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
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
        // If the test fails, the process is killed.
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE;
        traced.ask(libc::PTRACE_SETOPTIONS, 0, c_long::from(options));
        traced
    }

    /// Runs to its first mark. The library to step (a part of its path) is loaded by then.
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

    /// Its next output line.
    pub fn next_line(&mut self) -> String {
        next_line(self.child.stdout.as_mut().unwrap()).unwrap()
    }

    /// Lets it run to its next mark.
    pub fn run_to_mark(&self) {
        while self.resume() != libc::SIGTRAP {}
    }

    /// Steps to the next instruction of the library, or to the next mark.
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
            // After a call, or a jump from called code: the return address is on top of the stack.
            let back = self.read(registers.rsp).cast_unsigned();
            assert!(self.library.contains(&back) || self.program.contains(&back), "{at:#x} was not called");
            assert!(self.run_to(back, Some(registers.rsp + 8)), "a mark within a call");
            if self.library.contains(&back) {
                return Stop::In(back - self.library.start);
            }
        }
    }

    /// Offsets of all instructions of the library up to the next mark.
    pub fn path_to_mark(&self) -> Vec<u64> {
        let mut path = Vec::new();
        while let Stop::In(offset) = self.step() {
            path.push(offset);
        }
        path
    }

    /// Runs to a position of an earlier path for the same action. `false` if it reached a mark instead, by another path.
    ///
    /// Under some hypervisors a step costs as much as a thousand system calls. It therefore runs to the last instruction
    /// before the position that is new on the path, and single-steps only from there.
    pub fn run_along(&self, path: &[u64], place: usize) -> bool {
        let mut newest = HashMap::new();
        for (nth, offset) in path[..=place].iter().enumerate() {
            newest.entry(offset).or_insert(nth);
        }
        let from = newest.into_values().max().unwrap();
        self.run_to(self.library.start + path[from], None) && (from..place).all(|_| self.step() != Stop::Mark)
    }

    /// Kills it at its present instruction. It is a zombie until drop.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        // Its first thread becomes a zombie only after the others, which must be waited for separately.
        for thread in self.threads.take() {
            // SAFETY: writes nothing.
            unsafe { libc::waitpid(thread, core::ptr::null_mut(), libc::__WALL) };
        }
        // It is dead from here on, but not yet waited for.
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

    /// Runs to an address, with the given height of the stack if any (a deeper one is another call). `false` at a mark.
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

    /// Addresses of the code of a mapped file.
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

    /// Whether it stopped at an `int3`, not after a step.
    fn is_at_mark(&self) -> bool {
        // SAFETY: integers only, for which zeros are a value.
        let mut cause: libc::siginfo_t = unsafe { core::mem::zeroed() };
        self.ask(libc::PTRACE_GETSIGINFO, 0, address_of(&raw mut cause));
        cause.si_code != libc::TRAP_TRACE
    }

    /// Continues it to the next signal, and returns that.
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
            // Before the first mark there are no breakpoints that a thread could hit.
            if self.library.is_empty() && self.name_of(thread) == NVML_THREAD {
                Self::run_to_end(thread);
            } else {
                self.threads.borrow_mut().push(thread);
            }
        }
    }

    /// Name that a new thread gives itself; empty if it does not soon. The thread is then stopped.
    fn name_of(&self, thread: pid_t) -> String {
        let name = || std::fs::read_to_string(format!("/proc/{}/task/{thread}/comm", self.pid)).unwrap();
        let inherited = name();
        // Entry and exit of the few calls that the C library makes first.
        for _ in 0..40 {
            if name() != inherited {
                return name().trim_end().to_owned();
            }
            Self::ask_thread(thread, libc::PTRACE_SYSCALL, 0, 0);
            Self::wait_for(thread);
        }
        String::new()
    }

    /// Runs another thread to its end while the first one is stopped.
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

    /// The stop signal.
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

    /// Makes a request; `data` is a number, or the address of the structure that it reads or fills.
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
        // It may be gone already.
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
