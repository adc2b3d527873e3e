//! A started program: its output lines, with a time limit, and its end.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

/// A child process, killed on drop.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    /// Starts the command with its stdout piped.
    pub fn start(command: &mut Command) -> Self {
        Running(command.stdout(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")))
    }

    /// Starts the command with its stdin piped as well, and waits for a line with this beginning.
    pub fn ready(command: &mut Command, beginning: &str) -> Self {
        let mut running = Self::start(command.stdin(Stdio::piped()));
        running.wait_for(beginning);
        running
    }

    /// Writes a line to its stdin.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Closes its stdin, waits for a line with this beginning, and checks that it succeeds.
    pub fn ends(mut self, beginning: &str) {
        drop(self.0.stdin.take());
        self.wait_for(beginning);
        assert!(self.finish().success());
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.finish();
    }

    /// Waits for a line with this beginning, and returns it. Fails the test after minutes.
    pub fn wait_for(&mut self, beginning: &str) -> String {
        self.wait_for_line(&format!("a line that begins with {beginning:?}"), |line| {
            line.starts_with(beginning)
        })
    }

    /// Waits for a line that satisfies `holds`, and returns it. Fails the test after minutes, naming `what`.
    pub fn wait_for_line(&mut self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let end = SystemTime::now() + timeout();
        let mut last = String::new();
        loop {
            let awaited = format!("{what} (the last one before: {last:?})");
            match read_line(self.0.stdout.as_mut().unwrap(), &awaited, end) {
                Ok(line) if holds(&line) => return line,
                Ok(line) => last = line,
                Err(rest) => panic!("the program ended before it printed {awaited}: {rest:?}"),
            }
        }
    }

    /// The next output line. Fails the test after minutes without one.
    ///
    /// # Errors
    /// Fails with the rest of the output if the program has ended or closed its output.
    pub fn next_line(&mut self) -> Result<String, String> {
        next_line(self.0.stdout.as_mut().unwrap())
    }

    /// Whether it prints something, or ends, within `time`.
    pub fn prints_within(&self, time: Duration) -> bool {
        is_readable(self.0.stdout.as_ref().unwrap(), time)
    }

    /// Whether it has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Sends a signal. After SIGSTOP all threads stand: on a busy machine some go on until the one that gets it has run.
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.0.id()).unwrap();
        // SAFETY: kill takes no pointers; the child has not been waited for, so its PID is not reused.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        if signal == libc::SIGSTOP {
            // SAFETY: numbers only, of which zero is one.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let what = libc::WSTOPPED | libc::WNOWAIT;
            // SAFETY: `info` is valid for writing, and the child's state is left for others to wait for.
            assert_eq!(unsafe { libc::waitid(libc::P_PID, self.0.id(), &raw mut info, what) }, 0);
        }
    }

    /// Waits for the end and returns the exit status.
    pub fn finish(&mut self) -> std::process::ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Time limit for a line: far longer than on a busy machine, except for soak tests, where a program works as long as
/// requested.
fn timeout() -> Duration {
    let is_soak = std::env::var_os("VCUDA_SOAK").is_some();
    Duration::from_secs(if is_soak { 4 * 3600 } else { 180 })
}

/// Reads one line and nothing behind it; at the end of output, the rest. Fails the test at `end`, naming what was awaited.
fn read_line(from: &mut ChildStdout, awaited: &str, end: SystemTime) -> Result<String, String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        let left = end.duration_since(SystemTime::now()).unwrap_or_default();
        assert!(
            is_readable(from, left),
            "not in time: {awaited}, after {:?}",
            String::from_utf8_lossy(&line)
        );
        let read = from.read(&mut byte).unwrap();
        if read == 0 || byte == *b"\n" {
            let text = String::from_utf8_lossy(&line).into_owned();
            return if read == 0 { Err(text) } else { Ok(text) };
        }
        line.extend_from_slice(&byte);
    }
}

/// Whether there is output, or its end, within a time.
fn is_readable(from: &ChildStdout, within: Duration) -> bool {
    let mut stdout = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let time_ms = i32::try_from(within.as_millis()).unwrap();
    // SAFETY: one structure, which the kernel fills.
    let ready = unsafe { libc::poll(&raw mut stdout, 1, time_ms) };
    ready == 1
}

/// As [`Running::next_line`], for a program that is not a [`Running`].
pub(crate) fn next_line(from: &mut ChildStdout) -> Result<String, String> {
    read_line(from, "its next line", SystemTime::now() + timeout())
}
