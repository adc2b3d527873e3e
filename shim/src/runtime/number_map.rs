//! A map whose keys are addresses or handles, for what is looked up at every allocation.
//!
//! The entries lie in one array, each at the first free place from the place that its key is mixed to. A look-up goes
//! from there to the key or to a free place. A removal moves later entries back, so that no free place lies between an
//! entry and the place that its key is mixed to.

use super::by_number::mix;

/// Number of places of the first array.
const FIRST: usize = 8;

/// A map from numbers. It holds no memory until the first entry, and never less again.
#[derive(Debug)]
pub(crate) struct NumberMap<V> {
    /// Their number is a power of two, or 0.
    places: Box<[Option<(u64, V)>]>,
    /// Number of entries for which there is room: a quarter of the places stays free, so that look-ups are short.
    room: usize,
}

/// The place of an entry, until the map is changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(usize);

impl<V> Default for NumberMap<V> {
    fn default() -> Self {
        Self { places: Box::default(), room: 0 }
    }
}

#[expect(clippy::indexing_slicing, reason = "a place is reduced to the length of the array")]
impl<V> NumberMap<V> {
    /// The place that the key is mixed to, in an array that is not empty.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    #[inline]
    fn home(&self, key: u64) -> usize {
        mix(key) as usize & (self.places.len() - 1)
    }

    #[inline]
    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    /// The place of a key, if it is known.
    #[inline(always)]
    fn find(&self, key: u64) -> Option<Place> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = self.home(key);
        while let Some((known, _)) = &self.places[at] {
            if *known == key {
                return Some(Place(at));
            }
            at = self.next(at);
        }
        None
    }

    /// The place and value of a key.
    #[inline(always)]
    pub(crate) fn find_mut(&mut self, key: u64) -> Option<(Place, &mut V)> {
        let Place(at) = self.find(key)?;
        let (_, value) = self.places[at].as_mut()?;
        Some((Place(at), value))
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        let Place(at) = self.find(key)?;
        self.places[at].as_ref().map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.find_mut(key).map(|(_, value)| value)
    }

    /// The values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.places.iter().flatten().map(|(_, value)| value)
    }

    /// Sets the value of a key. Returns the one that it had.
    #[inline(always)]
    pub(crate) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        if self.room == 0 {
            self.grow();
        }
        let mut at = self.home(key);
        while let Some((known, old)) = &mut self.places[at] {
            if *known == key {
                return Some(core::mem::replace(old, value));
            }
            at = self.next(at);
        }
        self.places[at] = Some((key, value));
        self.room -= 1;
        None
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let length = (self.places.len() * 2).max(FIRST);
        let larger = (0..length).map(|_| None).collect();
        let smaller = core::mem::replace(&mut self.places, larger);
        self.room = length / 4 * 3;
        for (key, value) in smaller.into_iter().flatten() {
            self.insert(key, value);
        }
    }

    /// Takes out the value of a key.
    #[inline(always)]
    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let place = self.find(key)?;
        self.take(place).map(|(_, value)| value)
    }

    /// Takes out the entry at a place.
    #[inline(always)]
    pub(crate) fn take(&mut self, Place(free): Place) -> Option<(u64, V)> {
        let taken = self.places[free].take();
        self.room += usize::from(taken.is_some());
        if self.places[self.next(free)].is_some() {
            self.close_up(free);
        }
        taken
    }

    /// Moves entries behind a place that was made free.
    #[inline(never)]
    fn close_up(&mut self, mut free: usize) {
        let mut at = self.next(free);
        while let Some((key, _)) = &self.places[at] {
            // Its way from home to `at` passes the free place, unless that lies before its home.
            let (from_home, from_free) = (at.wrapping_sub(self.home(*key)), at.wrapping_sub(free));
            let last = self.places.len() - 1;
            if from_home & last >= from_free & last {
                self.places.swap(free, at);
                free = at;
            }
            at = self.next(at);
        }
    }

    /// Takes out all entries whose value is `meant`.
    pub(crate) fn take_all(&mut self, meant: impl Fn(&V) -> bool) -> Vec<(u64, V)> {
        let entries = self.places.iter().flatten();
        let keys: Vec<u64> = entries.filter(|(_, value)| meant(value)).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| Some((key, self.remove(key)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn it_holds_what_a_map_of_the_standard_library_holds() {
        let (mut map, mut model) = (NumberMap::default(), HashMap::new());
        let mut random = 1_u64;
        for step in 0..200_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(step | 1);
            // Few keys, so that they meet; a multiple of a page's size, as addresses are.
            let key = (random >> 33) % if step < 100_000 { 60 } else { 5_000 } * 4096;
            match random >> 61 {
                0..=3 => assert_eq!(map.insert(key, step), model.insert(key, step)),
                4..=6 => assert_eq!(map.remove(key), model.remove(&key)),
                _ => assert_eq!(map.get(key), model.get(&key)),
            }
        }
        assert_eq!(map.places.len() / 4 * 3 - map.room, model.len());
        let is_even = |value: &u64| value.is_multiple_of(2);
        let (mut taken, mut expected) = (map.take_all(is_even), Vec::new());
        expected.extend(model.extract_if(|_, value| is_even(value)));
        taken.sort_unstable();
        expected.sort_unstable();
        assert_eq!(taken, expected);
        assert_eq!(map.values().count(), model.len());
        assert!(model.iter().all(|(key, value)| map.get(*key) == Some(value)));
    }

    #[test]
    fn an_empty_map_knows_nothing() {
        let mut map = NumberMap::<u8>::default();
        assert!(map.get(0).is_none() && map.remove(0).is_none());
        map.insert(0, 1);
        assert_eq!(map.get_mut(0).copied(), Some(1));
    }
}
