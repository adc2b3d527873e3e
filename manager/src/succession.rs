//! Start while another manager runs here (`--wait`): waits for its end, ready to take over.
//!
//! A rollout that starts the new pod before it ends the old one (`maxSurge`) then leaves the node without a manager only
//! for one start of the process, not of the pod.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::info;
use vcuda_daemon::http;
use vcuda_daemon::life::RunError;
use vcuda_daemon::pages::pages;

use crate::config::Config;
use crate::parts::DAEMON;
use crate::state::start;

/// Interval of the check whether the other manager has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until no manager owns the runtime directory. `/readyz` is 200 meanwhile, as only the other's end is missing.
pub(crate) async fn await_turn(config: &Config) -> Result<(), RunError> {
    if is_free(&config.root)? {
        return Ok(());
    }
    info!("another manager runs here; this one waits for its end");
    let serving = http::listen(config.metrics.listen.0).await?.map(|listener| {
        // There are no metrics yet.
        let pages = pages(DAEMON, Arc::new(|| Ok("# EOF\n".to_owned())), Arc::new(Vec::new));
        tokio::spawn(http::serve(listener, pages, std::future::pending()))
    });
    let waited = async {
        while !is_free(&config.root)? {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    };
    let waited = waited.await;
    if let Some(serving) = serving {
        serving.abort();
        // Waits until the socket is closed, as the address is bound again.
        let _ = serving.await;
    }
    waited
}

fn is_free(root: &Path) -> Result<bool, RunError> {
    start::is_free(root).map_err(|error| RunError::Unavailable(error.to_string()))
}
