//! LCS: the longest common subsequence of two strings.

use crate::error::{self, CommandError};
use crate::value::Str;
use crate::{Args, Ctx, Work};

/// Most pairs of bytes that are compared: 32 MB are needed then. Redis refuses what it cannot allocate.
const MAX_CELLS: usize = 1 << 28;

/// Pairs of bytes that are compared in a step.
pub const CELLS_PER_STEP: usize = 256;

/// A stretch that both strings have in common: where it starts and ends in each, both inclusive.
struct Match {
    a: (usize, usize),
    b: (usize, usize),
}

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN n] [WITHMATCHLEN]
pub fn run(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    const NOT_STRINGS: CommandError = CommandError::new("ERR The specified keys must contain string values");
    let mut read = |key| match ctx.read::<Str>(key) {
        Ok(text) => Ok(text.map(|text| text.as_bytes().into_owned()).unwrap_or_default()),
        Err(_) => Err(NOT_STRINGS),
    };
    let (a, b) = (read(args[1])?, read(args[2])?);
    let (mut only_len, mut index, mut with_len, mut min_len) = (false, false, false, 0);
    let mut cursor = args.cursor(3);
    while !cursor.is_done() {
        if cursor.flag("IDX") {
            index = true;
        } else if cursor.flag("LEN") {
            only_len = true;
        } else if cursor.flag("WITHMATCHLEN") {
            with_len = true;
        } else if cursor.remaining() > 1 && cursor.flag("MINMATCHLEN") {
            min_len = usize::try_from(cursor.integer()?).unwrap_or(0);
        } else {
            return Err(error::SYNTAX);
        }
    }
    if only_len && index {
        return Err(CommandError::new("ERR If you want both the length and indexes, please just use IDX."));
    }
    let cells = (a.len() + 1).checked_mul(b.len() + 1).filter(|cells| *cells <= MAX_CELLS);
    let cells = cells.ok_or(CommandError::new("ERR String too long for LCS"))?;
    let mut ups = if only_len { Bits(Vec::new()) } else { Bits(vec![0; cells / 64 + 1]) };
    let total = lengths(&a, &b, &mut ups, ctx.work);
    if ctx.work.is_cancelled() {
        return Ok(());
    }
    if only_len {
        ctx.out.count(total);
        return Ok(());
    }
    let (common, matches) = trace(&a, &b, &ups, total);
    if !index {
        ctx.out.bulk(&common);
        return Ok(());
    }
    let shown: Vec<&Match> = matches.iter().filter(|found| found.a.1 - found.a.0 + 1 >= min_len).collect();
    ctx.out.map(2);
    ctx.out.bulk(b"matches");
    ctx.out.array(shown.len());
    for found in shown {
        ctx.out.array(if with_len { 3 } else { 2 });
        for (start, end) in [found.a, found.b] {
            ctx.out.array(2);
            ctx.out.count(start);
            ctx.out.count(end);
        }
        if with_len {
            ctx.out.count(found.a.1 - found.a.0 + 1);
        }
    }
    ctx.out.bulk(b"len");
    ctx.out.count(total);
    Ok(())
}

/// A bit for each pair of prefixes: those of `i` and `j` bytes have number `i * (length of the other string + 1) + j`.
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn get(&self, at: usize) -> bool {
        self.0[at / 64] & (1 << (at % 64)) != 0
    }
}

/// Length of the longest common subsequence. Bits of `ups` are set where that of a shorter prefix of `a` is longer than that of
/// a shorter prefix of `b`. Lengths are remembered of the last prefix of the longer string only.
fn lengths(a: &[u8], b: &[u8], ups: &mut Bits, work: &Work) -> usize {
    let width = b.len() + 1;
    let by_rows = b.len() <= a.len();
    let (long, short) = if by_rows { (a, b) } else { (b, a) };
    let (mut before, mut now) = (vec![0u32; short.len() + 1], vec![0u32; short.len() + 1]);
    for (outer, byte) in (1..).zip(long) {
        if !work.step((short.len() / CELLS_PER_STEP + 1) as u64) {
            break;
        }
        for inner in 1..=short.len() {
            let (out, back) = (before[inner], now[inner - 1]);
            now[inner] = if short[inner - 1] == *byte { before[inner - 1] + 1 } else { out.max(back) };
            if by_rows && out > back {
                ups.set(outer * width + inner);
            } else if !by_rows && back > out {
                ups.set(inner * width + outer);
            }
        }
        std::mem::swap(&mut before, &mut now);
    }
    before[short.len()] as usize
}

/// Walks the prefixes backwards: the subsequence, and its stretches from the last to the first.
fn trace(a: &[u8], b: &[u8], ups: &Bits, total: usize) -> (Vec<u8>, Vec<Match>) {
    let width = b.len() + 1;
    let mut common = vec![0; total];
    let mut left = total;
    let mut matches: Vec<Match> = Vec::new();
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            left -= 1;
            common[left] = a[i - 1];
            match matches.last_mut() {
                Some(last) if last.a.0 == i && last.b.0 == j => (last.a.0, last.b.0) = (i - 1, j - 1),
                _ => matches.push(Match { a: (i - 1, i - 1), b: (j - 1, j - 1) }),
            }
            i -= 1;
            j -= 1;
        } else if ups.get(i * width + j) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    (common, matches)
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn the_manuals_example() {
        let mut bench = Bench::new();
        bench.run("MSET a ohmytext b mynewtext");
        bench.expect("LCS a b", "$6 mytext");
        bench.expect("LCS a b LEN", ":6");
        bench.expect(
            "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
            "*4 $7 matches *1 *3 *2 :4 :7 *2 :5 :8 :4 $3 len :6",
        );
        // Whichever is longer.
        bench.run("MSET long xxohmytextxx short mynewtext");
        bench.expect("LCS long short", "$6 mytext");
        bench.expect("LCS short long", "$6 mytext");
        bench.expect("LCS short long LEN", ":6");
        bench.expect("LCS short nothing IDX", "*4 $7 matches *0 $3 len :0");
    }
}
