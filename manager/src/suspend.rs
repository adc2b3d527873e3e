//! Suspension of tenants: their GPU memory moves to host memory, and back at their next call (experimental, docs/suspend.md).
//!
//! A tenant that does not run has a [`Record`], which is written before each change of its phase:
//!
//! ```text
//! running -> suspending -> suspended -> resuming -> running
//!                 |                        |
//!                 +--> running             +------> failed
//! ```
//!
//! A tenant is suspended by hand, or to make room ([`room`]). By hand, the ledger gives its quota to others; to make room it
//! keeps it.
//!
//! A manager that starts undoes what was suspending, and finishes what was resuming; both are the same work
//! ([`moving::bring_back`]). Before a process is restored, its room is reserved in the ledger and looked for on the GPU, since
//! a restore without room loses the process. A suspension that failed after the first copy is undone in the same way: the tenant
//! is suspended, with a part of its memory on the GPU, until there is room for the other part.
//!
//! [`Record`]: records::Record

pub(crate) mod checks;
mod fits;
mod gates;
pub(crate) mod helper;
mod moving;
mod poll;
pub(crate) mod records;
mod returned;
mod room;
mod task;
mod wish;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::watch;
use vcuda_region::suspension::{SuspendState, SuspensionWords};

use crate::background::Background;
use crate::events::{Events, Severity};
use crate::grant::GrantId;
use crate::inventory::Node;
use crate::metrics::{Instruments, Moved};
use crate::state::{GrantError, Grants};
use records::{Phase, Record, RecordError, Records};
use wish::Wish;

/// Time after which a caller gets the state so far.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How a piece of work ended; `None` while it goes on.
type Ended = watch::Receiver<Option<Result<(), GrantError>>>;

/// Suspends and resumes tenants. Clones share the state.
#[derive(Debug, Clone)]
pub struct Suspender(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    grants: Grants,
    node: Node,
    events: Arc<Events>,
    instruments: Arc<Instruments>,
    helper: helper::Settings,
    /// The programs of suspended tenants, whose driver is ready for the resume.
    ready: Mutex<HashMap<String, helper::Helper>>,
    residence: Duration,
    runtime: Handle,
    /// Held from the look for room to the record of the resume, so that no two tenants count on the same room.
    admits: Mutex<()>,
    records: Mutex<Records>,
    /// Notified when a record is written.
    written: Condvar,
    /// The work under way, by tenant.
    tasks: Mutex<HashMap<String, (Wish, Ended)>>,
}

#[derive(Debug)]
pub struct Settings {
    /// Directory of the records, on tmpfs.
    pub records: PathBuf,
    pub helper: helper::Settings,
    /// Time for which a busy suspendable tenant stays on its GPU before it makes room for another one.
    pub residence: Duration,
}

/// The thread that looks whether suspended tenants ask for their memory, and makes room. It ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    _thread: Background,
}

impl Watch {
    /// Has the thread look at the rules of admission again.
    pub fn wake(&self) {
        self.shared.wake_watch();
    }
}

impl Suspender {
    /// Reads the records, and finishes or undoes what an earlier manager left.
    pub fn start(
        settings: Settings,
        grants: Grants,
        node: Node,
        events: Arc<Events>,
        instruments: Arc<Instruments>,
        runtime: Handle,
    ) -> io::Result<(Self, Watch)> {
        let records = open_records(&settings, &events)?;
        let suspender = Self(Arc::new(Shared {
            grants,
            node,
            events,
            instruments,
            helper: settings.helper,
            ready: Mutex::default(),
            residence: settings.residence,
            runtime,
            admits: Mutex::default(),
            records: Mutex::new(records),
            written: Condvar::new(),
            tasks: Mutex::default(),
        }));
        suspender.0.finish_or_undo()?;
        let (shared, woken) = (Arc::clone(&suspender.0), Arc::clone(&suspender.0));
        let wake = Box::new(move || woken.wake_watch());
        let thread = Background::with_wake("suspend", wake, move |stop| poll::watch(&shared, stop))?;
        let watch = Watch { shared: Arc::clone(&suspender.0), _thread: thread };
        Ok((suspender, watch))
    }

    /// Suspends a tenant for `user`, whom the event names. Returns its state when that is done, or after some seconds.
    pub async fn suspend(&self, id: &str, user: Option<String>) -> Result<SuspendState, GrantError> {
        self.0.carry_out(id, Wish::Suspend, user).await
    }

    /// Resumes a tenant for `user`, whom the event names. Returns its state when that is done, or after some seconds.
    pub async fn resume(&self, id: &str, user: Option<String>) -> Result<SuspendState, GrantError> {
        self.0.carry_out(id, Wish::Resume, user).await
    }

