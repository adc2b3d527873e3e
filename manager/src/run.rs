//! The daemon's life: parts are started one after another, signals end it or make it read its configuration again.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, info, warn};
use vcuda_daemon::life::{self, Ends, RunError};
use vcuda_daemon::logging::Logging;

use crate::config::{Config, Flags};
use crate::library;
use crate::parts::Parts;
use crate::standby;
use crate::succession;

/// Folder of container specifications (Container Device Interface, section "CDI spec files").
const SPECIFICATIONS: &str = "/var/run/cdi";

/// Runs until a signal ends it.
///
/// # Errors
/// It could not start: see [`RunError`].
pub fn run(config: Config, flags: &Flags, logging: &Logging) -> Result<(), RunError> {
    life::block_on(live(config, flags, logging))
}

async fn live(mut config: Config, flags: &Flags, logging: &Logging) -> Result<(), RunError> {
    let mut signals = Signals::listen()?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        root = %config.root.display(),
        state = %config.state.display(),
        node = config.node,
        "starting"
    );
    raise_descriptors();
    if flags.wait {
        tokio::select! {
            waited = succession::await_turn(&config) => waited?,
            name = signals.ends.next() => {
                info!(signal = name, "ending; another manager runs here");
                return Ok(());
            }
        }
    }
    let shim = Arc::new(library::Current::default());
    install(&config, &shim);
    let parts = Parts::start(&config, &shim).await?;

    // Systemd may not be there; who asked for the word gets it.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    info!("ready");
    loop {
        match signals.next().await {
            Asked::End(name) => {
                info!(signal = name, "ending; containers go on as they are");
                break;
            }
            // Not told by one that hangs: systemd restarts it then.
            Asked::Alive if !parts.are_alive() => warn!("a thread hangs: the watchdog is not told"),
            Asked::Alive => {
                let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            }
            Asked::Reload => {
                reload(&mut config, flags, logging, &shim);
                parts.follow(&config);
            }
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    parts.end().await;
    match standby::leave_behind(&config.root) {
        Ok(Some(pid)) => info!(pid, "a standby divides GPU time until the next manager is there"),
        Ok(None) => {}
        Err(failure) => {
            warn!(
                "no process divides GPU time until the next manager is there, shims go by themselves: {failure}"
            );
        }
    }
    Ok(())
}

/// Seven descriptors a container and one a process: the soft limit is for programs that use `select`.
fn raise_descriptors() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map(|()| hard));
    match raised {
        Ok(hard) => info!(descriptors = hard, "as many files can be open"),
        Err(failure) => {
            warn!("no more files than usual can be open ({failure}): some hundred containers are too many")
        }
    }
}

/// Puts the shim in place for new containers. A failure leaves what was installed before.
fn install(config: &Config, shim: &library::Current) {
    let Some(source) = &config.shim_library else {
        return;
    };
    let directory = config.state.join("lib");
    let installed = match library::install(
        source,
        config.vcuda_program.as_deref(),
        &directory,
        env!("CARGO_PKG_VERSION"),
    ) {
        Ok(installed) => installed,
        Err(failure) => {
            error!("{failure}");
            return;
        }
    };
    info!(library = %installed.library.display(), "the shim that new containers get");
    match library::collect(&directory, &installed, Path::new(SPECIFICATIONS)) {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => info!(removed = removed.join(" "), "collected what nothing uses"),
        Err(failure) => warn!("old versions of the shim stay: {failure}"),
    }
    shim.set(installed);
}

/// Reads the configuration again. A wrong one changes nothing.
fn reload(config: &mut Config, flags: &Flags, logging: &Logging, shim: &library::Current) {
    let next = match Config::load(flags) {
        Ok(next) => next,
        Err(failure) => {
            error!("the configuration stays as it is: {failure}");
            return;
        }
    };
    let mut words = vec![NotifyState::Reloading];
    // Type=notify-reload wants the time with it (sd_notify(3)).
    words.extend(NotifyState::monotonic_usec_now());
    let _ = sd_notify::notify(&words);
    for key in config.needs_restart(&next) {
        warn!("{key} has changed, which takes effect with the next start");
    }
    if !logging.follow(&next.log) {
        warn!("the log's filter stays as it is");
    }
    if (&next.shim_library, &next.vcuda_program) != (&config.shim_library, &config.vcuda_program) {
        install(&next, shim);
    }
    *config = next;
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    info!("the configuration was read again");
}

/// Requests of a signal, or of systemd's watchdog.
enum Asked {
    /// The signal's name.
    End(&'static str),
    Reload,
    Alive,
}

struct Signals {
    ends: Ends,
    hang_up: Signal,
    watchdog: Option<Interval>,
}

impl Signals {
    fn listen() -> Result<Self, RunError> {
        // Twice within the time that the watchdog allows (sd_watchdog_enabled(3)).
        let watchdog = sd_notify::watchdog_enabled().map(|allowed| {
            let mut ticks = interval((allowed / 2).max(Duration::from_millis(1)));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        Ok(Self {
            ends: Ends::listen()?,
            hang_up: life::listen(SignalKind::hangup())?,
            watchdog,
        })
    }

    async fn next(&mut self) -> Asked {
        let tick = async {
            match &mut self.watchdog {
                Some(ticks) => ticks.tick().await,
                None => pending().await,
            }
        };
        tokio::select! {
            name = self.ends.next() => Asked::End(name),
            _ = self.hang_up.recv() => Asked::Reload,
            _ = tick => Asked::Alive,
        }
    }
}
