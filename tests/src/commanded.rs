//! A process that allocates and frees on request (`apps/obey.c`).

use std::io::Write;
use std::process::{Command, Stdio};

use crate::Running;

/// A running `obey`.
#[derive(Debug)]
pub struct Commanded(pub Running);

impl Commanded {
    /// Starts the program and waits until it has a context.
    pub fn start(command: &mut Command) -> Self {
        let mut running = Running::start(command.stdin(Stdio::piped()));
        running.wait_for("ready");
        Commanded(running)
    }

    /// Sends a line. Returns the answer; `None` if the program has ended.
    pub fn tell(&mut self, line: &str) -> Option<Vec<u64>> {
        writeln!(self.0.0.stdin.as_mut().unwrap(), "{line}").ok()?;
        let word = line.split(' ').next().unwrap();
        let answer = self.0.next_line().ok()?;
        let mut words = answer.split(' ');
        assert_eq!(words.next(), Some(word), "{answer}");
        Some(words.map(|word| word.parse().unwrap()).collect())
    }

    /// Allocates; returns the status.
    pub fn alloc(&mut self, bytes: u64) -> Option<u64> {
        Some(self.tell(&format!("alloc {bytes}"))?[0])
    }

    /// Frees the last allocation.
    pub fn free(&mut self) {
        assert_eq!(self.tell("free"), Some(vec![0]));
    }

    /// Free and total memory as reported to the process (bytes).
    pub fn info(&mut self) -> (u64, u64) {
        let answer = self.tell("info").unwrap();
        assert_eq!(answer[0], 0);
        (answer[1], answer[2])
    }

    /// Asserts that its whole quota can be allocated and not a byte more, then frees it.
    pub fn fills_to_the_byte(&mut self) {
        let (left, _) = self.info();
        assert_eq!(self.alloc(left + 1), Some(2));
        assert_eq!(self.alloc(left), Some(0));
        assert_eq!(self.alloc(1), Some(2));
        assert_eq!(self.info().0, 0);
        self.free();
        assert_eq!(self.info().0, left);
    }

    /// Asserts that it is alive and answers.
    pub fn lives(&mut self) {
        assert!(self.0.0.try_wait().unwrap().is_none(), "it has ended");
    }
}
