//! The node's GPUs through NVML: facts, health and processes.
//!
//! Three threads do the work, none of them tokio's, as NVML's functions block and may hang with a broken GPU. The owner of
//! NVML ([`owner`]) looks at the GPUs and answers questions. A listener ([`xids`]) waits for the driver's errors. The
//! tracker ([`tracker`]) turns both into the [`Inventory`], publishes it to all parts, and reports a silent owner.
//!
//! | module | what |
//! |---|---|
//! | [`health`] | XIDs and looks -> healthy or not |
//! | `tracker` | observations -> inventory and events |
//! | `kept` | health beyond the end of a manager |
//! | `owner`, `nvml`, `xids` | NVML |
//! | `topology` | `/sys` |

pub mod health;
mod health_file;
mod nvml;
mod owner;
mod topology;
mod tracker;
mod xids;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use vcuda_driver_open::MemoryLimits;
use vcuda_region::GpuUuid;

use crate::events::Events;
use crate::gpu::Inventory;
use health::Policy;
use health_file::HealthFile;
pub(crate) use health_file::boot;
pub use owner::Limited;
use owner::{Answer, Owner, Question, Reply};
pub use tracker::Named;
use tracker::{Observation, Tracker};

const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Capacity of the queue of questions to NVML.
const QUESTIONS: usize = 64;
/// Capacity of the queue of observations to the tracker.
const OBSERVATIONS: usize = 256;

/// Settings of the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Path of NVML; `None`: the loader finds `libnvidia-ml.so.1`.
    pub nvml_library: Option<PathBuf>,
    /// Path of the CUDA driver, which tells a GPU's memory if NVML does not; `None`: the loader finds `libcuda.so.1`.
    pub cuda_library: Option<PathBuf>,
    /// Conditions that make a GPU unhealthy.
    pub policy: Policy,
    /// File that keeps the GPUs' health; `None`: it is not kept.
    pub state: Option<PathBuf>,
    /// Interval between two looks at the GPUs.
    pub look_every: Duration,
    /// Time after which NVML is opened anew if the kernel module's list of GPUs cannot be read, as NVML shows added GPUs
    /// only then. XIDs of that moment are missed.
    pub reopen_after: Duration,
    /// Number of looks in a row with a GPU that does not answer after which NVML is opened anew.
    pub failures_to_reopen: u32,
    /// Pause after the first failure to open NVML; doubled with each further one.
    pub retry_least: Duration,
    /// Maximum pause after a failure to open NVML.
    pub retry_most: Duration,
    /// Time without an observation after which NVML counts as hanging.
    pub silence: Duration,
    /// Path of `/sys`.
    pub sysfs: PathBuf,
    /// Path of `/proc`.
    pub procfs: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nvml_library: None,
            cuda_library: None,
            policy: Policy::default(),
            state: None,
            look_every: Duration::from_secs(2),
            reopen_after: Duration::from_secs(300),
            failures_to_reopen: 10,
            retry_least: Duration::from_millis(500),
            retry_most: Duration::from_secs(30),
            silence: Duration::from_secs(60),
            sysfs: "/sys".into(),
            procfs: "/proc".into(),
        }
    }
}

/// The reason why a GPU's processes are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessesError {
    /// NVML cannot be used at all.
    #[error("{0}")]
    Unusable(String),
    /// NVML has no such GPU, or not any more.
    #[error("NVML has no GPU {0}")]
    NoGpu(GpuUuid),
    /// NVML failed for this GPU.
    #[error("NVML does not tell the processes of {0}: {1}")]
    Nvml(GpuUuid, String),
    /// There is no answer in time, or too many questions wait.
    #[error("NVML did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Late,
}

/// The inventory, and access to NVML. Its threads end when the last clone is dropped.
#[derive(Clone)]
pub struct Node {
    questions: SyncSender<Question>,
    inventory: watch::Receiver<Arc<Inventory>>,
    ledger: Arc<OnceLock<LedgerGpus>>,
}

/// Source of the GPUs that the ledger names.
type LedgerGpus = Box<dyn Fn() -> Named + Send + Sync>;

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("inventory", &self.inventory).finish_non_exhaustive()
    }
}

