//! Watchers of the tenants: registration, snapshots, arbitration and audit.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::arbiter::Evidence;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vcuda_region::clock;

use crate::audit::{self, Actions, Auditor, Namespaces};
use crate::background::Background;
use crate::config::Config;
use crate::controller::Controller;
use crate::driver_limits::{self, StartingContainers};
use crate::events::Events;
use crate::inventory::Node;
use crate::metrics::{Instruments, Registration};
use crate::observe::{Observatory, SnapshotCache};
use crate::registration::{Counts, Registrar};

/// Interval at which counts are passed to the metrics.
const TICK: Duration = Duration::from_secs(1);
/// Time without work after which a thread counts as hanging (ns).
const HUNG_NS: u64 = 20_000_000_000;

/// All watchers. They end in the order of the fields before the drop returns, so that a successor finds the locks free.
#[derive(Debug)]
pub(crate) struct Watchers {
    tick: JoinHandle<()>,
    controller: Controller,
    _driver_limits: Background,
    _observatory: Observatory,
    _registrar: Registrar,
    snapshots: Arc<SnapshotCache>,
    actions: watch::Sender<Actions>,
}

fn start_driver_limits(
    config: &Config,
    events: &Arc<Events>,
    node: Node,
    starting: Arc<StartingContainers>,
    snapshots: &Arc<SnapshotCache>,
    observatory: &Observatory,
) -> io::Result<Background> {
    driver_limits::start(driver_limits::Sources {
        root: config.root.clone(),
        state: config.state.clone(),
        is_own: config.is_own,
        snapshots: Arc::clone(snapshots),
        shown: Arc::clone(observatory.driver_limits()),
        events: Arc::clone(events),
        starting,
        ask: Box::new(move |gpu, cgroup, set| node.limits(gpu, cgroup, set)),
    })
}

impl Watchers {
    /// Starts the watchers. `snapshots` receives the snapshots of the tenants; `namespaces` gives their namespaces.
    pub(crate) fn start(
        config: &Config,
        events: &Arc<Events>,
        instruments: &Arc<Instruments>,
        node: Node,
        snapshots: Arc<SnapshotCache>,
        starting: Arc<StartingContainers>,
        namespaces: Box<Namespaces>,
    ) -> io::Result<Self> {
        let root = &config.root;
        // First, as it refuses a second manager.
        let woken = Arc::clone(&snapshots);
        let evidence = Evidence::default();
        let controller = Controller::start(root, evidence.clone(), Box::new(move || woken.wake()))?;
        let (asked, loads) = (node.clone(), node.clone());
        let is_own = config.is_own;
        // Where it runs, a user's own manager knows no more of processes than their own NVML does.
        let processes = move |gpu: &_| match is_own {
            true => Err("each process asks its own NVML".to_owned()),
            false => asked.processes(gpu).map_err(|error| error.to_string()),
        };
        let registrar = Registrar::start(root, Box::new(processes))?;
        let observatory =
            Observatory::with_cache(root, Arc::clone(registrar.registry()), Arc::clone(&snapshots))?;
        let driver_limits =
            start_driver_limits(config, events, node.clone(), starting, &snapshots, &observatory)?;
        let actions = watch::Sender::new(config.audit_actions());
        let auditor = Auditor::start(
            root,
            config.audit.interval.0,
            audit::Sources {
                looks: Arc::clone(&snapshots),
                findings: Arc::clone(observatory.findings()),
                events: Arc::clone(events),
                processes: Box::new(move |gpu| node.processes(gpu).map_err(|error| error.to_string())),
                utilization: Box::new(move |gpu| loads.utilization(gpu).map_err(|error| error.to_string())),
                evidence,
                namespaces,
                actions: actions.subscribe(),
            },
        )?;
        let bridge = Bridge {
            registry: Arc::clone(registrar.registry()),
            auditor,
            beat_ns: controller.beat(),
            instruments: Arc::clone(instruments),
            counted: Counts::default(),
            killed: 0,
        };
        Ok(Self {
            tick: tokio::spawn(bridge.run()),
            controller,
            _driver_limits: driver_limits,
            _observatory: observatory,
            _registrar: registrar,
            snapshots,
            actions,
        })
    }

    pub(crate) fn set_actions(&self, actions: Actions) {
        self.actions.send_replace(actions);
    }

    /// Whether a tenant that is gone still owes GPU time to a successor of its name.
    pub(crate) fn remember_debts(&self) -> bool {
        self.controller.remembers_debts()
    }

    /// Whether tenants are looked at and GPU time is arbitrated.
    pub(crate) fn are_alive(&self) -> bool {
        let since = |beat_ns: u64| clock::now_ns().saturating_sub(beat_ns);
        let beat_ns = self.controller.beat_ns();
        since(self.snapshots.last().taken_ns) < HUNG_NS && (beat_ns == 0 || since(beat_ns) < HUNG_NS)
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        // The task keeps other threads alive.
        self.tick.abort();
    }
}

/// Passes the threads' counts to the metrics.
#[derive(Debug)]
struct Bridge {
    registry: Arc<crate::registration::Registry>,
    auditor: Auditor,
    beat_ns: Arc<AtomicU64>,
    instruments: Arc<Instruments>,
    counted: Counts,
    killed: u64,
}

impl Bridge {
    async fn run(mut self) {
        loop {
            self.carry();
            tokio::time::sleep(TICK).await;
        }
    }

    fn carry(&mut self) {
        let now = self.registry.counts();
        let before = std::mem::replace(&mut self.counted, now);
        for (result, now, before) in [
            (Registration::Accepted, now.accepted, before.accepted),
            (Registration::Malformed, now.malformed + now.version, before.malformed + before.version),
            (
                Registration::Refused,
                now.stranger + now.full + now.floods,
                before.stranger + before.full + before.floods,
            ),
            (Registration::TimedOut, now.silent, before.silent),
        ] {
            self.instruments.registered(result, now.saturating_sub(before));
        }
        self.instruments.set_audited(self.auditor.audited());
        let killed = self.auditor.counts().get(audit::KILLED).copied().unwrap_or(0);
        self.instruments.killed(killed.saturating_sub(self.killed));
        self.killed = killed;
        self.instruments.arbitrated(self.beat_ns.load(Ordering::Relaxed));
    }
}
