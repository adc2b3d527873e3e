//! The node's GPUs through NVML: their facts, their health, and their processes.
//!
//! There are three threads, none of them tokio's, as NVML's functions block and may hang with a broken GPU. The owner
//! of NVML ([`owner`]) looks at the GPUs and answers questions. A listener ([`xids`]) waits for the driver's errors.
//! The follower ([`mod@follow`]) makes the [`Inventory`] of both, which all parts watch, and reports a silent owner.
//!
//! | module | what |
//! |---|---|
//! | [`health`] | XIDs and looks -> healthy or not |
//! | `follow` | what was seen -> inventory and events |
//! | `kept` | health beyond the end of a manager |
//! | `owner`, `nvml`, `xids` | NVML |
//! | `topology` | `/sys` |

mod follow;
pub mod health;
mod health_file;
mod nvml;
mod owner;
mod topology;
mod xids;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::watch;
use vcuda_region::GpuUuid;

use crate::events::Events;
use crate::gpu::Inventory;
use follow::{Follower, Seen};
use health::Policy;
use health_file::HealthFile;
use owner::{Owner, Question};

/// Time that an answer about processes may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Questions that may wait for NVML.
const QUESTIONS: usize = 64;
/// Observations that may wait for the follower.
const OBSERVATIONS: usize = 256;

/// Settings of the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// NVML; none: the loader finds `libnvidia-ml.so.1`.
    pub nvml_library: Option<PathBuf>,
    /// The CUDA driver, asked where NVML does not tell how much memory a GPU has; none: the loader finds `libcuda.so.1`.
    pub cuda_library: Option<PathBuf>,
    /// Conditions that make a GPU unhealthy.
    pub policy: Policy,
    /// File that keeps the GPUs' health; `None`: it is not kept.
    pub state: Option<PathBuf>,
    /// Time between two looks at the GPUs.
    pub look_every: Duration,
    /// Time after which NVML is opened anew if the kernel module's list of GPUs cannot be read, as
    /// added GPUs are seen only then. XIDs of that moment are missed.
    pub reopen_after: Duration,
    /// ... and after so many looks in a row at which a GPU did not answer.
    pub failures_to_reopen: u32,
    /// Pause after the first failure to open NVML; doubled with each.
    pub retry_least: Duration,
    /// The longest such pause.
    pub retry_most: Duration,
    /// Without a sign of NVML for this long, it hangs.
    pub silence: Duration,
    /// `/sys`.
    pub sysfs: PathBuf,
    /// `/proc`.
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
    /// NVML has no such GPU (any more).
    #[error("NVML has no GPU {0}")]
    NoGpu(GpuUuid),
    /// NVML failed for this GPU.
    #[error("NVML does not tell the processes of {0}: {1}")]
    Nvml(GpuUuid, String),
    /// No answer in time, or too many questions before this one.
    #[error("NVML did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Late,
}

/// The inventory, and questions to NVML. Its threads end when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Node {
    questions: SyncSender<Question>,
    inventory: watch::Receiver<Arc<Inventory>>,
}

impl Node {
    /// Starts the threads. NVML may be missing, now or always: [`Inventory::problem`] tells why.
    ///
    /// # Errors
    /// The system's, if a thread cannot be started.
    pub fn start(settings: Settings, events: Arc<Events>) -> io::Result<Self> {
        let (questions, asked) = sync_channel(QUESTIONS);
        let (tell, seen) = sync_channel(OBSERVATIONS);
        let (file, kept) = HealthFile::open(settings.state.as_deref(), &events);
        let follower = Follower::new(settings.policy.clone(), kept);
        let (publish, inventory) = watch::channel(Arc::new(follower.inventory()));
        let silence = settings.silence;
        let owner = Owner {
            settings,
            questions: asked,
            tell,
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("inventory").spawn(move || follow(follower, file, &seen, silence, &publish, &events))?;
        thread("nvml").spawn(move || owner.run())?;
        Ok(Self { questions, inventory })
    }

    /// The GPUs, and each change.
    #[must_use]
    pub fn inventory(&self) -> watch::Receiver<Arc<Inventory>> {
        self.inventory.clone()
    }

    /// The processes on a GPU as the host numbers them, each with its bytes where the driver tells them. Blocks for at
    /// most 2 s: not for a task of tokio's.
    ///
    /// # Errors
    /// [`ProcessesError`]: the processes are not known, which does not mean that there are none.
    pub fn processes(&self, gpu: &GpuUuid) -> Result<Vec<(u32, Option<u64>)>, ProcessesError> {
        let (reply, answer) = sync_channel(1);
        let question = Question { gpu: *gpu, reply };
        self.questions
            .try_send(question)
            .map_err(|refused| match refused {
                TrySendError::Full(_) => ProcessesError::Late,
                TrySendError::Disconnected(_) => {
                    ProcessesError::Unusable("the thread that owns NVML has ended".to_owned())
                }
            })?;
        answer
            .recv_timeout(ANSWER_WITHIN)
            .map_err(|_| ProcessesError::Late)?
    }
}

/// Until the owner has ended.
fn follow(
    mut follower: Follower,
    mut file: HealthFile,
    seen: &Receiver<Seen>,
    silence: Duration,
    publish: &watch::Sender<Arc<Inventory>>,
    events: &Events,
) {
    let mut is_over = false;
    while !is_over {
        let next = match seen.recv_timeout(silence) {
            Ok(next) => next,
            Err(RecvTimeoutError::Timeout) => Seen::Unusable(format!(
                "NVML has not answered for {} s: a GPU or its driver hangs",
                silence.as_secs()
            )),
            Err(RecvTimeoutError::Disconnected) => {
                is_over = true;
                Seen::Unusable("the thread that owns NVML has ended".to_owned())
            }
        };
        for report in follower.see(next) {
            events.report(report);
        }
        // Saved before the change is published: a client that heard of an unhealthy GPU finds it so after a restart.
        file.keep(follower.kept(), events);
        let now = Arc::new(follower.inventory());
        publish.send_if_modified(|before| {
            let is_changed = *before != now;
            *before = now;
            is_changed
        });
    }
}
