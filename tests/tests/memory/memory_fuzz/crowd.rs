//! Processes of one tenant that do all operations on device memory and on processes, at random.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use vcuda_tests::{Door, Fixture, Running, Tenant, app, eventually};

/// Maximum number of processes, and threads of each (`tests/apps/fuzz/base.h`).
const PLACES: u64 = 16;
const THREADS: u32 = 4;
/// Family of signal handlers (`tests/apps/fuzz/base.h`), and the share of the GPU's time (percent) for which launches wait then.
pub(crate) const SIGNALS: u32 = 4096;
const CORES: &str = "50";
/// Memory of a process after all frees: its context (bytes).
const CONTEXT: u64 = 8 << 20;
/// Time for which a new process waits for its context's memory.
const ROOM: Duration = Duration::from_secs(5);
/// Time within which children end that live for 20 ms, on a machine that is saturated by fuzzers.
const CHILDREN: Duration = Duration::from_secs(60);
/// Time within which nothing of a dead process is taken or counted (README.md, I8).
const PROMISED: Duration = Duration::from_secs(1);
/// Configuration of the machine for [`CONTEXT`].
pub(crate) const MACHINE: &str =
    "context_bytes = \"8MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"16GiB\"\n";

/// Command to the processes in the shared page.
#[derive(Debug, Clone, Copy)]
enum Command {
    Run = 0,
    Park = 1,
    End = 2,
    Ask = 3,
}

/// A process. Without CUDA it only keeps descriptors and passes them on.
struct Member {
    running: Running,
    place: u64,
    has_cuda: bool,
    has_started: bool,
}

/// Used memory at rest (bytes): by `vcuda smi`, and by the simulator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) told: u64,
    pub(crate) taken: u64,
}

/// All processes of a tenant.
pub(crate) struct Crowd<'b> {
    fixture: &'b Fixture,
    tenant: Tenant<'b>,
    page: File,
    folder: PathBuf,
    families: u32,
    seed: u64,
    random: fastrand::Rng,
    members: Vec<Member>,
}

impl<'b> Crowd<'b> {
    /// A tenant with this quota (bytes) without processes. The seed determines the choices; the kernel determines how
    /// threads and processes interleave.
    pub(crate) fn new(fixture: &'b Fixture, quota_bytes: u64, families: u32, seed: u64) -> Self {
        let memory = format!("{quota_bytes}B");
        let quota = ["--memory", &memory, "--cores", CORES];
        let tenant = fixture.keep("fuzz", if families & SIGNALS == 0 { &quota[..2] } else { &quota });
        let folder = fixture.home().join("sockets");
        std::fs::create_dir(&folder).unwrap();
        let page = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(fixture.home().join("page"))
            .unwrap();
        page.set_len(4096).unwrap();
        Crowd {
            fixture,
            tenant,
            page,
            folder,
            families,
            seed,
            random: fastrand::Rng::with_seed(seed),
            members: Vec::new(),
        }
    }

    /// Adds a process in a free place.
    pub(crate) fn add(&mut self, has_cuda: bool) {
        let is_taken = |place: &u64| self.members.iter().any(|member| member.place == *place);
        let Some(place) = (0..PLACES).find(|place| !is_taken(place)) else {
            return;
        };
        self.page.write_all_at(&[0; 8], Self::offset(place)).unwrap();
        let mut command = self.tenant.command(app("fuzz_memory", Door::Dlsym));
        command
            .arg(self.random.u32(1..u32::MAX).to_string())
            .arg(if has_cuda { self.families } else { 0 }.to_string())
            .arg(self.fixture.home().join("page"))
            .arg(&self.folder)
            .arg(place.to_string());
        self.members.push(Member {
            running: Running::start(&mut command),
            place,
            has_cuda,
            has_started: false,
        });
    }

