//! The thread that owns NVML: opens it, looks at the GPUs, answers questions, and opens it anew if that may help.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use vcuda_driver_open::MemoryLimits;
use vcuda_region::{GpuUuid, clock};

use super::nvml::{self, DeviceHandle};
use super::tracker::Observation;
use super::{ProcessesError, Settings, xids};

#[derive(Debug)]
pub(super) struct Question {
    pub(super) gpu: GpuUuid,
    pub(super) reply: Reply,
}

/// What is asked, and where the answer goes. The caller may have given up waiting.
#[derive(Debug)]
pub(super) enum Reply {
    /// The processes: host PIDs with their bytes.
    Processes(SyncSender<Answer<PerProcess<Option<u64>>>>),
    /// The processes that had work lately: host PIDs with their utilisation (percent).
    Utilization(SyncSender<Answer<PerProcess<u32>>>),
    /// The memory that all processes use (bytes).
    Memory(SyncSender<Answer<u64>>),
    /// The driver's memory limits of the cgroup with this directory, after these were set, if any.
    Limits(PathBuf, Option<MemoryLimits>, SyncSender<Answer<Limited>>),
}

/// The driver's memory limits of a cgroup, or NVML's refusal.
pub type Limited = Result<MemoryLimits, vcuda_driver_api::NvmlError>;

pub(super) type Answer<T> = Result<T, ProcessesError>;
/// A figure of each process, by host PID.
type PerProcess<T> = Vec<(u32, T)>;

impl Question {
    fn answer(self, handle: Result<&DeviceHandle<'_>, ProcessesError>) {
        let failed = |error: NvmlError| ProcessesError::Nvml(self.gpu, error.to_string());
        let _ = match self.reply {
            Reply::Processes(reply) => {
                let listed = handle.and_then(|handle| nvml::processes(handle).map_err(failed));
                reply.send(listed).is_ok()
            }
            Reply::Utilization(reply) => {
                let found = handle.and_then(|handle| nvml::utilization(handle).map_err(failed));
                reply.send(found).is_ok()
            }
            Reply::Memory(reply) => {
                let used = handle.and_then(|handle| nvml::memory_used(handle).map_err(failed));
                reply.send(used).is_ok()
            }
            Reply::Limits(cgroup, limits, reply) => {
                let told = handle.map(|handle| nvml::limits(handle, &cgroup, limits));
                reply.send(told).is_ok()
            }
        };
    }
}

/// Folder in `/proc` where the kernel module lists its GPUs.
const DRIVEN: &str = "driver/nvidia/gpus";

enum End {
    /// No caller or receiver is left.
    Over,
    /// NVML must be opened anew.
    Again,
}

#[derive(Debug)]
pub(super) struct Owner {
    pub(super) settings: Settings,
    pub(super) questions: Receiver<Question>,
    pub(super) tell: SyncSender<Observation>,
}

