//! Tests of questions for NVML's figure.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use vcuda_region::registration::{ProcessMemory, Question, REPLY_BYTES, Reply};

use super::*;

const GPU: GpuUuid = GpuUuid::from_bytes([1; 16]);

fn question() -> Vec<u8> {
    let question = Question { hello: hello(), gpu: GPU };
    question.encode().to_vec()
}

fn asks(node: &Node, tenant: &str, message: &[u8]) -> OwnedFd {
    let connection = node.connected(tenant).unwrap();
    send(&connection, message, SendFlags::NOSIGNAL).unwrap();
    connection
}

fn reply(connection: &OwnedFd) -> (Status, ProcessMemory) {
    let mut bytes = [0; REPLY_BYTES + 1];
    let (size, _) = recv(connection, &mut bytes, RecvFlags::empty()).unwrap();
    let reply = Reply::decode(&bytes[..size]).unwrap();
    (reply.answer.status, reply.memory)
}

/// A node whose NVML answers only when a message allows it.
fn gated() -> (Node, Sender<()>, std::sync::Arc<AtomicUsize>) {
    let (open, gate) = channel();
    let looks = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&looks);
    let node = Node::with_processes(Box::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let _ = gate.recv();
        Ok(vec![(std::process::id(), Some(480 << 20))])
    }));
    (node, open, looks)
}

#[test]
fn a_process_is_told_its_own_bytes_and_no_other() {
    let own = std::process::id();
    let listed = move |gpu: &GpuUuid| match *gpu {
        GPU => Ok(vec![(own + 1, Some(1)), (own, Some(480 << 20))]),
        _ => Ok(vec![(own + 1, Some(1))]),
    };
    let node = Node::with_processes(Box::new(listed));
    let _directory = node.tenant("a");
    let told = |message: &[u8]| reply(&asks(&node, "a", message));
    assert_eq!(told(&question()), (Status::Accepted, ProcessMemory::Bytes(480 << 20)));
    let elsewhere = Question { hello: hello(), gpu: GpuUuid::from_bytes([2; 16]) };
    assert_eq!(told(&elsewhere.encode()), (Status::Accepted, ProcessMemory::NotListed));
    // A process that claims to be another gets its own figure, or none.
    let stranger = Question { hello: Hello { pid: own + 1, ..hello() }, gpu: GPU };
    assert_eq!(told(&stranger.encode()), (Status::Stranger, ProcessMemory::Unknown));
    // It asked without registering.
    assert_eq!(node.members("a").living.len(), 0);
    // A truncated question is parsed as a registration.
    let bytes = question();
    assert_eq!(node.says("a", &bytes[..bytes.len() - 1]), accepted());
}

#[test]
fn an_nvml_that_hangs_keeps_no_process_from_registering() {
    let (node, open, looks) = gated();
    let _directories = [node.tenant("a"), node.tenant("b")];
    let first = asks(&node, "a", &question());
    eventually("NVML hangs", || looks.load(Ordering::SeqCst) == 1);
    let waiting: Vec<_> = (0..20).map(|_| asks(&node, "a", &question())).collect();
    assert_eq!(node.says("b", &hello().encode()), accepted());
    open.send(()).unwrap();
    let told = (Status::Accepted, ProcessMemory::Bytes(480 << 20));
    assert_eq!(reply(&first), told);
    drop(open);
    for connection in &waiting {
        // The answer is unknown if this machine is so slow that the questions became stale.
        assert!([told, (Status::Accepted, ProcessMemory::Unknown)].contains(&reply(connection)));
    }
    // Questions that arrived together shared one query.
    assert!(looks.load(Ordering::SeqCst) < waiting.len());
}

#[test]
fn a_tenant_that_asks_too_much_is_told_nothing_and_its_neighbour_all() {
    let (node, open, looks) = gated();
    let _directories = [node.tenant("a"), node.tenant("b")];
    let first = asks(&node, "a", &question());
    eventually("NVML hangs", || looks.load(Ordering::SeqCst) == 1);
    // Beyond the maximum, a process is answered at once and does not wait for NVML.
    let most = super::super::memory::MOST_OF_ONE;
    let flood: Vec<_> = (0..most + 10).map(|_| asks(&node, "a", &question())).collect();
    let unknown = (Status::Accepted, ProcessMemory::Unknown);
    for connection in flood.iter().rev().take(10) {
        assert_eq!(reply(connection), unknown);
    }
    let neighbour = asks(&node, "b", &question());
    drop(open);
    assert_eq!(reply(&first), (Status::Accepted, ProcessMemory::Bytes(480 << 20)));
    assert_eq!(reply(&neighbour), (Status::Accepted, ProcessMemory::Bytes(480 << 20)));
}
