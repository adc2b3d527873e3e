use super::*;
use proptest::prelude::*;

fn key(handle: usize) -> Key {
    Key::kernel(handle << 4, 100, 0)
}

#[test]
fn an_unknown_kernel_starts_at_the_mean_of_its_function() {
    let table = Table::new();
    let family = Key::function(0x1000);
    let first = table.predict(Key::kernel(0x1000, 64, 0), family);
    assert_eq!((first.cost_ns, first.samples), (UNKNOWN_NS, 0));
    let mean = table.predict(family, family);
    table.learn(&[Part { index: mean.index, count: 1 }], mean.cost_ns, 3_000_000);
    let other = table.predict(Key::kernel(0x1000, 64_000, 0), family);
    assert_eq!(other.cost_ns, 3_000_000);
    assert_eq!(table.predict(Key::kernel(0x1000, 64, 0), family).cost_ns, UNKNOWN_NS);
}

#[test]
fn one_kernel_is_learnt_from_its_first_segment_and_followed() {
    let table = Table::new();
    let one = table.predict(key(1), key(1));
    table.learn(&[Part { index: one.index, count: 4 }], 4 * one.cost_ns, 4_000_000);
    assert_eq!(table.at(one.index), (1_000_000, 1));
    for _ in 0..40 {
        let now = table.at(one.index).0;
        table.learn(&[Part { index: one.index, count: 4 }], 4 * now, 8_000_000);
    }
    assert!(table.at(one.index).0.abs_diff(2_000_000) < 1_000);
}

#[test]
fn blame_goes_to_the_uncertain() {
    let table = Table::new();
    let known = table.insert(key(1), 100_000, false);
    for _ in 0..8 {
        table.learn(&[Part { index: known.index, count: 1 }], 100_000, 100_000);
    }
    let fresh = table.predict(key(2), key(2));
    let parts = [Part { index: known.index, count: 5 }, Part { index: fresh.index, count: 1 }];
    table.learn(&parts, 520_000, 5_500_000);
    assert!(table.at(known.index).0 < 140_000, "{:?}", table.at(known.index));
    assert!(table.at(fresh.index).0 > 4_000_000, "{:?}", table.at(fresh.index));
}

#[test]
fn forgotten_and_updated_entries() {
    let table = Table::new();
    let graph = table.insert(Key::graph(0x70), 50_000, true);
    assert_eq!(table.at(graph.index), (50_000, 1));
    table.learn(&[Part { index: graph.index, count: 1 }], 50_000, 90_000);
    table.relearn(Key::graph(0x70));
    assert_eq!(table.at(graph.index), (70_000, 0));
    table.forget(Key::graph(0x70));
    assert_eq!(table.find(Key::graph(0x70)), None);
}

proptest! {
    /// For any use of the table, a learnt pair of kernels converges to costs that explain the segments.
    #[test]
    fn two_kernels_converge(a in 1_000_u64..2_000_000, b in 1_000_u64..2_000_000, seed in 0_u32..1000) {
        let table = Table::new();
        let first = table.predict(key(7), key(7));
        let second = table.predict(key(8), key(8));
        let mut turn = seed;
        for _ in 0..400 {
            turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (x, y) = (turn >> 28 & 3, turn >> 25 & 3);
            let parts = [
                Part { index: first.index, count: u16::try_from(x).unwrap() },
                Part { index: second.index, count: u16::try_from(y).unwrap() },
            ];
            let (x, y) = (u64::from(x), u64::from(y));
            let predicted = x * table.at(first.index).0 + y * table.at(second.index).0;
            table.learn(&parts, predicted, x * a + y * b);
        }
        let (got_a, got_b) = (table.at(first.index).0, table.at(second.index).0);
        prop_assert!(got_a.abs_diff(a) <= a / 20 + 1000 && got_b.abs_diff(b) <= b / 20 + 1000, "{got_a} {a} {got_b} {b}");
    }

    /// Keys that collide in a set replace each other, but a found entry always has the right key.
    #[test]
    fn a_found_entry_is_its_own(handles in prop::collection::vec(1_usize..100_000, 1..3000)) {
        let table = Table::new();
        for handle in &handles {
            let p = table.predict(key(*handle), key(*handle));
            table.learn(&[Part { index: p.index, count: 1 }], p.cost_ns, *handle as u64 * 1000);
            prop_assert_eq!(table.find(key(*handle)).map(|found| found.index), Some(p.index));
        }
    }
}
