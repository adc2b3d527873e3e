//! Comparison with a simulated GPU whose time slices are known.

use proptest::prelude::*;

use super::*;
use crate::controller::Contexts;

/// A GPU that gives each context a slice of this many bins. The tenant that a switch leads to pays for its bins.
struct Gpu {
    slice: u64,
    switch: u64,
    /// Order of the contexts.
    circle: Vec<usize>,
}

/// A tenant's load: bins of work in a burst, then bins of pause, again and again.
type Habit = Vec<(u64, u64)>;

/// Busy map of a tenant, and the bins that it got, with the switches to it.
#[derive(Debug, Clone, Default)]
struct Seen {
    busy: Vec<bool>,
    got: u64,
}

impl Gpu {
    /// Lets the tenants run for so many bins.
    fn run(&self, habits: &[Habit], bins: usize) -> Vec<Seen> {
        let mut seen = vec![Seen { busy: vec![false; bins], got: 0 }; habits.len()];
        let mut work: Vec<u64> = vec![0; habits.len()];
        let mut next: Vec<(u64, usize)> = vec![(0, 0); habits.len()];
        // Busy since the first slice of the burst.
        let mut from: Vec<Option<usize>> = vec![None; habits.len()];
        let (mut place, mut slice, mut switching) = (0, 0, 0);
        for bin in 0..bins {
            for (one, habit) in habits.iter().enumerate() {
                let (due, step) = next[one];
                if work[one] == 0 && due <= bin as u64 {
                    work[one] = habit[step % habit.len()].0;
                }
            }
            let is_next = |offset: &usize| work[self.circle[(place + offset) % self.circle.len()]] > 0;
            let own = work[self.circle[place]] > 0;
            if switching == 0
                && (!own || slice >= self.slice)
                && let Some(offset) = (1..self.circle.len()).find(is_next)
            {
                place = (place + offset) % self.circle.len();
                (slice, switching) = (0, self.switch);
            } else if slice >= self.slice || !own {
                slice = 0;
            }
            if switching > 0 {
                switching -= 1;
                seen[self.circle[place]].got += 1;
                continue;
            }
            let one = self.circle[place];
            if work[one] == 0 {
                continue;
            }
            let begin = *from[one].get_or_insert(bin);
            work[one] -= 1;
            slice += 1;
            seen[one].got += 1;
            if work[one] == 0 {
                seen[one].busy[begin..=bin].fill(true);
                from[one] = None;
                let (_, step) = next[one];
                next[one] = (bin as u64 + habits[one][step % habits[one].len()].1, step + 1);
            }
        }
        for (seen, begin) in seen.iter_mut().zip(from) {
            seen.busy[begin.unwrap_or(bins)..].fill(true);
        }
        seen
    }
}

/// The busy maps in pieces of so many words.
fn pieces(seen: &[Seen], words: usize) -> Vec<Vec<Busy>> {
    let size = words * WORD_BINS;
    let count = seen[0].busy.len() / size;
    let piece = |one: &Seen, piece: usize| {
        let bins = &one.busy[piece * size..(piece + 1) * size];
        let word =
            |bins: &[bool]| (0..).zip(bins).fold(0, |word, (bin, busy)| word | u64::from(*busy) << bin);
        Busy {
            map: bins.chunks(WORD_BINS).map(word).collect(),
            has_several_processes: true,
            ..Busy::default()
        }
    };
    (0..count).map(|at| seen.iter().map(|one| piece(one, at)).collect()).collect()
}

/// Excess of each tenant's bins over the computed ones (thousandths of its bins).
fn errors(seen: &[Seen]) -> Vec<i64> {
    let mut turns = Turns::default();
    let mut told = vec![0; seen.len()];
    for piece in pieces(seen, 20) {
        for (told, got) in told.iter_mut().zip(turns.pass(&piece)) {
            *told += got.permille;
        }
    }
    let error = |(told, one): (i64, &Seen)| 1000 - told / one.got.max(1).cast_signed();
    told.into_iter().zip(seen).map(error).collect()
}

