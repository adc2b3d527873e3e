//! The second process, which must get memory whatever happens to the first one.

use std::io::Write;
use std::process::Command;

use vcuda_tests::{Running, eventually};

use super::A_SECOND;

/// The second process.
pub(super) struct Peer(Running);

impl Peer {
    pub(super) fn start(command: &mut Command) -> Self {
        let running = Running::ready(command, "started");
        Peer(running)
    }

    /// The answer to a line, which must come within a second.
    pub(super) fn ask(&mut self, line: &str) -> String {
        writeln!(self.0.0.stdin.as_mut().unwrap(), "{line}").unwrap();
        assert!(self.0.prints_within(A_SECOND), "held up for a second: {line:?}");
        self.0.wait_for("")
    }

    /// Whether this amount can be allocated.
    pub(super) fn can_have(&mut self, bytes: u64) -> bool {
        match self.ask(&bytes.to_string()).as_str() {
            "0" => true,
            "2" => false,
            code => panic!("status {code}"),
        }
    }

    pub(super) fn free_bytes(&mut self) -> u64 {
        self.ask("free").parse().unwrap()
    }

    /// Allocates memory that another process may open. Returns its handle.
    pub(super) fn export(&mut self, bytes: u64) -> String {
        self.ask(&format!("export {bytes}"))
    }

    pub(super) fn drop_export(&mut self) {
        self.does("drop");
    }

    /// Sends a line that must succeed.
    pub(super) fn does(&mut self, line: &str) {
        assert_eq!(self.ask(line), "0", "{line}");
    }

    /// Checks that the free memory can be allocated, and not a byte more. A process that asks for more than there is checks
    /// for memory that no process holds, which is then free too.
    pub(super) fn free_to_the_byte(&mut self, at: impl Fn() -> String) -> u64 {
        let mut free = self.free_bytes();
        loop {
            assert!(self.can_have(free), "{free} are free and cannot be had: {}", at());
            if !self.can_have(free + 1) {
                return free;
            }
            let before = std::mem::replace(&mut free, self.free_bytes());
            assert!(free > before, "{free} are free and more was given: {}", at());
        }
    }

    /// Checks that within a second it can allocate all of this, and not a byte more.
    pub(super) fn has_everything(&mut self, bytes: u64, at: impl Fn() -> String) {
        eventually("what the dead had can be had", A_SECOND, || self.can_have(bytes));
        assert_eq!(self.free_to_the_byte(&at), bytes, "{}", at());
    }
}
