//! Specifications of ResourceClaims: a file for each claim, with a device for each group of requests that the same containers
//! use. Beside it is a record with the answer to kubelet, which may ask again while the API server is away.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use vcuda_cdi::{Device, edits, place, read};

use super::store::absent_is_false;
use super::{Spec, SpecError, SpecInputs, Store, StoreError};

/// Vendor and class of claims' devices.
const KIND: &str = "vcuda.io/claim";
/// Beginning of the files' names, before the claim's UID.
const PREFIX: &str = "vcuda.io-claim-";
/// Ending of the record's name, which runtimes do not read.
const RECORD: &str = ".record";

/// A device for containers that use the same requests of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimDevice {
    /// Its name, unique on the node.
    pub name: String,
    /// Its GPUs by UUID.
    pub gpus: Vec<String>,
    /// The tenant's directory on the host; `None` for admin access, which has no limits.
    pub limits: Option<PathBuf>,
}

impl ClaimDevice {
    /// Qualified CDI name of the device.
    pub fn qualified(&self) -> String {
        format!("{KIND}={}", self.name)
    }
}

/// A share of a claim in the answer to kubelet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The request.
    pub request: String,
    /// The pool.
    pub pool: String,
    /// The device.
    pub device: String,
    /// ID of the share of the device.
    pub share_id: Option<String>,
    /// Qualified CDI names.
    pub cdi: Vec<String>,
    /// UUID of the GPU.
    pub uuid: String,
    /// Key of the grant; `None` for admin access.
    #[serde(default)]
    pub key: Option<String>,
}

/// A claim that is prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// Namespace of the claim.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Keys of its grants.
    pub keys: Vec<String>,
    /// The requested amounts of each grant by key, as a text to compare. Grants whose amounts are not known are missing.
    #[serde(default)]
    pub asked: BTreeMap<String, String>,
    /// Whether the claim was made for a single pod, whose annotations then apply to it too.
    #[serde(default)]
    pub of_pod: bool,
    /// The answer to kubelet.
    pub prepared: Vec<Prepared>,
}

/// The specification of a claim's devices.
///
/// # Errors
/// An input is missing: see [`SpecError`].
pub fn claim_spec(inputs: &SpecInputs, devices: &[ClaimDevice]) -> Result<Spec, SpecError> {
    let mut written = Vec::new();
    for device in devices {
        written.push(Device {
            name: device.name.clone(),
            container_edits: edits(inputs, &device.gpus, device.limits.as_deref())?,
        });
    }
    Ok(Spec::new(KIND, written))
}

impl Store {
    fn claim_path(&self, uid: &str) -> PathBuf {
        self.directory.join(format!("{PREFIX}{uid}.json"))
    }

    fn claim_record_path(&self, uid: &str) -> PathBuf {
        self.directory.join(format!("{PREFIX}{uid}{RECORD}"))
    }

    /// Writes a claim's specification, then its record, from which on the claim counts as prepared.
    ///
    /// # Errors
    /// See [`StoreError`]; the claim is not prepared then.
    pub fn write_claim(&self, spec: &Spec, record: &ClaimRecord) -> Result<(), StoreError> {
        let placed = serde_json::to_vec(spec)
            .map_err(io::Error::from)
            .and_then(|text| place(&self.claim_path(&record.uid), &text))
            .and_then(|()| place(&self.claim_record_path(&record.uid), &serde_json::to_vec(record)?))
            .and_then(|()| File::open(&self.directory)?.sync_all());
        placed.map_err(|error| self.named(error))
    }