const WORD_BINS: usize = 48;
/// Slice and switch (bins), together [`SLICE_NS`].
const DEFAULT: (u64, u64) = (209, 15);

#[test]
fn bursts_of_a_few_slices_are_told_to_the_percent() {
    let gpu = Gpu { slice: DEFAULT.0, switch: DEFAULT.1, circle: vec![0, 1] };
    // Equal parts of the time would be 3 to 12 % too much or too little for the first.
    for burst in [150, 320, 500, 790, 830] {
        let seen = gpu.run(&[vec![(burst, 7_000 - burst), (burst + 7, 6_500)], vec![(1 << 40, 0)]], 900_000);
        let found = errors(&seen);
        assert!(found[0].abs() <= 20, "{burst}: {found:?}");
    }
}

#[test]
fn the_order_of_the_circle_is_learnt() {
    let habits: Vec<Habit> = vec![
        vec![(700, 5_100), (830, 3_300)],
        vec![(1_700, 5_000)],
        vec![(900, 1_030), (3_000, 2_000)],
        vec![(4_000, 400)],
    ];
    for circle in [[0, 1, 2, 3], [0, 2, 1, 3], [0, 3, 2, 1]] {
        let gpu = Gpu { slice: DEFAULT.0, switch: DEFAULT.1, circle: circle.to_vec() };
        let found = errors(&gpu.run(&habits, 2_000_000));
        assert!(found.iter().all(|error| error.abs() <= 20), "{circle:?}: {found:?}");
    }
}

/// Two contexts of one tenant, with a slice of work each now and then, beside a tenant that is always busy.
#[test]
fn the_first_and_the_last_slice_of_several_contexts_are_told() {
    let gpu = Gpu { slice: DEFAULT.0, switch: DEFAULT.1, circle: vec![0, 1, 2] };
    let habits: Vec<Habit> = vec![vec![(95, 210)], vec![(95, 210)], vec![(1 << 40, 0)]];
    let seen = gpu.run(&habits, 960_000);
    let mut turns = Turns::default();
    let (mut told, mut guessed) = (0, 0);
    for piece in pieces(&seen, 20) {
        let both = piece[0].map.iter().zip(&piece[1].map).map(|(one, other)| one | other);
        let busy = |map: Vec<u64>, permille| Busy {
            map,
            contexts: Contexts { permille },
            has_several_processes: true,
        };
        let tenants = [busy(both.collect(), 2_000), busy(piece[2].map.clone(), 1_000)];
        told += turns.pass(&tenants)[0].permille;
        guessed += crate::controller::overlaps(&tenants)[0].parts_permille;
    }
    let got = (seen[0].got + seen[1].got) * 1000;
    let error = |told: u64| 1000 - (told * 1000 / got).cast_signed();
    assert!(error(told.cast_unsigned()).abs() <= 30, "{}", error(told.cast_unsigned()));
    assert!(error(guessed) > 150, "{}", error(guessed));
}

#[test]
fn a_tenant_of_several_processes_pays_for_the_switch_to_it() {
    let parts = |has_several_processes| {
        let from_its_slice =
            Busy { map: vec![0, (1 << WORD_BINS) - 1], has_several_processes, ..Busy::default() };
        let always = Busy { map: vec![(1 << WORD_BINS) - 1; 2], ..Busy::default() };
        let found = Turns::default().pass(&[from_its_slice, always]);
        (found[0].permille, found[1].permille)
    };
    let (single, several) = (parts(false), parts(true));
    assert_eq!(several, (single.0 + SWITCH, single.1 - SWITCH));
}

/// Bins `from..until` of a word.
fn bins(from: u32, until: u32) -> u64 {
    (1 << until) - (1 << from)
}