    /// Whether a tenant could be suspended now, condition by condition. Changes nothing.
    pub async fn checks(&self, id: &str) -> Result<Vec<checks::Check>, GrantError> {
        let (shared, id) = (Arc::clone(&self.0), id.to_owned());
        let looked = tokio::task::spawn_blocking(move || checks::all(&shared, &id)).await;
        looked.map_err(|error| GrantError::Unavailable(format!("the manager is ending: {error}")))?
    }

    pub fn state(&self, id: &str) -> SuspendState {
        self.0.state(id)
    }
}

/// Number of a tenant's allocations within its quota that the driver refused, by the tenant's directory; 0 if its files cannot
/// be read.
pub(crate) fn room_denied(directory: &Path) -> u32 {
    SuspensionWords::open(directory).and_then(|words| words.room_denied()).unwrap_or(0)
}

/// Opens the records. A damaged one is put aside and reported: the manager has more to do than this.
fn open_records(settings: &Settings, events: &Events) -> io::Result<Records> {
    let open = || Records::open(&settings.records);
    match open() {
        Err(RecordError::Damaged(path, damage)) => {
            let aside = path.with_extension("damaged");
            std::fs::rename(&path, &aside)?;
            let text = format!(
                "{}: {damage}; end the processes of tenants that were suspended: nothing brings them back",
                aside.display()
            );
            events.say(Severity::Error, "VcudaSuspensionFailed", text, None);
            open().map_err(io::Error::other)
        }
        opened => opened.map_err(io::Error::other),
    }
}

impl Shared {
    fn state(&self, id: &str) -> SuspendState {
        let records = self.records.lock();
        records.find(id).map_or(SuspendState::Running, |record| record.phase.state())
    }

    /// Whether a suspended tenant comes back as soon as there is room.
    fn comes_back(&self, id: &str) -> bool {
        let records = self.records.lock();
        records.find(id).is_some_and(|record| record.comes_back)
    }

    /// Whether a tenant runs, and nothing is being done with it.
    fn is_at_rest(&self, id: &str) -> bool {
        !self.tasks.lock().contains_key(id) && self.state(id) == SuspendState::Running
    }

    /// Whether the quotas on a GPU may exceed its memory.
    fn is_overcommitted(&self) -> bool {
        self.grants.rules().may_exceed_memory()
    }

    fn directory(&self, id: &str) -> PathBuf {
        self.grants.directories().path(&GrantId::from_directory(id))
    }

    fn write(&self, id: &str, phase: Phase, processes: &[records::Process]) -> Result<(), RecordError> {
        self.put(Record { id: id.to_owned(), phase, processes: processes.to_vec(), comes_back: false })
    }

    fn put(&self, record: Record) -> Result<(), RecordError> {
        self.records.lock().put(record)?;
        self.wake_watch();
        Ok(())
    }

    fn wake_watch(&self) {
        // Locked in between, so that the thread either waits by now or sees what has changed.
        drop(self.records.lock());
        self.written.notify_all();
    }

    async fn carry_out(
        self: &Arc<Self>,
        id: &str,
        wish: Wish,
        user: Option<String>,
    ) -> Result<SuspendState, GrantError> {
        // A tenant without a grant may just have been made: a snapshot of now tells, which takes up to 50 ms.
        let (grants, name) = (self.grants.clone(), id.to_owned());
        let look = move || grants.snapshot_of_now().find(&name).is_some();
        let is_known = self.grants.grant_table().by_id(id).is_some()
            || tokio::task::spawn_blocking(look).await.unwrap_or(false);
        if !is_known {
            return Err(GrantError::NotFound(format!("{id}: no such tenant; `vcuda smi` lists them")));
        }
        if let Some(mut ended) = self.ending(id, wish) {
            // Whatever came of it, `begin` sees.
            let _ = tokio::time::timeout(ANSWER_WITHIN, ended.wait_for(Option::is_some)).await;
        }
        let Some(mut ended) = self.begin(id, wish, user)? else {
            if wish == Wish::Suspend {
                // It was suspended to make room.
                self.grants.suspend(id).await?;
            }
            return Ok(self.state(id));
        };
        let result = tokio::time::timeout(ANSWER_WITHIN, ended.wait_for(Option::is_some)).await;
        match result {
            Ok(Ok(result)) => match result.as_ref() {
                Some(Err(error)) => Err(error.clone()),
                _ => Ok(self.state(id)),
            },
            Ok(Err(_)) => {
                Err(GrantError::Unavailable(format!("{id}: a thread of the manager failed; look at its log")))
            }
            Err(_) => Ok(wish.passing()),
        }
    }

