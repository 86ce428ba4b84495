//! LCS: the longest common subsequence of two strings.

use crate::error::{self, CommandError};
use crate::value::Str;
use crate::work::Size;
use crate::{Args, Ctx};

/// Largest table of lengths, in cells; Redis refuses what it cannot allocate.
const MAX_CELLS: usize = 1 << 28;

/// A stretch that both strings have in common: where it starts and ends in each, both inclusive.
struct Match {
    a: (usize, usize),
    b: (usize, usize),
}

/// Steps of a call, if the second string is no longer than the first or than a few thousand bytes: every byte of one is
/// compared with every byte of the other.
pub fn steps(_: Args<'_>, size: Size) -> u64 {
    (size.elements as u64).saturating_mul(size.elements.max(4096) as u64) / 1024
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
    let table = lengths(&a, &b, cells);
    let total = table[cells - 1] as usize;
    if only_len {
        ctx.out.count(total);
        return Ok(());
    }
    let (common, matches) = trace(&a, &b, &table, total);
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

/// Length of the longest common subsequence of every pair of prefixes, row by row.
fn lengths(a: &[u8], b: &[u8], cells: usize) -> Vec<u32> {
    let width = b.len() + 1;
    let mut table = vec![0u32; cells];
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            table[i * width + j] = if a[i - 1] == b[j - 1] {
                table[(i - 1) * width + j - 1] + 1
            } else {
                table[(i - 1) * width + j].max(table[i * width + j - 1])
            };
        }
    }
    table
}

/// Walks the table backwards: the subsequence, and its stretches from the last to the first.
fn trace(a: &[u8], b: &[u8], table: &[u32], total: usize) -> (Vec<u8>, Vec<Match>) {
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
        } else if table[(i - 1) * width + j] > table[i * width + j - 1] {
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
    }
}
