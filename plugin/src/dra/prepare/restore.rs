//! Files that were lost while their claims are prepared, as with the content of the directory of specifications. Kubelet does not ask
//! again for such claims, and their containers could not start again.

use std::time::Duration;

use tokio::time::timeout;
use tracing::info;
use vcuda_kubelet_api::dra;

use super::{PrepareError, Preparer};
use crate::cdi::ClaimRecord;

const DEADLINE: Duration = Duration::from_secs(5);

impl Preparer {
    /// Writes the files of prepared claims that are gone.
    pub(in crate::dra) async fn restore_files(&self) -> Result<(), PrepareError> {
        let _lock = self.lock.lock().await;
        for record in self.shared.store.records::<ClaimRecord>()? {
            let claim =
                dra::Claim { namespace: record.namespace, name: record.name, uid: record.uid.clone() };
            self.known.lock().insert(record.uid, claim);
        }
        let known: Vec<dra::Claim> = self.known.lock().values().cloned().collect();
        let mut result = Ok(());
        for claim in known {
            if self.shared.store.read::<ClaimRecord>(&claim.uid)?.is_some() {
                continue;
            }
            // Kubelet's calls wait meanwhile.
            let prepared = timeout(DEADLINE, self.prepare_anew(&claim)).await;
            match prepared.unwrap_or(Err(PrepareError::Late)) {
                Ok(_) => info!(
                    claim = format!("{}/{}", claim.namespace, claim.name),
                    "its files were lost and are written again"
                ),
                Err(PrepareError::Gone | PrepareError::NoPod | PrepareError::Claim(_)) => {
                    self.known.lock().remove(&claim.uid);
                }
                Err(error) => result = Err(error),
            }
        }
        result
    }
}
