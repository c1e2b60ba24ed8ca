//! The counts of a histogram, by bucket. Most metrics have a few values in a second, and a chunk for one
//! value would take 8 KiB; so buckets are listed while there are few. It knows no values and computes nothing.

use crate::bucket_layout::{CHUNK, CHUNKS};

/// More buckets than this are held in chunks. A list of this length takes 4 KiB.
const FEW: usize = 256;

/// Equal counts are equal in any order they were added: only their number decides how they are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BucketCounts {
    /// `(bucket, count)` in ascending order.
    Few(Vec<(u16, u64)>),
    Many(Box<Chunks>),
}

type Chunks = [Option<Box<[u64; CHUNK]>>; CHUNKS];

impl Default for BucketCounts {
    fn default() -> Self {
        BucketCounts::Few(Vec::new())
    }
}

impl BucketCounts {
    pub(crate) fn add(&mut self, bucket: usize, n: u64) {
        if n == 0 {
            return;
        }
        match self {
            BucketCounts::Many(chunks) => chunk_of(chunks, bucket / CHUNK)[bucket % CHUNK] += n,
            BucketCounts::Few(few) => match few.binary_search_by_key(&bucket, |&(known, _)| usize::from(known)) {
                Ok(at) => few[at].1 += n,
                Err(at) if few.len() < FEW => few.insert(at, (bucket as u16, n)),
                Err(_) => {
                    let mut chunks = Box::new([const { None }; CHUNKS]);
                    for (known, n) in few.iter().map(|&(known, n)| (usize::from(known), n)).chain([(bucket, n)]) {
                        chunk_of(&mut chunks, known / CHUNK)[known % CHUNK] += n;
                    }
                    *self = BucketCounts::Many(chunks);
                }
            },
        }
    }

    /// Adds the counts of the buckets of one chunk; returns their sum.
    pub(crate) fn add_chunk(&mut self, chunk: usize, counts: &[u64]) -> u64 {
        match self {
            BucketCounts::Many(chunks) => {
                let mine = chunk_of(chunks, chunk);
                mine.iter_mut().zip(counts).for_each(|(mine, theirs)| *mine += theirs);
            }
            BucketCounts::Few(_) => {
                counts.iter().enumerate().for_each(|(at, &n)| self.add(chunk * CHUNK + at, n));
            }
        }
        counts.iter().sum()
    }

    pub(crate) fn merge(&mut self, other: &BucketCounts) {
        match other {
            BucketCounts::Few(few) => few.iter().for_each(|&(bucket, n)| self.add(usize::from(bucket), n)),
            BucketCounts::Many(chunks) => {
                for (chunk, counts) in chunks.iter().enumerate() {
                    if let Some(counts) = counts {
                        self.add_chunk(chunk, counts.as_slice());
                    }
                }
            }
        }
    }

    /// `(bucket, count)` of every bucket that is not empty, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (few, chunks) = match self {
            BucketCounts::Few(few) => (few.as_slice(), &[][..]),
            BucketCounts::Many(chunks) => (&[][..], chunks.as_slice()),
        };
        let many = chunks
            .iter()
            .enumerate()
            .filter_map(|(chunk, counts)| Some((chunk, counts.as_ref()?)))
            .flat_map(|(chunk, counts)| counts.iter().enumerate().map(move |(at, &n)| (chunk * CHUNK + at, n)))
            .filter(|(_, n)| *n > 0);
        few.iter().map(|&(bucket, n)| (usize::from(bucket), n)).chain(many)
    }

    /// How many chunks the buckets lie in.
    pub(crate) fn chunks(&self) -> usize {
        match self {
            BucketCounts::Few(few) => {
                few.chunk_by(|(a, _), (b, _)| usize::from(*a) / CHUNK == usize::from(*b) / CHUNK).count()
            }
            BucketCounts::Many(chunks) => chunks.iter().flatten().count(),
        }
    }
}

fn chunk_of(chunks: &mut Chunks, chunk: usize) -> &mut [u64; CHUNK] {
    chunks[chunk].get_or_insert_with(|| Box::new([0; CHUNK]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket_layout::BUCKETS;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn of(added: &[(usize, u64)]) -> BucketCounts {
        let mut counts = BucketCounts::default();
        added.iter().for_each(|&(bucket, n)| counts.add(bucket, n));
        counts
    }

    /// Around the length at which the list becomes chunks, and few chunks or many.
    fn additions() -> impl Strategy<Value = Vec<(usize, u64)>> {
        (prop_oneof![Just(CHUNK), Just(BUCKETS)], 0..2 * FEW)
            .prop_flat_map(|(buckets, n)| prop::collection::vec((0..buckets, 0_u64..5), n))
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_map(first in additions(), second in additions()) {
            let mut model = BTreeMap::new();
            for &(bucket, n) in first.iter().chain(&second).filter(|(_, n)| *n > 0) {
                *model.entry(bucket).or_insert(0) += n;
            }
            let mut merged = of(&first);
            merged.merge(&of(&second));
            prop_assert_eq!(merged.iter().collect::<BTreeMap<_, _>>(), model.clone());
            prop_assert!(merged.iter().is_sorted());
            let mut other_order = of(&second);
            other_order.merge(&of(&first));
            prop_assert_eq!(&merged, &other_order);
            let chunks: std::collections::BTreeSet<_> = model.keys().map(|bucket| bucket / CHUNK).collect();
            prop_assert_eq!(merged.chunks(), chunks.len());
            prop_assert_eq!(matches!(merged, BucketCounts::Few(_)), model.len() <= FEW);
        }

        #[test]
        fn chunk_adds_the_same_as_its_buckets(
            first in additions(),
            added in prop::collection::vec(0_u64..3, CHUNK),
            chunk in 0..CHUNKS,
        ) {
            let (mut whole, mut single) = (of(&first), of(&first));
            let sum = whole.add_chunk(chunk, &added);
            added.iter().enumerate().for_each(|(at, &n)| single.add(chunk * CHUNK + at, n));
            prop_assert_eq!(sum, added.iter().sum::<u64>());
            prop_assert_eq!(whole, single);
        }
    }
}
