//! JSON of a table of grants.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vcuda_region::GpuUuid;

use super::GrantTable;
use crate::grant::{Grant, uuids};

#[derive(Serialize, Deserialize)]
pub(crate) struct Whole<G> {
    last_number: u64,
    revision: u64,
    #[serde(default, with = "uuids")]
    cordoned: BTreeSet<GpuUuid>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    suspended: BTreeSet<String>,
    grants: Vec<G>,
}

impl GrantTable {
    /// The table for its file.
    pub(crate) fn text(&self) -> Whole<&Grant> {
        Whole {
            last_number: self.last_number,
            revision: self.revision,
            cordoned: self.cordoned.clone(),
            suspended: self.suspended.clone(),
            grants: self.grants().map(Arc::as_ref).collect(),
        }
    }

    pub(crate) fn from_text(text: Whole<Grant>) -> Result<Self, String> {
        let mut grant_table = Self {
            last_number: text.last_number,
            revision: text.revision,
            cordoned: text.cordoned,
            suspended: text.suspended,
            ..Self::default()
        };
        for grant in text.grants {
            if !grant.is_sound() || grant_table.grants.contains_key(&grant.number) {
                return Err(format!("grant {} cannot be", grant.id));
            }
            grant_table.put(Arc::new(grant));
        }
        Ok(grant_table)
    }
}
