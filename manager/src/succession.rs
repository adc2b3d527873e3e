//! A manager that is started while another one runs here (`--wait`): it waits for the other's end, ready to take
//! over.
//!
//! A rollout that starts the new pod before it ends the old one (`maxSurge`) leaves the node without a manager for the time of
//! one start, instead of the time that a new pod takes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::info;
use vcuda_daemon::http;
use vcuda_daemon::life::RunError;
use vcuda_daemon::pages::pages;

use crate::config::Config;
use crate::state::start;

/// Between looks whether the other manager has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until no manager owns the runtime directory. `/readyz` is 200 meanwhile: all that is missing is the other's end.
///
/// # Errors
/// The directory or the address of the metrics cannot be used.
pub(crate) async fn await_turn(config: &Config) -> Result<(), RunError> {
    if is_free(&config.root)? {
        return Ok(());
    }
    info!("another manager runs here; this one waits for its end");
    let serving = http::listen(config.metrics).await?.map(|listener| {
        // It has no figures yet.
        let pages = pages(Arc::new(|| Ok("# EOF\n".to_owned())), Arc::new(Vec::new));
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
        // Its socket is closed when it has ended: the address is listened at again.
        let _ = serving.await;
    }
    waited
}

fn is_free(root: &Path) -> Result<bool, RunError> {
    start::is_free(root).map_err(|error| RunError::Unavailable(error.to_string()))
}