/// A tenant that became busy had the first slice. If the first slice was only concluded from the circle, nothing is known of
/// several contexts: then the time is divided by their number.
#[test]
fn only_a_tenant_that_became_busy_surely_had_the_first_slice() {
    let parts = |maps: [u64; 3]| {
        let contexts = [2_000, 1_000, 1_000];
        let tenants: Vec<Busy> = maps
            .iter()
            .zip(contexts)
            .map(|(map, permille)| Busy {
                map: vec![*map],
                contexts: Contexts { permille },
                has_several_processes: false,
            })
            .collect();
        let found = Turns::default().pass(&tenants);
        [found[0].permille, found[1].permille]
    };
    // In bins 10 to 30 the first two tenants are busy, in the last 18 bins all three.
    let (later, always) = (bins(30, 48), bins(0, 48));
    let came = parts([bins(10, 48), always, later]);
    assert_eq!(came, [20_000 + 9_000, 10_000 + 4_500]);
    // In the first 10 bins, the third had the last slice, and so all of the unfinished round.
    let concluded = parts([always, always, bins(0, 10) | later]);
    assert_eq!(concluded, [13_333 + 9_000, 6_666 + 4_500]);
}

#[test]
fn the_circle_learns_nothing_against_a_tenant_that_became_busy() {
    let learnt = |has_come, last, rest| {
        let mut turns =
            Turns { epoch: Epoch { busy: 0b111, first: Some(0), has_come, bins: 0 }, circle: vec![0, 1, 2] };
        turns.learn(last, rest, SLICE);
        (turns.epoch.first, turns.circle)
    };
    let unchanged = (Some(0), vec![0, 1, 2]);
    // Tenant 1 stopped within the first slice, up to its end.
    for rest in [0, 1, SLICE] {
        assert_eq!(learnt(true, 1, rest), unchanged);
        assert_eq!(learnt(false, 1, rest), (Some(1), vec![1, 0, 2]));
    }
    // Tenant 0, which had the first slice, stopped within the third.
    assert_eq!(learnt(true, 0, 3 * SLICE), unchanged);
    assert_eq!(learnt(false, 0, 3 * SLICE), (Some(0), vec![1, 2, 0]));
    // The order of the others is learnt in either case.
    for has_come in [true, false] {
        assert_eq!(learnt(has_come, 1, 2 * SLICE + 1), (Some(0), vec![0, 2, 1]));
        assert_eq!(learnt(has_come, 1, 2 * SLICE), unchanged, "the slice was its own");
    }
}

#[test]
fn it_does_not_matter_where_the_maps_were_cut() {
    let gpu = Gpu { slice: DEFAULT.0, switch: DEFAULT.1, circle: vec![0, 1, 2] };
    let habits: Vec<Habit> = vec![vec![(700, 5_100)], vec![(1_700, 3_000)], vec![(900, 1_000)]];
    let seen = gpu.run(&habits, 96_000);
    let told = |words: usize| {
        let mut turns = Turns::default();
        let mut told = vec![(0, 0); seen.len()];
        for piece in pieces(&seen, words) {
            for (told, got) in told.iter_mut().zip(turns.pass(&piece)) {
                *told = (told.0 + got.bins, told.1 + got.permille);
            }
        }
        told
    };
    for (whole, cut) in told(2_000).into_iter().zip(told(1)) {
        assert_eq!(whole.0, cut.0);
        // Each piece loses fractions of a bin by rounding.
        assert!((whole.1 - cut.1).abs() < 4_000, "{whole:?} {cut:?}");
    }
}

proptest! {
    /// The sum of the parts never exceeds the time in which any tenant was busy, for any maps and any pieces.
    #[test]
    fn parts_do_not_exceed_the_time(
        maps in prop::collection::vec(prop::collection::vec(0_u64..1 << 48, 8), 1..6),
        contexts in prop::collection::vec(1_u64..60_000, 6),
        stretch in 1_usize..60,
    ) {
        let tenants: Vec<Busy> = maps
            .iter()
            .zip(contexts)
            .map(|(map, permille)| Busy {
                map: map.iter().flat_map(|word| vec![*word; stretch]).collect(),
                contexts: Contexts { permille },
                has_several_processes: permille % 2 == 0,
            })
            .collect();
        let mut busy = 0;
        for_each_run(&tenants, |set, bins| if set != 0 { busy += bins });
        let found = Turns::default().pass(&tenants);
        let parts: i64 = found.iter().map(|got| got.permille).sum();
        prop_assert!(parts <= busy.cast_signed() * 1000);
    }
}