impl Node {
    /// Starts the threads. NVML may be missing, now or always: [`Inventory::problem`] then says why.
    pub fn start(settings: Settings, events: Arc<Events>) -> io::Result<Self> {
        let (questions, asked) = sync_channel(QUESTIONS);
        let (tell, seen) = sync_channel(OBSERVATIONS);
        let (file, kept) = HealthFile::open(settings.state.as_deref(), &events);
        let tracker = Tracker::new(settings.policy.clone(), kept);
        let (publish, inventory) = watch::channel(Arc::new(tracker.inventory()));
        let silence = settings.silence;
        let owner = Owner { settings, questions: asked, tell };
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let ledger = Arc::<OnceLock<LedgerGpus>>::default();
        let named = Arc::clone(&ledger);
        let track = move || track(tracker, file, &seen, silence, &named, &publish, &events);
        thread("inventory").spawn(track)?;
        thread("nvml").spawn(move || owner.run())?;
        Ok(Self { questions, inventory, ledger })
    }

    /// Tells which GPUs the ledger names: one of them that NVML does not list is a problem of the inventory. The first call counts.
    pub fn compare_with_ledger(&self, named: impl Fn() -> Named + Send + Sync + 'static) {
        let _ = self.ledger.set(Box::new(named));
    }

    /// A receiver of the GPUs and of each change.
    pub fn inventory(&self) -> watch::Receiver<Arc<Inventory>> {
        self.inventory.clone()
    }

    /// Host PIDs of the processes on a GPU, each with its memory (bytes) if the driver tells it. Blocks for at most 2 s:
    /// not for a task of tokio's.
    ///
    /// # Errors
    /// Fails with [`ProcessesError`] if the processes are not known, which does not mean that there are none.
    pub fn processes(&self, gpu: &GpuUuid) -> Result<Vec<(u32, Option<u64>)>, ProcessesError> {
        self.ask(gpu, Reply::Processes)
    }

    /// Host PIDs of the processes that had work on a GPU in the last seconds, each with its utilisation (percent). Blocks as
    /// [`Node::processes`].
    ///
    /// # Errors
    /// Fails with [`ProcessesError`] if that is not known, which does not mean that none had.
    pub fn utilization(&self, gpu: &GpuUuid) -> Result<Vec<(u32, u32)>, ProcessesError> {
        self.ask(gpu, Reply::Utilization)
    }

    /// The memory that all processes on a GPU use now (bytes). Blocks as [`Node::processes`].
    pub fn memory_used(&self, gpu: &GpuUuid) -> Result<u64, ProcessesError> {
        self.ask(gpu, Reply::Memory)
    }

    /// The driver's memory limits of the cgroup with this directory; `set` sets them before. Blocks as [`Node::processes`].
    ///
    /// # Errors
    /// Fails as [`Node::processes`]; a refusal by NVML is part of the answer.
    pub fn limits(
        &self,
        gpu: &GpuUuid,
        cgroup: &Path,
        set: Option<MemoryLimits>,
    ) -> Result<Limited, ProcessesError> {
        self.ask(gpu, |reply| Reply::Limits(cgroup.to_owned(), set, reply))
    }

    fn ask<T>(&self, gpu: &GpuUuid, reply: impl FnOnce(SyncSender<Answer<T>>) -> Reply) -> Answer<T> {
        let (told, answer) = sync_channel(1);
        let question = Question { gpu: *gpu, reply: reply(told) };
        self.questions.try_send(question).map_err(|refused| match refused {
            TrySendError::Full(_) => ProcessesError::Late,
            TrySendError::Disconnected(_) => {
                ProcessesError::Unusable("the thread that owns NVML has ended".to_owned())
            }
        })?;
        answer.recv_timeout(ANSWER_WITHIN).map_err(|_| ProcessesError::Late)?
    }
}

/// Updates and publishes the inventory until the owner of NVML has ended.
fn track(
    mut tracker: Tracker,
    mut file: HealthFile,
    seen: &Receiver<Observation>,
    silence: Duration,
    ledger: &OnceLock<LedgerGpus>,
    publish: &watch::Sender<Arc<Inventory>>,
    events: &Events,
) {
    let mut is_over = false;
    while !is_over {
        let next = match seen.recv_timeout(silence) {
            Ok(next) => next,
            Err(RecvTimeoutError::Timeout) => Observation::Unusable(format!(
                "NVML has not answered for {} s: a GPU or its driver hangs",
                silence.as_secs()
            )),
            Err(RecvTimeoutError::Disconnected) => {
                is_over = true;
                Observation::Unusable("the thread that owns NVML has ended".to_owned())
            }
        };
        let mut reports = tracker.apply(next);
        reports.extend(ledger.get().map(|named| tracker.name(named())).into_iter().flatten());
        for report in reports {
            events.report(report);
        }
        // Saved before the change is published: a client that was told of an unhealthy GPU finds it unhealthy after a
        // restart.
        file.keep(tracker.record(), events);
        let now = Arc::new(tracker.inventory());
        publish.send_if_modified(|before| {
            let is_changed = *before != now;
            *before = now;
            is_changed
        });
    }
}
