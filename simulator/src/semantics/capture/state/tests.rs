//! Tests, one for each rule of capture.

use super::*;

const CONTEXT: usize = 1;
const THREAD: u64 = 10;
const OTHER_THREAD: u64 = 11;
const PLAIN: EdgeData = [0; 8];

fn blocking(key: StreamKey) -> Member {
    Member { key, context: CONTEXT, blocking: true }
}

fn non_blocking(key: StreamKey) -> Member {
    Member { key, context: CONTEXT, blocking: false }
}

/// A capture in stream 1 of the thread `THREAD`.
fn capturing(mode: Mode) -> Captures {
    let mut captures = Captures::default();
    captures.begin(non_blocking(1), THREAD, mode, (100, true), Vec::new()).expect("not capturing before");
    captures
}

fn append(captures: &mut Captures, stream: StreamKey, node: NodeKey) {
    captures.set_tail(stream, vec![(node, PLAIN)]);
}

/// Reachability in a chain of nodes from 1 on, where each depends on all smaller ones.
fn chain(tail: &[(NodeKey, EdgeData)], node: NodeKey) -> bool {
    tail.iter().any(|(last, _)| node <= *last)
}

fn end(captures: &mut Captures) -> Result<(), CUerror> {
    captures.end(1, THREAD, chain).expect("ends").result
}

#[test]
fn a_capture_begins_once_and_ends_with_its_graph() {
    let mut captures = capturing(Mode::Global);
    assert_eq!(captures.status(1), Status::Active(1));
    let again = captures.begin(non_blocking(1), THREAD, Mode::Global, (101, true), Vec::new());
    assert_eq!(again, Err(CUerror::ILLEGAL_STATE));
    let ended = captures.end(1, THREAD, chain).expect("ends");
    assert_eq!(ended, Ended { graph: 100, owns_graph: true, result: Ok(()) });
    assert_eq!(captures.status(1), Status::None);
    assert_eq!(captures.end(1, THREAD, chain), Err(CUerror::ILLEGAL_STATE));
    assert_eq!(captures.len(), 0);
}

#[test]
fn the_end_belongs_to_the_origin_and_to_its_thread() {
    let mut captures = capturing(Mode::ThreadLocal);
    assert_eq!(captures.end(1, OTHER_THREAD, chain), Err(CUerror::STREAM_CAPTURE_WRONG_THREAD));
    assert_eq!(captures.status(1), Status::Active(1));
    let event = captures.record(1).expect("valid").expect("captured");
    assert_eq!(captures.wait(non_blocking(2), Some(&event)), Ok(true));
    assert_eq!(captures.end(2, THREAD, chain), Err(CUerror::STREAM_CAPTURE_UNMATCHED));
    assert_eq!(end(&mut captures), Err(CUerror::STREAM_CAPTURE_INVALIDATED));

    let mut relaxed = capturing(Mode::Relaxed);
    assert_eq!(relaxed.end(1, OTHER_THREAD, chain).map(|ended| ended.result), Ok(Ok(())));
}

#[test]
fn a_fork_must_be_joined() {
    for joined in [false, true] {
        let mut captures = capturing(Mode::Global);
        append(&mut captures, 1, 1);
        let fork = captures.record(1).expect("valid").expect("captured");
        assert_eq!(captures.wait(non_blocking(2), Some(&fork)), Ok(true));
        assert_eq!(captures.tail(2), Some(vec![(1, PLAIN)]));
        append(&mut captures, 2, 2);
        let join = captures.record(2).expect("valid").expect("captured");
        if joined {
            assert_eq!(captures.wait(non_blocking(1), Some(&join)), Ok(true));
            assert_eq!(end(&mut captures), Ok(()));
        } else {
            assert_eq!(end(&mut captures), Err(CUerror::STREAM_CAPTURE_UNJOINED));
        }
        assert_eq!(captures.status(2), Status::None);
    }
}

#[test]
fn waits_do_not_cross_a_capture() {
    let mut captures = capturing(Mode::Global);
    assert_eq!(captures.wait(non_blocking(1), None), Err(CUerror::STREAM_CAPTURE_ISOLATION));
    assert_eq!(captures.status(1), Status::Invalidated);
    assert_eq!(captures.wait(non_blocking(9), None), Ok(false));

    let mut two = capturing(Mode::Global);
    two.begin(non_blocking(5), THREAD, Mode::Global, (105, true), Vec::new()).expect("another");
    let event = two.record(5).expect("valid").expect("captured");
    assert_eq!(two.wait(non_blocking(1), Some(&event)), Err(CUerror::STREAM_CAPTURE_MERGE));
    assert_eq!((two.status(1), two.status(5)), (Status::Invalidated, Status::Invalidated));
}

