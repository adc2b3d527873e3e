//! Files of a prepared claim: the specification of its devices, and the record.

use std::collections::BTreeSet;

use super::{GroupGrant, PendingClaim, PrepareError, Preparer};
use crate::bind::spec_inputs;
use crate::cdi::{CdiDevice, ClaimRecord, Prepared, qualified, spec};
use crate::dra::claim::Share;
use crate::dra::claim_annotations;

impl Preparer {
    /// Writes the specification and the record. Returns the answer to kubelet.
    pub(super) async fn write_files(
        &self,
        asked: &PendingClaim<'_>,
        granted: &[GroupGrant],
    ) -> Result<Vec<Prepared>, PrepareError> {
        let known = self.shared.gpus.borrow().clone();
        let minors = known.iter().flat_map(|gpus| gpus.minors());
        let inputs =
            spec_inputs(&self.shared.manager, &self.settings, minors.collect::<Vec<_>>().into_iter()).await?;
        let devices: Vec<CdiDevice> = granted.iter().map(|granted| granted.device.clone()).collect();
        let spec = spec::<ClaimRecord>(&inputs, &devices)?;
        let texts = granted.iter().filter_map(|granted| Some((granted.key.clone()?, granted.text.clone()?)));
        let record = ClaimRecord {
            namespace: asked.claim.namespace.clone(),
            name: asked.claim.name.clone(),
            uid: asked.claim.uid.clone(),
            asked: texts.collect(),
            of_pod: claim_annotations::is_of_pod(&asked.found),
            prepared: self.prepared_shares(&asked.shares, granted),
        };
        // The present specification may name a grant that is gone.
        self.shared.store.remove::<ClaimRecord>(&record.uid)?;
        self.shared.store.write(&record, &spec)?;
        self.changed.notify_one();
        Ok(record.prepared)
    }

    /// Records the requested amounts of a claim's grant.
    pub(in crate::dra) async fn note_amounts(
        &self,
        uid: &str,
        key: &str,
        text: &str,
    ) -> Result<(), PrepareError> {
        let _lock = self.lock.lock().await;
        self.shared.store.update(uid, |record: &mut ClaimRecord| {
            record.asked.insert(key.to_owned(), text.to_owned());
        })?;
        self.changed.notify_one();
        Ok(())
    }

    /// The answer for each share. Only the first share of a group has the group's CDI device: its containers use all of the
    /// group's requests, and would get the device twice.
    fn prepared_shares(&self, shares: &[Share], granted: &[GroupGrant]) -> Vec<Prepared> {
        let known = self.shared.gpus.borrow().clone();
        let uuid = |device: &str| Some(known.as_ref()?.uuid(device)?.to_owned());
        let mut named = BTreeSet::new();
        let prepared = shares.iter().map(|share| {
            let group = granted.iter().find(|granted| granted.requests.contains(&share.request));
            let name = group.map(|granted| qualified::<ClaimRecord>(&granted.device.name));
            Prepared {
                request: share.request.clone(),
                pool: self.shared.node.clone(),
                device: share.device.clone(),
                share_id: share.share_id.clone(),
                cdi: name.into_iter().filter(|name| named.insert(name.clone())).collect(),
                uuid: uuid(&share.device).unwrap_or_default(),
                key: group.and_then(|granted| granted.key.clone()),
                is_unused: group.is_none(),
            }
        });
        prepared.collect()
    }
}