impl Owner {
    pub(super) fn run(self) {
        let mut pause = self.settings.retry_least;
        let mut by_index = Vec::new();
        loop {
            let failure = match self.open() {
                Ok(nvml) => match self.session(&nvml, &mut by_index) {
                    Ok(End::Over) => return,
                    Ok(End::Again) => {
                        pause = self.settings.retry_least;
                        continue;
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let why = self.describe(&failure);
            if self.tell.send(Observation::Unusable(why.clone())).is_err() || self.refuse_for(pause, &why) {
                return;
            }
            pause = (pause * 2).min(self.settings.retry_most);
        }
    }

    fn open(&self) -> Result<Nvml, NvmlError> {
        let mut builder = Nvml::builder();
        if let Some(library) = &self.settings.nvml_library {
            builder.lib_path(library.as_os_str());
        }
        builder.init()
    }

    fn describe(&self, failure: &NvmlError) -> String {
        let library = match &self.settings.nvml_library {
            Some(library) => library.display().to_string(),
            None => "libnvidia-ml.so.1".to_owned(),
        };
        let remedy = match failure {
            NvmlError::LibloadingError(_) => {
                "; is an NVIDIA driver installed, and its library within reach (nvml_library)?"
            }
            NvmlError::DriverNotLoaded => "; load the kernel module (nvidia-smi tells more)",
            NvmlError::NoPermission => {
                "; the manager needs the devices /dev/nvidiactl and /dev/nvidia0 and on"
            }
            NvmlError::LibRmVersionMismatch => {
                "; restart the node, or load the kernel module of the library's release"
            }
            _ => "",
        };
        format!("NVML ({library}) cannot be used: {failure}{remedy}")
    }

    /// Answers questions during `pause` with the reason `why` NVML cannot be used. Returns whether the thread must end.
    fn refuse_for(&self, pause: Duration, why: &str) -> bool {
        let end_ns = now_after(pause);
        loop {
            match self.questions.recv_timeout(until(end_ns)) {
                Ok(question) => {
                    question.answer(Err(ProcessesError::Unusable(why.to_owned())));
                }
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Works with one opening of NVML until it ends.
    fn session(&self, nvml: &Nvml, by_index: &mut Vec<Option<GpuUuid>>) -> Result<End, NvmlError> {
        let (opened, handles) = nvml::open(nvml, &self.settings, by_index)?;
        let is_incomplete = !opened.missing.is_empty();
        // Registered before the GPUs are published, so that no later XID is missed.
        let first = xids::registered(nvml, &handles);
        if self.tell.send(Observation::Opened(opened)).is_err() {
            return Ok(End::Over);
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let listener = std::thread::Builder::new().name("nvml-xids".to_owned());
            let (tell, handles, is_over) = (&self.tell, &handles, &is_over);
            let listen = move || xids::watch(nvml, handles, first, is_over, tell);
            // A listener that cannot be started is handled like an NVML without XIDs.
            let spawned =
                if handles.is_empty() { Ok(()) } else { listener.spawn_scoped(scope, listen).map(drop) };
            let end = self
                .report_unwatched(spawned)
                .map_or_else(|| self.serve_until_reopen(handles, is_incomplete), |()| End::Over);
            is_over.store(true, Ordering::Release);
            Ok(end)
        })
    }

    /// Reports a listener thread that cannot be started. `None` if no report is due, or if no receiver is left for it.
    fn report_unwatched(&self, spawned: io::Result<()>) -> Option<()> {
        let error = spawned.err()?;
        let why = format!("XIDs are not watched: no thread can be started: {error}");
        self.tell.send(Observation::Xids(Err(why))).err().map(drop)
    }

    /// Looks at the GPUs and answers questions until NVML must be opened anew.
    fn serve_until_reopen(&self, handles: &[DeviceHandle<'_>], is_incomplete: bool) -> End {
        let settings = &self.settings;
        let driven = self.driven();
        let end_ns = now_after(settings.reopen_after);
        let mut failing = u32::from(is_incomplete);
        loop {
            let looks: Vec<_> = handles
                .iter()
                .map(|handle| (handle.uuid, nvml::look(handle).map_err(|error| format!("NVML: {error}"))))
                .collect();
            failing =
                if is_incomplete || looks.iter().any(|(_, look)| look.is_err()) { failing + 1 } else { 0 };
            if self.tell.send(Observation::Looked(looks)).is_err() {
                return End::Over;
            }
            // Only a new opening shows added GPUs, and may bring back a lost one.
            let is_due = driven.is_none() && until(end_ns).is_zero();
            if failing > settings.failures_to_reopen || self.driven() != driven || is_due {
                return End::Again;
            }
            if self.answer_for(settings.look_every, handles) {
                return End::Over;
            }
        }
    }

    /// Answers questions during `pause`. Returns whether the thread must end.
    fn answer_for(&self, pause: Duration, handles: &[DeviceHandle<'_>]) -> bool {
        let end_ns = now_after(pause);
        loop {
            match self.questions.recv_timeout(until(end_ns)) {
                Ok(question) => {
                    let handle = handles.iter().find(|handle| handle.uuid == question.gpu);
                    let handle = handle.ok_or(ProcessesError::NoGpu(question.gpu));
                    question.answer(handle);
                }
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// GPUs listed by the kernel module; `None` without such a module.
    fn driven(&self) -> Option<Vec<PathBuf>> {
        let entries = std::fs::read_dir(self.settings.procfs.join(DRIVEN)).ok()?;
        let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        names.sort();
        Some(names)
    }
}

fn now_after(pause: Duration) -> u64 {
    clock::now_ns().saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX))
}

fn until(end_ns: u64) -> Duration {
    Duration::from_nanos(end_ns.saturating_sub(clock::now_ns()))
}
