//! Watches and caches that are behind, as they may be by the Kubernetes API conventions.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::{ResourceApi, Shared};

impl ResourceApi {
    /// Keeps watches and caches at what there is now.
    pub fn hold_caches(&self) {
        let newest = *self.shared.version.borrow();
        self.shared.cached_version.store(newest, Ordering::SeqCst);
    }

    /// Lets watches and caches show all changes.
    pub fn release_caches(&self) {
        self.shared.cached_version.store(u64::MAX, Ordering::SeqCst);
        self.shared.version.send_modify(|_| ());
    }
}

/// The object at `path`: of any version for a request that asks for such, which is what the cache has.
pub(super) fn read(shared: &Shared, path: &str, query: &BTreeMap<String, String>) -> Option<Value> {
    let objects = shared.objects.lock();
    if query.get("resourceVersion").is_none_or(|version| version != "0") {
        return objects.by_path.get(path).cloned();
    }
    let cached_version = shared.cached_version.load(Ordering::SeqCst);
    let mut changes = objects.history.iter().rev();
    let last = changes.find(|(version, of, ..)| *version <= cached_version && of == path)?;
    (last.2 != "DELETED").then(|| last.3.clone())
}
