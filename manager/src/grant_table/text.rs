//! JSON of a table of grants.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::GrantTable;
use crate::grant::Grant;

#[derive(Serialize, Deserialize)]
struct Whole<G> {
    last_number: u64,
    revision: u64,
    #[serde(default)]
    cordoned: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    suspended: BTreeSet<String>,
    grants: Vec<G>,
}

impl GrantTable {
    /// The table as JSON.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Whole {
            last_number: self.last_number,
            revision: self.revision,
            cordoned: self.cordoned_texts(),
            suspended: self.suspended.clone(),
            grants: self.grants().map(Arc::as_ref).collect::<Vec<&Grant>>(),
        })
    }

    /// Reads a table from JSON.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let text: Whole<Grant> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let mut grant_table = Self {
            last_number: text.last_number,
            revision: text.revision,
            suspended: text.suspended,
            ..Self::default()
        };
        grant_table.set_cordoned(&text.cordoned)?;
        for grant in text.grants {
            if !grant.is_sound() || grant_table.grants.contains_key(&grant.number) {
                return Err(format!("grant {} cannot be", grant.id));
            }
            grant_table.put(Arc::new(grant));
        }
        Ok(grant_table)
    }

    fn cordoned_texts(&self) -> Vec<String> {
        self.cordoned.iter().map(ToString::to_string).collect()
    }

    fn set_cordoned(&mut self, texts: &[String]) -> Result<(), String> {
        let parse = |uuid: &String| uuid.parse().map_err(|_| format!("{uuid:?} is no GPU's UUID"));
        self.cordoned = texts.iter().map(parse).collect::<Result<_, String>>()?;
        Ok(())
    }
}