#[test]
fn the_legacy_stream_is_unusable_beside_a_blocking_capture() {
    let mut captures = capturing(Mode::Relaxed);
    assert_eq!(captures.use_legacy(CONTEXT), Ok(()));
    captures.begin(blocking(2), THREAD, Mode::Relaxed, (102, true), Vec::new()).expect("another");
    assert!(captures.blocks_legacy(CONTEXT));
    assert!(!captures.blocks_legacy(CONTEXT + 1));
    assert_eq!(captures.status(2), Status::Active(2));
    assert_eq!(captures.use_legacy(CONTEXT), Err(CUerror::STREAM_CAPTURE_IMPLICIT));
    assert_eq!((captures.status(1), captures.status(2)), (Status::Active(1), Status::Invalidated));
    assert_eq!(captures.use_context(CONTEXT), Err(CUerror::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(captures.status(1), Status::Invalidated);
}

#[test]
fn unsafe_calls_conflict_by_mode_and_thread() {
    use Mode::{Global, Relaxed, ThreadLocal};
    // Capture's mode, caller is the capturing thread, caller's mode, prohibited.
    for (mode, same, caller, prohibited) in [
        (Global, true, Global, true),
        (Global, true, ThreadLocal, true),
        (Global, true, Relaxed, false),
        (Global, false, Global, true),
        (Global, false, ThreadLocal, false),
        (Global, false, Relaxed, false),
        (ThreadLocal, true, Global, true),
        (ThreadLocal, true, ThreadLocal, true),
        (ThreadLocal, false, Global, false),
        (Relaxed, true, Global, false),
        (Relaxed, false, Global, false),
    ] {
        let mut captures = capturing(mode);
        let thread = if same { THREAD } else { OTHER_THREAD };
        let answer = captures.reject_unsafe_call(thread, caller);
        let expected = if prohibited { Err(CUerror::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) };
        assert_eq!(answer, expected, "{mode:?} same={same} {caller:?}");
        let expected = if prohibited { Status::Invalidated } else { Status::Active(1) };
        assert_eq!(captures.status(1), expected);
    }
}

#[test]
fn a_refused_operation_invalidates() {
    let mut captures = capturing(Mode::Relaxed);
    assert_eq!(captures.reject_if_capturing(7), Ok(()));
    assert_eq!(captures.reject_if_capturing(1), Err(CUerror::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(captures.reject_if_capturing(1), Err(CUerror::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(captures.record(1), Err(CUerror::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(end(&mut captures), Err(CUerror::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(captures.reject_if_capturing(1), Ok(()));
}

#[test]
fn a_captured_event_is_neither_queried_nor_used_after_the_end() {
    let mut captures = capturing(Mode::Relaxed);
    let event = captures.record(1).expect("valid").expect("captured");
    assert_eq!(end(&mut captures), Ok(()));
    assert_eq!(captures.use_captured_event(&event), Err(CUerror::CAPTURED_EVENT));
    assert_eq!(captures.wait(non_blocking(3), Some(&event)), Err(CUerror::CAPTURED_EVENT));
    let mut open = capturing(Mode::Relaxed);
    let event = open.record(1).expect("valid").expect("captured");
    assert_eq!(open.use_captured_event(&event), Err(CUerror::CAPTURED_EVENT));
    assert_eq!(open.status(1), Status::Invalidated);
}

#[test]
fn destroying_a_stream_never_leaves_a_dangling_capture() {
    for is_joined in [false, true] {
        let mut captures = capturing(Mode::Relaxed);
        let fork = captures.record(1).expect("valid").expect("captured");
        assert_eq!(captures.wait(non_blocking(2), Some(&fork)), Ok(true));
        append(&mut captures, 2, 1);
        let join = captures.record(2).expect("valid").expect("captured");
        if is_joined {
            assert_eq!(captures.wait(non_blocking(1), Some(&join)), Ok(true));
        }
        assert_eq!(captures.forget(2), None);
        let expected = if is_joined { Ok(()) } else { Err(CUerror::STREAM_CAPTURE_UNJOINED) };
        assert_eq!(end(&mut captures), expected);
    }
    let mut captures = capturing(Mode::Relaxed);
    assert_eq!(captures.forget(1), Some(100));
    assert_eq!(captures.len(), 0);
}
