//! What HRANDFIELD, SRANDMEMBER and ZRANDMEMBER have in common: choosing positions by chance.

use foldhash::fast::RandomState;
use indexmap::IndexSet;

use crate::Ctx;
use crate::error::CommandError;

/// Most elements that one call picks with repetition: the reply would be as large as the caller likes.
const MOST_REPEATED: usize = 1 << 24;

/// Positions below `len` as `count` asks for them: that many different ones, or with repetition if negative.
pub fn positions(ctx: &mut Ctx<'_>, count: i64, len: usize) -> Result<Vec<usize>, CommandError> {
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if len == 0 || size == 0 {
        Ok(Vec::new())
    } else if count > 0 {
        Ok(distinct(ctx, size, len))
    } else if size > MOST_REPEATED {
        Err(CommandError::new("ERR value is out of range"))
    } else {
        Ok((0..size).map(|_| ctx.random_below(len)).collect())
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
