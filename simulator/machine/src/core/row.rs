//! Encoding of the core's rows as words.

/// A type encoded in a fixed number of words.
pub(crate) trait Row: Sized {
    /// Appends its words.
    fn put(&self, out: &mut Vec<u64>);
    /// Takes its words from the front.
    fn get(words: &mut std::slice::Iter<'_, u64>) -> Option<Self>;
}

impl Row for u64 {
    fn put(&self, out: &mut Vec<u64>) {
        out.push(*self);
    }
    fn get(words: &mut std::slice::Iter<'_, u64>) -> Option<u64> {
        words.next().copied()
    }
}

impl<const N: usize> Row for [u64; N] {
    fn put(&self, out: &mut Vec<u64>) {
        out.extend_from_slice(self);
    }
    fn get(words: &mut std::slice::Iter<'_, u64>) -> Option<[u64; N]> {
        let (row, rest) = words.as_slice().split_first_chunk::<N>()?;
        *words = rest.iter();
        Some(*row)
    }
}

/// Declares a row whose fields are its words, in order.
macro_rules! row {
    ($(#[$about:meta])* $row:ident { $($(#[$note:meta])* $field:ident: $kind:ty),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(crate) struct $row { $($(#[$note])* pub(crate) $field: $kind),* }

        impl $crate::core::Row for $row {
            fn put(&self, out: &mut Vec<u64>) {
                $($crate::core::Row::put(&self.$field, out);)*
            }
            fn get(words: &mut std::slice::Iter<'_, u64>) -> Option<Self> {
                Some($row { $($field: <$kind as $crate::core::Row>::get(words)?),* })
            }
        }
    };
}
pub(crate) use row;
