use super::*;
use crate::grant::{Grant, GrantId, Holder};
use proptest::prelude::*;
use vcuda_quota::Quota;
use vcuda_region::GpuUuid;

/// A disk whose every write is at once where it belongs: these tests are not about when.
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
        gpus: vec![GpuUuid::from_bytes([1; 16])],
        created_unix_ms: 0,
        generation: 1,
        created_by: format!("r{number}"),
        changed_by: None,
    })
}

/// The table of grants after one more change: what is done is told by a number.
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

/// Tables of grants one after the other, and the bytes of the file once the last one was written.
fn written(directory: &Path, changes: &[u8]) -> (Vec<Arc<GrantTable>>, Vec<u8>) {
    let (mut ledger, _) = Ledger::open(directory, Box::new(QuickDisk)).unwrap();
    let mut grant_tables = vec![changed(&Arc::default(), 3)];
    ledger.write(&grant_tables[0]).unwrap();
    for change in changes {
        let next = changed(grant_tables.last().unwrap(), *change);
        ledger.write(&next).unwrap();
        grant_tables.push(next);
    }
    (grant_tables, fs::read(ledger.path()).unwrap())
}

fn table_of_sound(loaded: Loaded) -> Option<GrantTable> {
    match loaded {
        Loaded::Sound(grant_table) => Some(grant_table),
        Loaded::Absent | Loaded::Damaged { .. } => None,
    }
}

#[test]
fn a_change_costs_no_more_where_there_are_many_grants() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut ledger, _) = Ledger::open(scratch.path(), Box::new(QuickDisk)).unwrap();
    let mut grant_table = GrantTable::default();
    (1..=1000).for_each(|number| grant_table.put(grant(number, 4096)));
    grant_table.revision = 1;
    let mut grant_table = Arc::new(grant_table);
    ledger.write(&grant_table).unwrap();
    let length = || fs::metadata(scratch.path().join(NAME)).unwrap().len();
    let whole = length();
    grant_table = changed(&grant_table, 3);
    ledger.write(&grant_table).unwrap();
    assert!(length() - whole < 600, "{whole} {}", length());
    // But the file does not grow without end: what is behind the snapshot is at most as much again, and a change.
    for _ in 0..1500 {
        grant_table = changed(&grant_table, 1);
        ledger.write(&grant_table).unwrap();
        assert!(length() < 2 * whole + 1200);
    }
    drop(ledger);
    assert_eq!(
        table_of_sound(opened(scratch.path())),
        Some(GrantTable::clone(&grant_table))
    );
}

#[test]
fn the_form_without_changes_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let grant_table = changed(&changed(&Arc::default(), 3), 2);
    let mut old = checked_file::seal(KIND, 1, &grant_table.to_json().unwrap());
    let path = scratch.path().join(NAME);
    fs::write(&path, &old).unwrap();
    let (mut ledger, loaded) = Ledger::open(scratch.path(), Box::new(QuickDisk)).unwrap();
    assert_eq!(table_of_sound(loaded), Some(GrantTable::clone(&grant_table)));
    // From then on it is of today's form.
    let next = changed(&grant_table, 3);
    ledger.write(&next).unwrap();
    assert!(fs::read(&path).unwrap().starts_with(b"vcuda-ledger 2 "));
    drop(ledger);
    assert_eq!(
        table_of_sound(opened(scratch.path())),
        Some(GrantTable::clone(&next))
    );
    // In the old form nothing could come behind.
    old.extend(record::seal(&next.change_to_json(&grant_table).unwrap()));
    fs::write(&path, &old).unwrap();
    assert!(matches!(opened(scratch.path()), Loaded::Damaged { .. }));
}

#[test]
fn nothing_is_put_behind_a_file_that_is_not_as_it_was_left() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join(NAME);
    let (mut ledger, _) = Ledger::open(scratch.path(), Box::new(QuickDisk)).unwrap();
    let mut grant_table = Arc::default();
    let spoil: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&path).unwrap(),
        &|| fs::write(&path, "").unwrap(),
        &|| {
            let bytes = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
        },
        &|| fs::write(&path, [fs::read(&path).unwrap(), b"more".to_vec()].concat()).unwrap(),
    ];
    for spoil in spoil {
        for _ in 0..3 {
            grant_table = changed(&grant_table, 3);
            ledger.write(&grant_table).unwrap();
        }
        spoil();
        grant_table = changed(&grant_table, 3);
        ledger.write(&grant_table).unwrap();
        let now = table_of(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(&now, grant_table.as_ref());
    }
}

/// Cut at each byte, as a crash in a write may leave it: what was there before is there, and nothing is damaged. Cut in
/// the snapshot, which no crash does, it is damaged.
#[test]
fn a_torn_end_loses_only_what_was_not_finished() {
    let scratch = tempfile::tempdir().unwrap();
    let (grant_tables, bytes) = written(scratch.path(), &[3, 3, 1, 2, 0]);
    let ends: Vec<usize> = (0..grant_tables.len())
        .scan(bytes.iter().position(|byte| *byte == b'+').unwrap(), |end, _| {
            let this = *end;
            if let Ok(Next::Change { rest, .. }) = record::take(&bytes[this..]) {
                *end = bytes.len() - rest.len();
            }
            Some(this)
        })
        .collect();
    assert_eq!(ends.last(), Some(&bytes.len()));
    for cut in 0..=bytes.len() {
        for zeros in [0, 40] {
            // The file may be longer than what of it is on the disk.
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
    fn what_was_written_is_read(changes in prop::collection::vec(any::<u8>(), 0..30)) {
        let scratch = tempfile::tempdir().unwrap();
        let (grant_tables, _) = written(scratch.path(), &changes);
        let found = table_of_sound(opened(scratch.path()));
        prop_assert_eq!(found.as_ref(), grant_tables.last().map(Arc::as_ref));
    }
}

/// Each bit of it: seen as damage, or without any effect.
#[test]
fn no_flipped_bit_goes_unseen() {
    let scratch = tempfile::tempdir().unwrap();
    let (grant_tables, bytes) = written(scratch.path(), &[3, 1, 2, 0, 3]);
    let last = grant_tables.last().unwrap();
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
