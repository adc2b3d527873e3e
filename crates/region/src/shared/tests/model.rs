//! Any sequence of acts on shared objects, against a model.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::primitive::counted::standing_still_after;
use crate::slots::{Slot, Usage};

#[derive(Debug, Clone)]
enum Act {
    Allocate(usize, u64),
    Free(usize),
    Share(usize, u64, u64),
    Join(usize, u64),
    JoinForeign(usize, u64, u64),
    Part(usize, usize),
    Leave(usize),
    StandStill(usize, u64, u64, u32),
}

fn act() -> impl Strategy<Value = Act> {
    let slot = 0..4_usize;
    let name = 0..3_u64;
    prop_oneof![
        2 => (slot.clone(), 0..60_u64).prop_map(|(slot, bytes)| Act::Allocate(slot, bytes)),
        1 => slot.clone().prop_map(Act::Free),
        2 => (slot.clone(), name.clone(), 1..40_u64).prop_map(|(slot, name, bytes)| Act::Share(slot, name, bytes)),
        3 => (slot.clone(), name.clone()).prop_map(|(slot, name)| Act::Join(slot, name)),
        3 => (slot.clone(), name.clone(), 1..40_u64).prop_map(|(slot, name, bytes)| Act::JoinForeign(slot, name, bytes)),
        4 => (slot.clone(), 0..8_usize).prop_map(|(slot, which)| Act::Part(slot, which)),
        1 => slot.clone().prop_map(Act::Leave),
        1 => (slot, name, 1..40_u64, 0..60_u32).prop_map(|(slot, name, bytes, after)| Act::StandStill(slot, name, bytes, after)),
    ]
}

/// Expected count of the tenant: memory of each process, and each object once for as long as any process holds it.
#[derive(Default)]
struct Model {
    own: [u64; 4],
    objects: HashMap<u64, (u64, [u32; 4])>,
}

impl Model {
    fn used(&self) -> u64 {
        self.own.iter().sum::<u64>() + self.objects.values().map(|(bytes, _)| bytes).sum::<u64>()
    }

    fn leave(&mut self, slot: usize) {
        self.own[slot] = 0;
        for (_, holders) in self.objects.values_mut() {
            holders[slot] = 0;
        }
        self.drop_unheld();
    }

    fn drop_unheld(&mut self) {
        self.objects.retain(|_, (_, holders)| holders.iter().any(|count| *count > 0));
    }
}

/// A tenant of four processes, beside its model.
struct Tenant<'u> {
    usage: &'u Usage,
    slots: Vec<Slot<'u>>,
    held: [Vec<(u64, Shared)>; 4],
    model: Model,
}

type Outcome = Result<(), TestCaseError>;

impl<'u> Tenant<'u> {
    fn new(usage: &'u Usage) -> Self {
        Self {
            usage,
            slots: (0..4).map(|n| usage.claim(&dead_process(n)).unwrap()).collect(),
            held: Default::default(),
            model: Model::default(),
        }
    }

    /// Carries out an act, and compares its outcome with the model's.
    fn act(&mut self, act: &Act) -> Outcome {
        match *act {
            Act::Allocate(slot, bytes) => {
                let fits = self.model.used() + bytes <= LIMIT;
                prop_assert_eq!(allocate(&self.slots[slot], bytes), fits);
                self.model.own[slot] += if fits { bytes } else { 0 };
                Ok(())
            }
            Act::Free(slot) => {
                self.slots[slot].release(device(), self.model.own[slot]);
                self.model.own[slot] = 0;
                Ok(())
            }
            Act::Share(slot, name, bytes) => self.share(slot, name, bytes),
            Act::Join(slot, name) => self.join(slot, name),
            Act::JoinForeign(slot, name, bytes) => self.join_foreign(slot, name, bytes),
            Act::Part(slot, which) => {
                self.part(slot, which);
                Ok(())
            }
            Act::Leave(slot) => {
                self.leave(slot);
                Ok(())
            }
            Act::StandStill(slot, name, bytes, after) => self.stand_still(slot, name, bytes, after),
        }
    }

    fn share(&mut self, slot: usize, name: u64, bytes: u64) -> Outcome {
        if let Some((known, holders)) = self.model.objects.get_mut(&name) {
            let shared = self.slots[slot].share(key(name), device(), bytes);
            prop_assert_eq!(shared.as_ref().map(Shared::bytes), (holders[slot] > 0).then_some(*known));
            if let Some(shared) = shared {
                holders[slot] += 1;
                self.held[slot].push((name, shared));
            }
        } else if self.model.own[slot] >= bytes {
            let shared = self.slots[slot].share(key(name), device(), bytes).unwrap();
            self.held[slot].push((name, shared));
            self.model.own[slot] -= bytes;
            let mut holders = [0; 4];
            holders[slot] = 1;
            self.model.objects.insert(name, (bytes, holders));
        }
        Ok(())
    }

    fn join(&mut self, slot: usize, name: u64) -> Outcome {
        let joined = self.slots[slot].join(key(name));
        let known = self.model.objects.get_mut(&name);
        prop_assert_eq!(joined.as_ref().map(Shared::bytes), known.as_ref().map(|(bytes, _)| *bytes));
        if let (Some(joined), Some((_, holders))) = (joined, known) {
            holders[slot] += 1;
            self.held[slot].push((name, joined));
        }
        Ok(())
    }

    fn join_foreign(&mut self, slot: usize, name: u64, bytes: u64) -> Outcome {
        let foreign = self.slots[slot].join_foreign(key(name), device(), bytes, LIMIT);
        if !self.model.objects.contains_key(&name) && self.model.used() + bytes > LIMIT {
            prop_assert!(foreign.is_err());
            return Ok(());
        }
        let (_, holders) = self.model.objects.entry(name).or_insert((bytes, [0; 4]));
        holders[slot] += 1;
        self.held[slot].push((name, foreign.unwrap()));
        Ok(())
    }

    fn part(&mut self, slot: usize, which: usize) {
        if which < self.held[slot].len() {
            let (name, shared) = self.held[slot].swap_remove(which);
            self.slots[slot].part(shared);
            let (_, holders) = self.model.objects.get_mut(&name).unwrap();
            holders[slot] -= 1;
            self.model.drop_unheld();
        }
    }

    /// The process of a slot leaves, and another takes the slot.
    fn leave(&mut self, slot: usize) {
        self.held[slot].clear();
        self.slots.remove(slot).leave();
        self.model.leave(slot);
        let next = dead_process(u32::try_from(slot).unwrap());
        self.slots.insert(slot, self.usage.claim(&next).unwrap());
    }

    /// The process of a slot is stopped in the middle of a join, and then killed: nothing of it is left.
    fn stand_still(&mut self, slot: usize, name: u64, bytes: u64, after: u32) -> Outcome {
        standing_still_after(after, || self.slots[slot].join_foreign(key(name), device(), bytes, LIMIT));
        let used = self.usage.used_bytes(device());
        prop_assert!(used <= LIMIT && used >= self.model.used());
        self.leave(slot);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 400 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_table_of_names(acts in proptest::collection::vec(act(), 0..if cfg!(miri) { 15 } else { 80 })) {
        let usage = Usage::in_memory().unwrap();
        let mut tenant = Tenant::new(&usage);
        for act in acts {
            tenant.act(&act)?;
            prop_assert_eq!(usage.used_bytes(device()), tenant.model.used());
        }
    }
}
