//! Questions to the manager, which block: none while a stream capture is open (I5).

use std::time::Duration;

use vcuda_region::registration::{Answer, ProcessMemory, QUESTION_BYTES, Reply, Status, VERSION};
use vcuda_tests::{Door, GIB, Running, app};

use crate::overhead::drivers::other_manager;
use crate::overhead::places::machine;

/// Number of questions that the manager has received since the last count, including answered ones.
fn questions(manager: &mut Running) -> usize {
    let mut heard = Vec::new();
    while manager.prints_within(Duration::ZERO) {
        heard.push(manager.next_line().unwrap());
    }
    let question = format!("heard {QUESTION_BYTES}");
    heard.iter().filter(|line| **line == question).count()
}

#[test]
fn no_process_asks_the_manager_during_a_capture() {
    let fixture = machine("wsl2", "");
    let tenant = fixture.made("a", 4 * GIB);
    // A manager that knows nothing is asked whenever a context is made or ends.
    let answer = Answer { version: VERSION, status: Status::Accepted };
    let memory = ProcessMemory::NotListed;
    let answer = Reply { answer, memory }.encode();
    let answer: String = answer.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut manager = other_manager(&tenant.directory().join("manager.sock"), &answer);
    let mut command = tenant.command(app("asks", Door::Dlsym));
    let mut process = Running::ready(&mut command, "capturing");
    assert!(questions(&mut manager) > 0, "about the first context");
    for (when, is_capturing) in [("beside", true), ("still beside", true), ("after", false)] {
        process.tell("make");
        assert_eq!(process.wait_for("made"), "made 0");
        let is_asked = questions(&mut manager) > 0;
        assert_eq!(is_asked, !is_capturing, "{when} the capture");
    }
    process.wait_for("passed asks");
}
