use std::sync::Arc;

use super::*;
use crate::grant::Grant;
use proptest::prelude::*;
use vcuda_quota::Quota;
use vcuda_region::GpuUuid;

/// A disk without fsync, as these tests are not about durability.
#[derive(Debug)]
struct QuickDisk;

impl Disk for QuickDisk {
    fn sync(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

fn grant(number: u64, memory_bytes: u64) -> Arc<Grant> {
    let amounts = Quota::fixed(Some(memory_bytes), 10);
    let gpus = vec![GpuUuid::from_bytes([1; 16])];
    Arc::new(Grant { amounts, ..Grant::example(&format!("key-{number}"), number, gpus) })
}

/// The table of grants after one more change, selected by `what`.
fn changed(grant_table: &Arc<GrantTable>, what: u8) -> Arc<GrantTable> {
    let mut next = GrantTable::clone(grant_table);
    next.revision += 1;
    let oldest = next.grants().next().cloned();
    match (what % 4, oldest) {
        (0, Some(oldest)) => drop(next.remove(&oldest.id)),
        (1, Some(oldest)) => next.put(grant(oldest.number, u64::from(what) + 7)),
        (2, _) => {
            let gpu = GpuUuid::from_bytes([what; 16]);
            if !next.cordoned.remove(&gpu) {
                next.cordoned.insert(gpu);
            }
        }
        _ => next.put(grant(next.last_number + 1, 4096)),
    }
    Arc::new(next)
}

fn opened(directory: &Path) -> Loaded {
    Ledger::open(directory, Box::new(QuickDisk)).unwrap().1
}

/// Writes these changes one by one. Returns the last table of grants and the file's bytes.
fn written(directory: &Path, changes: &[u8]) -> (Arc<GrantTable>, Vec<u8>) {
    let (ledger, _) = Ledger::open(directory, Box::new(QuickDisk)).unwrap();
    let mut grant_table = changed(&Arc::default(), 3);
    ledger.write(&grant_table).unwrap();
    for change in changes {
        grant_table = changed(&grant_table, *change);
        ledger.write(&grant_table).unwrap();
    }
    (grant_table, fs::read(ledger.path()).unwrap())
}

fn table_of_sound(loaded: Loaded) -> Option<GrantTable> {
    match loaded {
        Loaded::Sound(grant_table) => Some(grant_table),
        Loaded::Absent | Loaded::Damaged { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_written_table_is_read(changes in prop::collection::vec(any::<u8>(), 0..30)) {
        let scratch = tempfile::tempdir().unwrap();
        let (grant_table, _) = written(scratch.path(), &changes);
        let found = table_of_sound(opened(scratch.path()));
        prop_assert_eq!(found.as_ref(), Some(grant_table.as_ref()));
    }
}

/// Flips each bit, and cuts at each byte: the result is seen as damaged, or equal.
#[test]
fn no_damage_goes_unseen() {
    let scratch = tempfile::tempdir().unwrap();
    let (last, bytes) = written(scratch.path(), &[3, 1, 2, 0, 3]);
    for at in 0..bytes.len() {
        assert!(table_of(&bytes[..at]).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            if let Ok(grant_table) = table_of(&flipped) {
                assert_eq!(&grant_table, last.as_ref(), "byte {at}, bit {bit}");
            }
        }
    }
}
