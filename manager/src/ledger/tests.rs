use std::sync::Arc;

use super::*;
use crate::grant::{Grant, GrantId, Holder};
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
    let key = format!("key-{number}");
    Arc::new(Grant {
        id: GrantId::new(&key, number),
        key,
        number,
        holder: Holder::default(),
        amounts: Quota::fixed(Some(memory_bytes), 10),
        lasting: None,
        owner: None,
        gpus: vec![GpuUuid::from_bytes([1; 16])],
        created_unix_ms: 0,
        generation: 1,
        created_by: format!("r{number}"),
        changed_by: None,
        is_suspendable: false,
        memory_wait_ms: None,
    })
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

/// The same changes in the form of the previous release: all tables of grants, the file's bytes, and each table's end in
/// them.
fn appended(changes: &[u8]) -> (Vec<Arc<GrantTable>>, Vec<u8>, Vec<usize>) {
    let mut grant_tables = vec![changed(&Arc::default(), 3)];
    let mut bytes = checked_file::seal(KIND, 2, &grant_tables[0].to_json().unwrap());
    let mut ends = vec![bytes.len()];
    for change in changes {
        let before = grant_tables.last().unwrap();
        let next = changed(before, *change);
        bytes.extend(appended::seal(&change_json(before, &next)));
        ends.push(bytes.len());
        grant_tables.push(next);
    }
    (grant_tables, bytes, ends)
}

/// A change in the JSON of the previous release.
fn change_json(before: &GrantTable, after: &GrantTable) -> Vec<u8> {
    let number = |grant: &Arc<Grant>| grant.number;
    let is_new = |grant: &&Arc<Grant>| before.by_number(grant.number) != Some(grant);
    let is_gone = |number: &u64| after.by_number(*number).is_none();
    let cordoned: Vec<String> = after.cordoned.iter().map(ToString::to_string).collect();
    let put: Vec<&Grant> = after.grants().filter(is_new).map(Arc::as_ref).collect();
    let removed: Vec<u64> = before.grants().map(number).filter(is_gone).collect();
    let mut change = serde_json::json!({
        "last_number": after.last_number, "revision": after.revision, "put": put, "removed": removed,
    });
    if after.cordoned != before.cordoned {
        change["cordoned"] = cordoned.into();
    }
    serde_json::to_vec(&change).unwrap()
}

fn table_of_sound(loaded: Loaded) -> Option<GrantTable> {
    match loaded {
        Loaded::Sound(grant_table) => Some(grant_table),
        Loaded::Absent | Loaded::Damaged { .. } => None,
    }
}

#[test]
fn the_form_without_changes_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let grant_table = changed(&changed(&Arc::default(), 3), 2);
    let mut old = checked_file::seal(KIND, 1, &grant_table.to_json().unwrap());
    let path = scratch.path().join(NAME);
    fs::write(&path, &old).unwrap();
    assert_eq!(
        table_of_sound(opened(scratch.path())),
        Some(GrantTable::clone(&grant_table))
    );
    // To that version nothing could be appended.
    let next = changed(&grant_table, 3);
    old.extend(appended::seal(&change_json(&grant_table, &next)));
    fs::write(&path, &old).unwrap();
    assert!(matches!(opened(scratch.path()), Loaded::Damaged { .. }));
}

#[test]
fn appended_changes_are_read_and_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    let (grant_tables, bytes, _) = appended(&[3, 3, 1, 2, 0]);
    let path = scratch.path().join(NAME);
    fs::write(&path, &bytes).unwrap();
    let (ledger, loaded) = Ledger::open(scratch.path(), Box::new(QuickDisk)).unwrap();
    let last = grant_tables.last().unwrap();
    assert_eq!(table_of_sound(loaded), Some(GrantTable::clone(last)));
    let next = changed(last, 3);
    ledger.write(&next).unwrap();
    let whole = checked_file::seal(KIND, VERSION, &next.to_json().unwrap());
    assert_eq!(fs::read(&path).unwrap(), whole);
}

/// Cuts a ledger of the previous release at each byte, as a crash in a write may: all finished changes are kept. A cut
/// within the grants before them, which no crash makes, is damage.
#[test]
fn a_torn_end_loses_only_the_unfinished_change() {
    let (grant_tables, bytes, ends) = appended(&[3, 3, 1, 2, 0]);
    for cut in 0..=bytes.len() {
        for zeros in [0, 40] {
            // The file may be longer than its written part.
            let torn = [&bytes[..cut], &vec![0; zeros]].concat();
            let whole = ends.iter().rposition(|end| *end <= cut);
            let found = table_of(&torn).ok();
            assert_eq!(
                found.as_ref(),
                whole.map(|whole| grant_tables[whole].as_ref()),
                "{cut}"
            );
        }
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

    #[test]
    fn appended_changes_make_the_last_table(changes in prop::collection::vec(any::<u8>(), 0..30)) {
        let (grant_tables, bytes, _) = appended(&changes);
        let found = table_of(&bytes).ok();
        prop_assert_eq!(found.as_ref(), grant_tables.last().map(Arc::as_ref));
    }
}

/// Flips each bit: the result is seen as damaged, or equal.
#[test]
fn no_flipped_bit_goes_unseen() {
    let scratch = tempfile::tempdir().unwrap();
    let (last, today) = written(scratch.path(), &[3, 1, 2, 0, 3]);
    let (_, before, _) = appended(&[3, 1, 2, 0, 3]);
    for bytes in [today, before] {
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                if let Ok(grant_table) = table_of(&flipped) {
                    assert_eq!(&grant_table, last.as_ref(), "byte {at}, bit {bit}");
                }
            }
        }
    }
}
