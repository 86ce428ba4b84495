//! What HRANDFIELD, SRANDMEMBER and ZRANDMEMBER have in common: choosing positions by chance.

use std::vec;

use foldhash::fast::RandomState;
use indexmap::IndexSet;

use crate::cost::Size;
use crate::error::CommandError;
use crate::{Args, Ctx, number, random};

/// Most elements that one call picks with repetition: the reply would be as large as the caller likes.
const MOST_REPEATED: usize = 1 << 24;

/// Steps of a call that picks elements of a collection, if their number is its third item.
pub fn steps(args: Args<'_>, size: Size) -> u64 {
    size.steps(most(args, size.elements))
}

/// How many elements of a collection of `len` such a call picks.
pub fn most(args: Args<'_>, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let count = args.get(2).map_or(Some(1), number::parse_i64).unwrap_or(0);
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    // Different ones are found in a table.
    if count < 0 { size.min(MOST_REPEATED) } else { size.min(len).saturating_mul(2) }
}

/// Positions chosen by chance.
#[derive(Clone)]
pub enum Positions {
    /// Each once.
    Distinct(vec::IntoIter<usize>),
    /// Drawn one by one, as often as they come.
    Repeated {
        /// How many are left.
        left: usize,
        /// What they are below.
        below: usize,
        /// The state of the random source.
        seed: u64,
    },
}

impl Positions {
    /// Number of positions that are left.
    pub fn count_left(&self) -> usize {
        match self {
            Positions::Distinct(positions) => positions.len(),
            Positions::Repeated { left, .. } => *left,
        }
    }
}

impl Iterator for Positions {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        match self {
            Positions::Distinct(positions) => positions.next(),
            Positions::Repeated { left, below, seed } => {
                *left = left.checked_sub(1)?;
                Some(random::below(seed, *below))
            }
        }
    }
}

/// Positions below `len` as `count` asks for them: that many different ones, or with repetition if negative.
pub fn positions(ctx: &mut Ctx<'_>, count: i64, len: usize) -> Result<Positions, CommandError> {
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if len == 0 || size == 0 {
        Ok(Positions::Distinct(Vec::new().into_iter()))
    } else if count > 0 {
        Ok(Positions::Distinct(distinct(ctx, size, len).into_iter()))
    } else if size > MOST_REPEATED {
        Err(CommandError::new("ERR value is out of range"))
    } else {
        let seed = *ctx.seed;
        random::skip(ctx.seed, size);
        Ok(Positions::Repeated { left: size, below: len, seed })
    }
}

/// Up to `size` different positions below `len`; in their order if that is all of them.
pub fn distinct(ctx: &mut Ctx<'_>, size: usize, len: usize) -> Vec<usize> {
    if size >= len {
        return (0..len).collect();
    }
    // Floyd's way: one draw per position, however close `size` comes to `len`.
    let mut picked = IndexSet::with_capacity_and_hasher(size, RandomState::default());
    for top in len - size..len {
        let draw = ctx.random_below(top + 1);
        if !picked.insert(draw) {
            picked.insert(top);
        }
    }
    picked.into_iter().collect()
}
