//! Life of the daemon: starts its parts; signals end it or make it reload its configuration.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, info, warn};
use vcuda_daemon::config::ConfigError;
use vcuda_daemon::life::{self, Ends, RunError};
use vcuda_daemon::logging::Logging;
use vcuda_manager_api::SOCKET_NAME;
use vcuda_region::directory::{Callers, CallersLock};

use crate::config::{Config, Flags};
use crate::events::{Events, Severity};
use crate::grant_devices::{Folder, SYSTEM_FOLDER};
use crate::keeper;
use crate::library;
use crate::parts::Parts;
use crate::succession;

const RETRY: Duration = Duration::from_secs(10);

/// A user's own manager ends after so many looks without a tenant, and the time between two: a script starts one command after the
/// other.
const UNUSED_LOOKS: u32 = 4;
const UNUSED_LOOK: Duration = Duration::from_millis(250);

/// Runs until a signal ends it, a user's own manager also until the last tenant has ended.
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
    let callers = take_root(&config)?;
    if flags.wait {
        tokio::select! {
            waited = succession::await_turn(&config) => waited?,
            name = signals.ends.next() => {
                info!(signal = name, "ending; another manager runs here");
                return Ok(());
            }
        }
    }
    let (shim, events) = (Arc::<library::Current>::default(), Arc::<Events>::default());
    install(&config, &shim, &events);
    let parts = Parts::start(&config, &shim, &events).await?;

    // Fails without systemd, which is no error.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    info!("ready");
    let socket = config.root.join(SOCKET_NAME);
    let mut _shut = None;
    loop {
        let asked = tokio::select! {
            asked = signals.next() => asked,
            lock = unused(&parts, &socket, callers.as_ref()) => {
                _shut = lock;
                Asked::End("none: the last tenant has ended")
            }
        };
        match asked {
            Asked::End(name) => {
                info!(signal = name, "ending; containers go on as they are");
                break;
            }
            // The watchdog is not notified while a thread hangs, so that systemd restarts the manager.
            Asked::Alive if !parts.are_alive() => warn!("a thread hangs: the watchdog is not told"),
            Asked::Alive => {
                let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            }
            Asked::Reload => {
                let refused = reload(&mut config, flags, logging, (&shim, &events)).err();
                parts.tell_reload(refused.map(|failure| failure.to_string()));
                parts.apply(&config);
            }
            Asked::Retry if shim.problem().is_some() => install(&config, &shim, &events),
            Asked::Retry => {}
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    // One that was left behind would say that a manager is missed.
    parts.end(config.is_own.then_some(socket)).await;
    Ok(())
}

/// For a node's manager, ends a user's own one under its root; for that one, the callers that it waits for.
fn take_root(config: &Config) -> Result<Option<Callers>, RunError> {
    let taken = match config.is_own {
        true => Callers::of(&config.root).map(Some),
        false => keeper::displace(&config.root).map(|()| None),
    };
    taken.map_err(|error| RunError::Unavailable(format!("{}: {error}", config.root.display())))
}

/// For a user's own manager, waits until there has been no tenant for some looks in a row, nor a caller that could make one. None comes
/// while the result lives.
async fn unused(parts: &Parts, socket: &Path, callers: Option<&Callers>) -> Option<CallersLock> {
    let Some(callers) = callers else { return pending().await };
    let mut looks = 0;
    loop {
        tokio::time::sleep(UNUSED_LOOK).await;
        looks = if parts.are_unused(socket) { looks + 1 } else { 0 };
        // Nothing leads here any more, and a caller that is still connected keeps the next one from no socket.
        if looks >= UNUSED_LOOKS && !socket.exists() {
            return None;
        }
        if looks >= UNUSED_LOOKS {
            match callers.shut() {
                // The last caller may have made a tenant since the look.
                Ok(Some(lock)) if parts.are_unused(socket) => return Some(lock),
                Ok(_) => {}
                // It was removed, and with it the root.
                Err(_) => return None,
            }
        }
    }
}

/// Raises the limit of descriptors: the manager needs seven per container and one per process.
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

/// Installs the shim for new containers. A failure leaves the installed version.
fn install(config: &Config, shim: &library::Current, events: &Events) {
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
            if shim.fail(&failure) {
                let why = shim.problem().unwrap_or_default();
                events.say(Severity::Error, "VcudaShimFailed", why, None);
            }
            return;
        }
    };
    info!(library = %installed.library.display(), "the shim that new containers get");
    let mut specifications = vec![Path::new(SYSTEM_FOLDER)];
    if let Folder::At(folder) = &config.cdi.folder {
        specifications.push(folder);
    }
    match library::collect(&directory, &installed, &specifications) {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => info!(removed = removed.join(" "), "collected what nothing uses"),
        Err(failure) => warn!("old versions of the shim stay: {failure}"),
    }
    shim.set(installed);
}

fn reload(
    config: &mut Config,
    flags: &Flags,
    logging: &Logging,
    (shim, events): (&library::Current, &Events),
) -> Result<(), ConfigError> {
    let next =
        Config::load(flags).inspect_err(|failure| error!("the configuration stays as it is: {failure}"))?;
    let mut words = vec![NotifyState::Reloading];
    // Type=notify-reload requires the time of the reload (sd_notify(3)).
    words.extend(NotifyState::monotonic_usec_now());
    let _ = sd_notify::notify(&words);
    for key in config.needs_restart(&next) {
        warn!("{key} has changed, which takes effect with the next start");
    }
    if !logging.set_filter(&next.log) {
        warn!("the log's filter stays as it is");
    }
    if (&next.shim_library, &next.vcuda_program) != (&config.shim_library, &config.vcuda_program) {
        install(&next, shim, events);
    }
    *config = next;
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    info!("the configuration was read again");
    Ok(())
}

enum Asked {
    /// End, with the signal's name.
    End(&'static str),
    Reload,
    Alive,
    /// What failed may work by now.
    Retry,
}

struct Signals {
    ends: Ends,
    hang_up: Signal,
    watchdog: Option<Interval>,
    retries: Interval,
}

impl Signals {
    fn listen() -> Result<Self, RunError> {
        // Twice within the watchdog's interval (sd_watchdog_enabled(3)).
        let watchdog = sd_notify::watchdog_enabled().map(|allowed| {
            let mut ticks = interval((allowed / 2).max(Duration::from_millis(1)));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        let hang_up = life::listen(SignalKind::hangup())?;
        Ok(Self { ends: Ends::listen()?, hang_up, watchdog, retries: interval(RETRY) })
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
            _ = self.retries.tick() => Asked::Retry,
        }
    }
}
