//! Files of a prepared claim: what its containers receive, and what is known of it later.

use std::collections::BTreeSet;

use super::{Asked, Granted, PrepareError, Preparer, blocking};
use crate::bind::facts;
use crate::cdi::{ClaimDevice, ClaimRecord, Prepared, claim_spec};
use crate::dra::chosen;
use crate::dra::claim::Share;

impl Preparer {
    pub(super) async fn write(
        &self,
        asked: &Asked<'_>,
        granted: &[Granted],
    ) -> Result<Vec<Prepared>, PrepareError> {
        let known = self.gpus.borrow().clone();
        let minors = known.iter().flat_map(|gpus| gpus.minors());
        let facts = facts(&self.manager, &self.rules, minors.collect::<Vec<_>>().into_iter()).await?;
        let devices: Vec<ClaimDevice> = granted.iter().map(|granted| granted.device.clone()).collect();
        let spec = claim_spec(&facts, &devices)?;
        let texts = granted
            .iter()
            .filter_map(|granted| Some((granted.key.clone()?, granted.text.clone()?)));
        let record = ClaimRecord {
            namespace: asked.claim.namespace.clone(),
            name: asked.claim.name.clone(),
            uid: asked.claim.uid.clone(),
            keys: granted.iter().filter_map(|granted| granted.key.clone()).collect(),
            asked: texts.collect(),
            of_pod: chosen::is_of_pod(&asked.found),
            prepared: self.answer(&asked.shares, granted),
        };
        let (store, written) = (self.store.clone(), record.clone());
        blocking(move || store.write_claim(&spec, &written)).await?;
        self.changed.notify_one();
        Ok(record.prepared)
    }

    /// Notes the amounts that a claim's grant has now by its annotations.
    ///
    /// # Errors
    /// The former ones stay noted.
    pub(in crate::dra) async fn note(&self, uid: &str, key: &str, text: &str) -> Result<(), PrepareError> {
        let _turn = self.turn.lock().await;
        let (store, uid, key, text) = (
            self.store.clone(),
            uid.to_owned(),
            key.to_owned(),
            text.to_owned(),
        );
        blocking(move || store.note_claim(&uid, &key, &text)).await?;
        self.changed.notify_one();
        Ok(())
    }

    /// One answer for each share. The group's CDI device is named once: all its containers use all its requests, and would
    /// receive it twice.
    fn answer(&self, shares: &[Share], granted: &[Granted]) -> Vec<Prepared> {
        let known = self.gpus.borrow().clone();
        let uuid = |device: &str| Some(known.as_ref()?.uuid(device)?.to_owned());
        let mut named = BTreeSet::new();
        let prepared = shares.iter().map(|share| {
            let of = granted
                .iter()
                .find(|granted| granted.requests.contains(&share.request));
            let name = of.map(|granted| granted.device.qualified());
            Prepared {
                request: share.request.clone(),
                pool: self.node.clone(),
                device: share.device.clone(),
                share_id: share.share_id.clone(),
                cdi: name
                    .into_iter()
                    .filter(|name| named.insert(name.clone()))
                    .collect(),
                uuid: uuid(&share.device).unwrap_or_default(),
                key: of.and_then(|granted| granted.key.clone()),
            }
        });
        prepared.collect()
    }
}
