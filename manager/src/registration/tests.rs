use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, shutdown, socket_with,
};
use tempfile::TempDir;
use vcuda_quota::DeviceConfig;
use vcuda_region::GpuUuid;
use vcuda_region::clock;
use vcuda_region::directory::{Directory, Tenant};
use vcuda_region::process::Identity;
use vcuda_region::registration::{ANSWER_BYTES, Answer, HELLO_BYTES, Hello, SOCKET, Status, VERSION};

use super::*;

mod memory;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = SystemTime::now() + Duration::from_secs(20);
    while !holds() {
        assert!(SystemTime::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

struct Node {
    root: TempDir,
    registrar: Registrar,
}

impl Node {
    fn new() -> Self {
        Self::with_processes(Box::new(|_| Ok(Vec::new())))
    }

    /// A node on which NVML lists these processes.
    fn with_processes(processes: Box<Processes>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let registrar = Registrar::start(root.path(), processes).unwrap();
        Self { root, registrar }
    }

    fn socket(&self, tenant: &str) -> PathBuf {
        self.root.path().join("containers").join(tenant).join(SOCKET)
    }

    /// Makes a tenant and waits for its socket.
    fn tenant(&self, name: &str) -> Directory {
        let tenant =
            Tenant::new(name, vec![(GpuUuid::from_bytes([1; 16]), DeviceConfig::new(1 << 30, 1000))]);
        let _me = Identity::current().unwrap();
        let directory = Directory::create(self.root.path(), &tenant, b"", None, clock::now_ns()).unwrap();
        eventually("the socket is there", || self.socket(name).exists());
        directory
    }

    fn connected(&self, tenant: &str) -> Option<OwnedFd> {
        connected(&self.socket(tenant)).ok()
    }

    /// Sends a message and returns the answer; `None` if the connection closes without one.
    fn says(&self, tenant: &str, message: &[u8]) -> Option<Answer> {
        let connection = self.connected(tenant)?;
        send(&connection, message, SendFlags::NOSIGNAL).ok()?;
        answer(&connection)
    }

    fn members(&self, tenant: &str) -> Members {
        self.registrar.registry().members_since(tenant, 0).unwrap_or_default()
    }

    fn counts(&self) -> Counts {
        self.registrar.registry().counts()
    }
}

fn connected(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn answer(connection: &OwnedFd) -> Option<Answer> {
    let mut bytes = [0; ANSWER_BYTES];
    let (size, _) = recv(connection, &mut bytes, RecvFlags::empty()).ok()?;
    Answer::decode(bytes.get(..size)?).ok()
}

fn hello() -> Hello {
    Hello::new(&Identity::current().unwrap(), Some(3))
}

fn accepted() -> Option<Answer> {
    Some(Answer { version: VERSION, status: Status::Accepted })
}

/// Child process of another test.
#[test]
#[ignore = "a child of other tests"]
fn child_that_registers() {
    let Some(path) = std::env::var_os("VCUDA_TEST_SOCKET") else {
        return;
    };
    let connection = connected(Path::new(&path)).unwrap();
    send(&connection, &hello().encode(), SendFlags::NOSIGNAL).unwrap();
    assert_eq!(answer(&connection), accepted());
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
fn a_process_is_known_from_its_registration_to_its_death() {
    let node = Node::new();
    let _directory = node.tenant("a");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "registration::tests::child_that_registers"])
        .env("VCUDA_TEST_SOCKET", node.socket("a"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it is known", || node.members("a").living.len() == 1);
    let known = node.members("a").living.remove(0);
    assert_eq!((known.host_pid, known.identity.pid, known.slot), (child.id(), child.id(), Some(3)));
    child.kill().unwrap();
    // It has not been reaped yet: a zombie counts as dead.
    eventually("its death is known", || node.members("a").living.is_empty());
    assert_eq!(node.members("a").ended, [Key::of(&known.identity)]);
    child.wait().unwrap();
}

#[test]
fn each_of_two_releases_registers_with_the_other() {
    let node = Node::new();
    let _directory = node.tenant("a");
    let offer = |oldest, newest| {
        let hello = Hello { versions: (oldest, newest), ..hello() };
        node.says("a", &hello.encode()).unwrap().status
    };
    assert_eq!(offer(VERSION - 1, VERSION), Status::Accepted);
    assert_eq!(offer(VERSION, VERSION), Status::Accepted);
    assert_eq!(offer(VERSION, VERSION + 1), Status::Accepted);
    assert_eq!(offer(VERSION - 1, VERSION - 1), Status::Version);
    assert_eq!(offer(VERSION + 1, VERSION + 2), Status::Version);
    // A later release appends to the message.
    let mut longer = hello().encode().to_vec();
    longer.extend([7; 64]);
    assert_eq!(node.says("a", &longer), accepted());
    assert_eq!(node.members("a").living.len(), 1, "the same process");
}

#[test]
fn strange_peers_are_refused_and_no_other_notices() {
    let node = Node::new();
    let _directory = node.tenant("a");
    let silent: Vec<_> = (0..MOST_SILENT + 20).filter_map(|_| node.connected("a")).collect();
    let half_closed = node.connected("a").unwrap();
    shutdown(&half_closed, Shutdown::Write).unwrap();
    assert_eq!(answer(&half_closed), None);
    drop(node.connected("a").unwrap());
    let malformed = Some(Status::Malformed);
    let status = |message: &[u8]| node.says("a", message).map(|answer| answer.status);
    assert_eq!(status(&[0; HELLO_BYTES]), malformed);
    assert_eq!(status(&hello().encode()[..HELLO_BYTES - 1]), malformed);
    assert_eq!(status(&[1; 100_000]), malformed);
    let stranger = Hello { start_ticks: 1, ..hello() };
    assert_eq!(status(&stranger.encode()), Some(Status::Stranger));
    assert_eq!(node.says("a", &hello().encode()), accepted());
    // The oldest silent peers were disconnected to make room; the rest are when their time is over.
    let mut byte = [0; 1];
    for connection in &silent {
        assert_eq!(recv(connection, &mut byte, RecvFlags::empty()).map(|(size, _)| size), Ok(0));
    }
    eventually("all are counted", || node.counts().silent >= silent.len() as u64);
    assert_eq!((node.counts().malformed, node.counts().stranger, node.counts().accepted), (3, 1, 1));
}

#[test]
fn a_tenant_that_floods_waits_and_its_neighbour_does_not() {
    let node = Node::new();
    let _directories = [node.tenant("a"), node.tenant("b")];
    let path = node.socket("a");
    let flood = std::thread::Builder::new()
        .spawn(move || (0..4000).filter_map(|_| connected(&path).ok()).count())
        .unwrap();
    eventually("the flood is seen", || node.counts().floods > 0);
    assert_eq!(node.says("b", &hello().encode()), accepted());
    assert!(node.members("a").refused > 0);
    assert_eq!(node.members("b").refused, 0);
    // Processes of the tenant can register again after the pause.
    assert!(flood.join().unwrap() > 1000);
    assert_eq!(node.says("a", &hello().encode()), accepted());
}

#[test]
fn sockets_follow_their_directories() {
    let node = Node::new();
    let directory = node.tenant("a");
    let first = rustix::fs::lstat(node.socket("a")).unwrap();
    assert_eq!(node.says("a", &hello().encode()), accepted());
    std::fs::remove_file(node.socket("a")).unwrap();
    eventually("it is made again", || node.socket("a").exists());
    assert_eq!(node.says("a", &hello().encode()), accepted());
    let second = rustix::fs::lstat(node.socket("a")).unwrap();
    // Shims recognise a new socket by these two.
    assert_ne!((second.st_ino, second.st_ctime_nsec), (first.st_ino, first.st_ctime_nsec));
    // A foreign file in its place is left alone.
    std::fs::remove_file(node.socket("a")).unwrap();
    std::fs::create_dir(node.socket("a")).unwrap();
    let _other = node.tenant("b");
    eventually("it is counted", || node.counts().broken > 0);
    assert_eq!(node.says("b", &hello().encode()), accepted());
    std::fs::remove_dir_all(directory.path()).unwrap();
    eventually("it is forgotten", || node.registrar.registry().members_since("a", 0).is_none());
}

#[test]
fn after_a_restart_the_sockets_are_new() {
    let mut node = Node::new();
    let _directory = node.tenant("a");
    let inode = |node: &Node| {
        let found = rustix::fs::lstat(node.socket("a")).unwrap();
        (found.st_ino, found.st_ctime_nsec)
    };
    assert_eq!(node.says("a", &hello().encode()), accepted());
    let before = node.connected("a").unwrap();
    let first = inode(&node);
    node.registrar = Registrar::start(node.root.path(), Box::new(|_| Ok(Vec::new()))).unwrap();
    assert_eq!(answer(&before), None, "the old one closes what it has open");
    eventually("there is another socket", || inode(&node) != first);
    assert_eq!(node.says("a", &hello().encode()), accepted());
    assert_eq!(node.members("a").living.len(), 1);
}