    /// Number of processes.
    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }

    /// Kills a random process. Another one takes its place later.
    pub(crate) fn kill_one(&mut self) {
        if self.members.is_empty() {
            return self.add(true);
        }
        let at = self.random.usize(..self.members.len());
        let mut dead = self.members.swap_remove(at);
        dead.running.kill();
        self.add(dead.has_cuda);
    }

    /// Stops a random process for a while.
    pub(crate) fn stop_one(&mut self, time: Duration) {
        if self.members.is_empty() {
            return self.add(true);
        }
        let at = self.random.usize(..self.members.len());
        self.members[at].running.signal(libc::SIGSTOP);
        std::thread::sleep(time);
        self.members[at].running.signal(libc::SIGCONT);
    }

    /// Pauses all threads between two operations, calls `then` with the figures, and continues.
    pub(crate) fn at_rest<T>(&mut self, then: impl FnOnce(&Self, Figures) -> T) -> T {
        self.all_have_started();
        self.tell(Command::Park);
        self.wait_until("parked", |crowd, place| crowd.word(place, 0) >= THREADS);
        let figures = self.figures();
        let Figures { told, taken } = figures;
        assert!(
            told >= taken,
            "{}: vcuda says {told} bytes, the GPU {taken}: {} are not counted",
            self.name(),
            taken - told
        );
        let answer = then(self, figures);
        self.tell(Command::Run);
        answer
    }

    /// Lets all processes free their memory. Then only contexts count, and nothing else is taken.
    pub(crate) fn end(&mut self) {
        self.all_have_started();
        self.tell(Command::End);
        self.wait_until("at their end", |crowd, place| crowd.word(place, 4) == 1);
        // Memory released by descriptors is noticed when a process asks.
        self.tell(Command::Ask);
        self.wait_until("answered", |crowd, place| crowd.word(place, 4) == 2);
        let contexts = self.members.iter().filter(|member| member.has_cuda).count() as u64;
        self.comes_to(contexts * CONTEXT, "contexts and no more");
        for member in &mut self.members {
            member.running.kill();
        }
        self.members.clear();
        self.comes_to(0, "nothing is left of the dead");
    }

    /// Checks that `vcuda smi` and the simulator show this number of bytes within [`PROMISED`] of the end of all children. A query that
    /// begins in time counts, as it may take long on a busy machine.
    #[expect(clippy::disallowed_methods, reason = "a limit of time, by the wall clock")]
    fn comes_to(&self, bytes: u64, what: &str) {
        eventually("children have ended", CHILDREN, || !self.has_children());
        let start = Instant::now();
        loop {
            let asked = start.elapsed();
            let figures = self.figures();
            if [figures.told, figures.taken] == [bytes; 2] {
                println!("{}: {what} ({bytes} bytes), asked after {asked:?}", self.name());
                return;
            }
            assert!(asked < PROMISED, "{}: {what} ({bytes} bytes) after {asked:?}: {figures:?}", self.name());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether a child lives that a process forked: it keeps what its parent had open, and dies by itself once it runs.
    fn has_children(&self) -> bool {
        let mark = format!("VCUDA_DIR={}", self.tenant.directory().display());
        let members = self.members.iter().map(|member| member.running.0.id());
        let known: Vec<u32> = members.chain([self.tenant.keeper()]).collect();
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let environment = || std::fs::read(entry.path().join("environ")).unwrap_or_default();
            pid.is_some_and(|pid| !known.contains(&pid))
                && environment().split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        })
    }

    /// Streams continue and free memory: the simulator shows at most what it had at the query of `vcuda smi`.
    fn figures(&self) -> Figures {
        let told = self.tenant.used_bytes();
        let taken = self.fixture.used_bytes();
        Figures { told, taken }
    }

    /// Changes the quota, live.
    pub(crate) fn set_quota(&self, bytes: u64) {
        self.fixture.stdout(["set", "fuzz", "--memory", &format!("{bytes}B")]);
    }

    /// Maximum memory of the GPU ever in use (bytes).
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.fixture.peak_bytes(0)
    }

    /// Memory of the GPU in use (bytes).
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.fixture.used_bytes()
    }

    /// Numbers of operations, and of requests refused for lack of memory, over all processes.
    pub(crate) fn done_and_refused(&self) -> (u64, u64) {
        let sum = |offset| (0..PLACES).map(|place| self.long(place, offset)).sum();
        (sum(8), sum(16))
    }

    /// Number of signal handlers that have called the driver, over all processes.
    pub(crate) fn signals(&self) -> u32 {
        let mut word = [0; 4];
        self.page.read_exact_at(&mut word, 4).unwrap();
        u32::from_ne_bytes(word)
    }

    /// Text that reproduces this run.
    pub(crate) fn name(&self) -> String {
        format!("VCUDA_FUZZ_SEED={} VCUDA_FUZZ_FAMILIES={}", self.seed, self.families)
    }

    /// Waits for newly started processes. One without memory for its context is given up: memory kept by descriptors may
    /// fill a lowered quota for minutes.
    fn all_have_started(&mut self) {
        self.members.retain_mut(|member| {
            if !member.has_started && !member.running.prints_within(ROOM) {
                member.running.kill();
                return false;
            }
            if !member.has_started {
                member.running.wait_for("started");
                member.has_started = true;
            }
            true
        });
    }

    fn tell(&self, command: Command) {
        self.page.write_all_at(&(command as u32).to_ne_bytes(), 0).unwrap();
    }

    /// Waits for all processes. Fails with the message of one that ends instead.
    fn wait_until(&mut self, what: &str, is_so: impl Fn(&Self, u64) -> bool) {
        let places: Vec<u64> = self.members.iter().map(|member| member.place).collect();
        eventually(&format!("{}: all are {what}", self.name()), Duration::from_secs(60), || {
            self.fail_if_one_ended();
            places.iter().all(|place| is_so(self, *place))
        });
    }

    /// Fails if one of them has ended by itself.
    pub(crate) fn fail_if_one_ended(&mut self) {
        let name = self.name();
        for member in &mut self.members {
            if !member.running.is_alive() {
                let mut said = Vec::new();
                while let Ok(line) = member.running.next_line() {
                    said.push(line);
                }
                panic!("{name}: a process ended by itself: {said:?}");
            }
        }
    }

    fn offset(place: u64) -> u64 {
        8 + 24 * place
    }

    fn word(&self, place: u64, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.page.read_exact_at(&mut word, Self::offset(place) + offset).unwrap();
        u32::from_ne_bytes(word)
    }

    fn long(&self, place: u64, offset: u64) -> u64 {
        let mut word = [0; 8];
        self.page.read_exact_at(&mut word, Self::offset(place) + offset).unwrap();
        u64::from_ne_bytes(word)
    }
}
