//! Cost of a full node to the manager: `cargo bench -p vcuda-manager --bench node -- [CONTAINERS] [FOLDER]`. It measures
//! simultaneous registrations with the time until their answers, and looks at all tenants, idle and busy. Figures are
//! processor time and the kernel's count of reads; they depend on the machine.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a program that prints figures, or stops"
)]

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use vcuda_manager::observe::Observatory;
use vcuda_manager::registration::Registrar;
use vcuda_quota::DeviceConfig;
use vcuda_region::directory::{Directory, Tenant};
use vcuda_region::process::Identity;
use vcuda_region::registration::{Hello, SOCKET};
use vcuda_region::{GpuUuid, clock};

const AT_ONCE: usize = 300;
const ROUNDS: usize = 40;
const SPAN: Duration = Duration::from_secs(5);

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let tenants: usize = args.next().map_or(100, |text| text.parse().unwrap());
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let root = tempfile::tempdir_in(folder).unwrap();
    let paths = make(root.path(), tenants);
    let registrar = Registrar::start(root.path(), Box::new(|_| Ok(Vec::new()))).unwrap();
    while !paths.iter().all(|path| path.join(SOCKET).exists()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    registrations(&paths);
    let observatory = Observatory::start(root.path(), Arc::clone(registrar.registry())).unwrap();
    look("idle", tenants, &observatory, || ());
    let files: Vec<_> =
        paths.iter().map(|path| fs::File::options().write(true).open(path.join("usage")).unwrap()).collect();
    let mut turn = 0_u32;
    // Changes a compared word that no figure uses: each tenant is read again.
    look("all changing", tenants, &observatory, || {
        turn += 1;
        files.iter().for_each(|file| file.write_all_at(&turn.to_ne_bytes(), 40).unwrap());
    });
    let status = fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmRSS")).unwrap());
}

fn make(root: &Path, tenants: usize) -> Vec<PathBuf> {
    let _me = Identity::current().unwrap();
    let made = (0..tenants).map(|number| {
        let uuid = GpuUuid::from_bytes([u8::try_from(number % 64).unwrap(); 16]);
        let tenant = Tenant {
            name: format!("c{number}"),
            devices: vec![(uuid, DeviceConfig::new(1 << 30, 300))],
            is_suspendable: false,
            memory_wait_ms: None,
        };
        let directory = Directory::create(root, &tenant, b"", None, clock::now_ns()).unwrap();
        directory.path().to_owned()
    });
    made.collect()
}

fn registrations(paths: &[PathBuf]) {
    let hello = Hello::new(&Identity::current().unwrap(), Some(0)).encode();
    let mut times_us = Vec::new();
    for _ in 0..ROUNDS {
        // Uses epoll, as polling for answers would count as the manager's processor time.
        let answers = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let waiting: Vec<(OwnedFd, u64)> = (0..AT_ONCE)
            .map(|number| {
                let flags = SocketFlags::CLOEXEC;
                let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
                let data = epoll::EventData::new_u64(number as u64);
                epoll::add(&answers, &socket, data, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT)
                    .unwrap();
                let address = SocketAddrUnix::new(paths[number % paths.len()].join(SOCKET)).unwrap();
                let began_ns = clock::now_ns();
                connect(&socket, &address).unwrap();
                send(&socket, &hello, SendFlags::NOSIGNAL).unwrap();
                (socket, began_ns)
            })
            .collect();
        let (mut events, mut left) = (Vec::with_capacity(AT_ONCE), AT_ONCE);
        while left > 0 {
            events.clear();
            epoll::wait(&answers, spare_capacity(&mut events), None).unwrap();
            let now_ns = clock::now_ns();
            for event in &events {
                let (socket, began_ns) = &waiting[usize::try_from(event.data.u64()).unwrap()];
                recv(socket, &mut [0; 16], RecvFlags::empty()).unwrap();
                times_us.push((now_ns - began_ns) / 1000);
                left -= 1;
            }
        }
        // Waits, so that the rate limit of one tenant does not slow the measurement.
        std::thread::sleep(Duration::from_millis(20));
    }
    times_us.sort_unstable();
    let at = |percent: usize| times_us[(times_us.len() - 1) * percent / 100];
    println!(
        "{AT_ONCE} registrations at once, {ROUNDS} times: median {} us, 99th percentile {} us, most {} us",
        at(50),
        at(99),
        at(100)
    );
}

fn look(what: &str, tenants: usize, observatory: &Observatory, mut between: impl FnMut()) {
    let number = || observatory.snapshots().fresh().number;
    let (first, began_ns, cpu, reads) = (number(), clock::now_ns(), cpu_us(), reads());
    while clock::now_ns() - began_ns < u64::try_from(SPAN.as_nanos()).unwrap() {
        let before = number();
        between();
        while number() == before {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let rounds = (number() - first).max(1);
    let per_round = (cpu_us() - cpu) as f64 / rounds as f64;
    println!(
        "{tenants} containers, {what}: {:.2} ms of processor time and {} reads a look, {:.2} us and {:.1} reads a container",
        per_round / 1000.0,
        (self::reads() - reads) / rounds,
        per_round / tenants as f64,
        (self::reads() - reads) as f64 / rounds as f64 / tenants as f64
    );
}

/// Processor time of this process, user and system (us), nearly all of it the manager's.
fn cpu_us() -> u64 {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter_map(|task| {
            let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            stat.split(' ').next()?.parse::<u64>().ok()
        })
        .sum::<u64>()
        / 1000
}

fn reads() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap().parse().unwrap()
}
