//! The grants of the node, as the ledger holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vcuda_region::GpuUuid;

use crate::grant::{Grant, GrantId};

/// All that the manager must not forget. Copied for each change: what is not changed is shared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    /// The highest number that was ever given to a grant.
    pub last_number: u64,
    /// Counts changes.
    pub revision: u64,
    /// GPUs that are kept out of placement.
    pub cordoned: BTreeSet<GpuUuid>,
    /// By number.
    grants: BTreeMap<u64, Arc<Grant>>,
}

impl Book {
    /// In the order of their numbers.
    pub fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.grants.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// The grant of this id.
    #[must_use]
    pub fn by_id(&self, id: &str) -> Option<&Arc<Grant>> {
        let number = number_of(id)?;
        self.grants.get(&number).filter(|grant| grant.id.as_str() == id)
    }

    /// The grant of this number.
    #[must_use]
    pub fn by_number(&self, number: u64) -> Option<&Arc<Grant>> {
        self.grants.get(&number)
    }

    /// The grant of this key.
    #[must_use]
    pub fn by_key(&self, key: &str) -> Option<&Arc<Grant>> {
        self.grants().find(|grant| grant.key == key)
    }

    /// The grant that this request made.
    #[must_use]
    pub fn by_request(&self, request_id: &str) -> Option<&Arc<Grant>> {
        self.grants().find(|grant| grant.created_by == request_id)
    }

    /// Puts a grant in its place, a new one or a changed one.
    pub fn put(&mut self, grant: Arc<Grant>) {
        self.last_number = self.last_number.max(grant.number);
        self.grants.insert(grant.number, grant);
    }

    /// Takes a grant out.
    pub fn remove(&mut self, id: &GrantId) -> Option<Arc<Grant>> {
        let number = self.by_id(id.as_str())?.number;
        self.grants.remove(&number)
    }
}

/// The number in a grant's name.
#[must_use]
pub fn number_of(id: &str) -> Option<u64> {
    let (_, number) = id.rsplit_once('-')?;
    let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_plain)
}

/// A book as JSON has it.
#[derive(Serialize, Deserialize)]
struct Text<G> {
    last_number: u64,
    revision: u64,
    #[serde(default)]
    cordoned: Vec<String>,
    grants: Vec<G>,
}

impl Book {
    /// As JSON.
    ///
    /// # Errors
    /// None that a book could cause.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Text {
            last_number: self.last_number,
            revision: self.revision,
            cordoned: self.cordoned.iter().map(ToString::to_string).collect(),
            grants: self.grants().map(Arc::as_ref).collect::<Vec<&Grant>>(),
        })
    }

    /// From JSON.
    ///
    /// # Errors
    /// A sentence: what in it cannot be.
    pub fn of_json(json: &[u8]) -> Result<Self, String> {
        let text: Text<Grant> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let mut book = Self {
            last_number: text.last_number,
            revision: text.revision,
            ..Self::default()
        };
        for uuid in &text.cordoned {
            book.cordoned
                .insert(uuid.parse().map_err(|_| format!("{uuid:?} is no GPU's UUID"))?);
        }
        for grant in text.grants {
            if !grant.is_sound() || book.grants.contains_key(&grant.number) {
                return Err(format!("grant {} cannot be", grant.id));
            }
            book.put(Arc::new(grant));
        }
        Ok(book)
    }
}