    /// The opposite work if the tenant is where that brings it: only the last of it is under way.
    fn ending(&self, id: &str, wish: Wish) -> Option<Ended> {
        let tasks = self.tasks.lock();
        let (other, ended) = tasks.get(id)?;
        let is_ending = other.passing() != wish.passing() && self.state(id) == other.settled();
        is_ending.then(|| ended.clone())
    }

    /// Begins the work, for `user` if one asks for it, or finds the same under way. `None` if there is nothing to do.
    fn begin(
        self: &Arc<Self>,
        id: &str,
        wish: Wish,
        user: Option<String>,
    ) -> Result<Option<Ended>, GrantError> {
        let mut tasks = self.tasks.lock();
        if let Some((other, ended)) = tasks.get(id) {
            return if other.passing() == wish.passing() {
                Ok(Some(ended.clone()))
            } else {
                Err(GrantError::Unavailable(format!(
                    "{id} is {}; try again when that is done",
                    self.state(id).name()
                )))
            };
        }
        match (wish, self.state(id)) {
            (Wish::Suspend | Wish::MakeRoom, SuspendState::Suspended) if self.comes_back(id) => {
                Err(GrantError::Unavailable(format!(
                    "{id} comes back as soon as its GPU has room, as its suspension failed; try again when it runs"
                )))
            }
            (Wish::Suspend | Wish::MakeRoom, SuspendState::Suspended)
            | (Wish::Resume, SuspendState::Running) => Ok(None),
            (Wish::SuspendAnew, state) if state != SuspendState::Suspended => Ok(None),
            (Wish::Suspend | Wish::MakeRoom, SuspendState::Failed) => Err(GrantError::Refused(format!(
                "{id} has a process that lost its GPU state; end its processes"
            ))),
            _ => self.start_task(&mut tasks, id, wish, user).map(Some),
        }
    }

    fn start_task(
        self: &Arc<Self>,
        tasks: &mut HashMap<String, (Wish, Ended)>,
        id: &str,
        wish: Wish,
        user: Option<String>,
    ) -> Result<Ended, GrantError> {
        let (tell, ended) = watch::channel(None);
        let (shared, name) = (Arc::clone(self), id.to_owned());
        // Here, not by the thread: what an earlier manager left is noted before the first request is answered.
        let returning = (wish == Wish::Resume).then(|| self.grants.begin_return(id));
        let work = move || {
            let result = match wish {
                Wish::Suspend | Wish::MakeRoom => task::suspend(&shared, &name, wish, user.as_deref()),
                Wish::SuspendAnew => task::suspend_anew(&shared, &name),
                Wish::Resume => task::resume(&shared, &name, user.as_deref()),
            };
            // Before the next task for the tenant can begin.
            drop(returning);
            shared.count(&name, wish, result.is_ok());
            shared.tasks.lock().remove(&name);
            tell.send_replace(Some(result));
        };
        let started = std::thread::Builder::new().name("suspend-task".to_owned()).spawn(work);
        started.map_err(|error| GrantError::Unavailable(format!("no thread: {error}; try again")))?;
        tasks.insert(id.to_owned(), (wish, ended.clone()));
        Ok(ended)
    }

    /// Counts an attempt for the metrics.
    fn count(&self, id: &str, wish: Wish, is_done: bool) {
        let result = match (is_done, self.state(id)) {
            (true, _) => Moved::Done,
            (false, SuspendState::Failed) => Moved::Failed,
            (false, _) => Moved::Refused,
        };
        match wish {
            Wish::Suspend | Wish::MakeRoom | Wish::SuspendAnew => self.instruments.suspended(result),
            Wish::Resume => self.instruments.resumed(result),
        }
    }

    /// Takes up what an earlier manager left.
    fn finish_or_undo(self: &Arc<Self>) -> io::Result<()> {
        let left: Vec<Record> = self.records.lock().all().cloned().collect();
        for record in left {
            match record.phase {
                Phase::Suspended => task::tell(self, &record.id, SuspendState::Suspended),
                Phase::Failed => task::tell(self, &record.id, SuspendState::Failed),
                Phase::Suspending | Phase::Resuming => {
                    let mut tasks = self.tasks.lock();
                    self.start_task(&mut tasks, &record.id, Wish::Resume, None).map_err(io::Error::other)?;
                }
            }
        }
        Ok(())
    }

    fn say(&self, severity: Severity, reason: &'static str, message: String, id: &str) {
        self.events.say(severity, reason, message, Some(id));
    }
}