    /// The record of a claim; `None` if the claim is not prepared, or the record has another form.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn claim(&self, uid: &str) -> Result<Option<ClaimRecord>, StoreError> {
        let path = self.claim_record_path(uid);
        if !self.claim_path(uid).is_file() {
            return Ok(None);
        }
        match read(&path) {
            Ok(text) => Ok(text.and_then(|text| serde_json::from_slice(&text).ok())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::Io(path, error)),
        }
    }

    /// Records the requested amounts of a claim's grant. A claim that is no longer prepared is left alone.
    ///
    /// # Errors
    /// See [`StoreError`]; the old record stays.
    pub fn note_claim(&self, uid: &str, key: &str, asked: &str) -> Result<(), StoreError> {
        let Some(mut record) = self.claim(uid)? else {
            return Ok(());
        };
        record.asked.insert(key.to_owned(), asked.to_owned());
        let placed = serde_json::to_vec(&record)
            .map_err(io::Error::from)
            .and_then(|text| place(&self.claim_record_path(uid), &text));
        placed.map_err(|error| self.named(error))
    }

    /// Removes a claim's files, the record first, so that the claim no longer counts as prepared.
    ///
    /// # Errors
    /// See [`StoreError`]; some files may still be there.
    pub fn remove_claim(&self, uid: &str) -> Result<(), StoreError> {
        for path in [self.claim_record_path(uid), self.claim_path(uid)] {
            absent_is_false(fs::remove_file(path)).map_err(|error| self.named(error))?;
        }
        Ok(())
    }

    /// Records of all prepared claims. Records that cannot be read are left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn claim_records(&self) -> Result<Vec<ClaimRecord>, StoreError> {
        let uids = self.claims()?;
        Ok(uids.iter().filter_map(|uid| self.claim(uid).ok().flatten()).collect())
    }

    /// UIDs of all claims that have files.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn claims(&self) -> Result<Vec<String>, StoreError> {
        let mut uids = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(|error| self.named(error))? {
            let name = entry.map_err(|error| self.named(error))?.file_name();
            let of_claim = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let uid =
                of_claim.and_then(|name| name.strip_suffix(".json").or_else(|| name.strip_suffix(RECORD)));
            uids.extend(uid.map(str::to_owned));
        }
        uids.sort();
        uids.dedup();
        Ok(uids)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::inputs;
    use super::*;

    fn record(uid: &str) -> ClaimRecord {
        ClaimRecord {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
            uid: uid.to_owned(),
            keys: vec!["k".to_owned()],
            asked: BTreeMap::new(),
            of_pod: true,
            prepared: vec![Prepared {
                request: "gpu".to_owned(),
                pool: "node".to_owned(),
                device: "gpu-1".to_owned(),
                share_id: None,
                cdi: vec![format!("{KIND}={uid}-gpu")],
                uuid: "GPU-1".to_owned(),
                key: Some("k".to_owned()),
            }],
        }
    }

    #[test]
    fn a_claim_is_prepared_from_its_record_on() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::new(scratch.path());
        assert_eq!(store.claim("u").unwrap(), None);
        let inputs = inputs();
        let device = |name: &str, limits| ClaimDevice {
            name: name.to_owned(),
            gpus: inputs.gpu_nodes.keys().take(1).cloned().collect(),
            limits,
        };
        let devices = [device("u-gpu", Some("/run/vcuda/tenants/g".into())), device("u-see", None)];
        let spec = claim_spec(&inputs, &devices).unwrap();
        for _ in 0..2 {
            store.write_claim(&spec, &record("u")).unwrap();
        }
        assert_eq!(store.claim("u").unwrap(), Some(record("u")));
        assert_eq!(store.claims().unwrap(), ["u"]);
        assert_eq!(store.claim_records().unwrap(), [record("u")]);
        let text = fs::read_to_string(store.claim_path("u")).unwrap();
        assert_eq!(text.matches("/etc/vcuda/limits").count(), 1, "admin access is not limited");
        store.note_claim("u", "k", "2 GiB").unwrap();
        store.note_claim("other", "k", "2 GiB").unwrap();
        assert_eq!(store.claim("u").unwrap().unwrap().asked["k"], "2 GiB");
        fs::write(store.claim_record_path("u"), "{").unwrap();
        assert_eq!(store.claim("u").unwrap(), None);
        assert_eq!(store.claims().unwrap(), ["u"]);
        for _ in 0..2 {
            store.remove_claim("u").unwrap();
        }
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
