//! SORT and SORT_RO.

use std::cmp::Ordering;

use crate::cost::Cost;
use crate::ctx::Expiry;
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, KeyPart, Routing, flags};
use crate::value::{List, Str};
use crate::{Args, Ctx, Value, number};

const SORT: Command = Command {
    arity: Arity::AtLeast(2),
    complexity: "O(N+M*log(M)) where N is the number of elements to sort and M the number of returned elements.",
    ..Command::BASE
};

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "sort",
        keys: &[
            KeyPart::one(1, Access::Read),
            KeyPart::After { word: "STORE", from: 2, access: Access::Write },
        ],
        access: Access::Write,
        flags: flags::DENY_OOM | flags::MOVABLE_KEYS,
        // Nobody finds the keys that these words lead to before the command runs.
        routing: Routing::ByKeyUnless(&["by", "get"]),
        summary: "Sorts the elements of a list, a set, or a sorted set, and may store the result.",
        syntax: "key BY=pattern:pattern#1? LIMIT=offset_count(offset:int count:int)? GET=pattern:pattern#1...+? order(ASC | DESC)? ALPHA!sorting? STORE=destination:key?",
        cost: Cost::Values(4),
        run: |ctx, args| sort(ctx, args, true),
        ..SORT
    },
    Command {
        name: "sort_ro",
        since: "7.0.0",
        flags: flags::MOVABLE_KEYS,
        routing: Routing::ByKeyUnless(&["by", "get"]),
        summary: "Returns the sorted elements of a list, a set, or a sorted set.",
        syntax: "key BY=pattern:pattern#1? LIMIT=offset_count(offset:int count:int)? GET=pattern:pattern#1...+? order(ASC | DESC)? ALPHA!sorting?",
        cost: Cost::Values(4),
        run: |ctx, args| sort(ctx, args, false),
        ..SORT
    },
];

#[derive(Default)]
struct SortOptions<'a> {
    by: Option<&'a [u8]>,
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
    limit: Option<(i64, i64)>,
    descending: bool,
    alpha: bool,
}

impl<'a> SortOptions<'a> {
    fn parse(args: Args<'a>, may_store: bool) -> Result<SortOptions<'a>, CommandError> {
        let mut options = SortOptions::default();
        let mut cursor = args.cursor(2);
        while !cursor.is_done() {
            let follow = cursor.remaining() - 1;
            if cursor.flag("ASC") {
                options.descending = false;
            } else if cursor.flag("DESC") {
                options.descending = true;
            } else if cursor.flag("ALPHA") {
                options.alpha = true;
            } else if follow >= 2 && cursor.flag("LIMIT") {
                options.limit = Some((cursor.integer()?, cursor.integer()?));
            } else if may_store && follow >= 1 && cursor.flag("STORE") {
                options.store = Some(cursor.bytes()?);
            } else if follow >= 1 && cursor.flag("BY") {
                options.by = Some(cursor.bytes()?);
            } else if follow >= 1 && cursor.flag("GET") {
                options.get.push(cursor.bytes()?);
            } else {
                return Err(error::SYNTAX);
            }
        }
        Ok(options)
    }

    /// The positions of `len` elements that LIMIT leaves.
    fn window(&self, len: usize) -> std::ops::Range<usize> {
        let (start, count) = self.limit.unwrap_or((0, -1));
        let start = usize::try_from(start.max(0)).unwrap_or(len).min(len);
        let count = usize::try_from(count).unwrap_or(len).min(len - start);
        start..start + count
    }
}

/// What an element is sorted by.
enum SortKey {
    Number(f64),
    /// None sorts before all texts.
    Text(Option<Vec<u8>>),
}

fn sort(ctx: &mut Ctx<'_>, args: Args<'_>, may_store: bool) -> Result<(), CommandError> {
    let mut options = SortOptions::parse(args, may_store)?;
    let (mut elements, is_set) = match ctx.entry(args[1]).map(|entry| &entry.value) {
        None => (Vec::new(), false),
        Some(value) => (elements_of(value).ok_or(error::WRONG_TYPE)?, matches!(value, Value::Set(_))),
    };
    // A pattern without a star names nothing: the elements stay as they are.
    let mut sorts = options.by.is_none_or(|pattern| pattern.contains(&b'*'));
    if !sorts && is_set {
        // Redis does so only in scripts and for STORE; elsewhere it leaves the order open.
        (sorts, options.alpha, options.by) = (true, true, None);
    }
    if sorts {
        elements = sorted(ctx, elements, &options)?;
    } else if options.descending {
        elements.reverse();
    }
    let window = options.window(elements.len());
    let shown = &elements[window];
    let width = options.get.len().max(1);
    match options.store {
        None => {
            ctx.out.array(shown.len() * width);
            for element in shown {
                if options.get.is_empty() {
                    ctx.out.bulk(element);
                }
                for pattern in &options.get {
                    let found = look_up(ctx, pattern, element);
                    ctx.out.optional(found.as_deref());
                }
            }
        }
        Some(key) => {
            let mut list = List::default();
            for element in shown {
                if options.get.is_empty() {
                    list.push(false, element);
                }
                for pattern in &options.get {
                    list.push(false, &look_up(ctx, pattern, element).unwrap_or_default());
                }
            }
            let len = list.len();
            if len == 0 {
                ctx.delete(key);
            } else {
                ctx.put(key, Value::List(list), Expiry::Clear);
            }
            ctx.out.count(len);
        }
    }
    Ok(())
}

/// What is sorted, if that can be.
fn elements_of(value: &Value) -> Option<Vec<Vec<u8>>> {
    Some(match value {
        Value::List(list) => list.iter_from(0).map(<[u8]>::to_vec).collect(),
        Value::Set(set) => set.iter().map(|member| member.to_vec()).collect(),
        Value::ZSet(zset) => zset.iter_from(0).map(|(member, _)| member.to_vec()).collect(),
        _ => return None,
    })
}

/// The keys that BY and GET of a call lead to beside those it names, if `value` is what it sorts.
pub fn other_keys(args: Args<'_>, value: &Value) -> Vec<Vec<u8>> {
    let (Ok(options), Some(elements)) = (SortOptions::parse(args, true), elements_of(value)) else {
        return Vec::new();
    };
    let patterns: Vec<&[u8]> = options.by.into_iter().chain(options.get).collect();
    let keys = |element: &Vec<u8>| -> Vec<Vec<u8>> {
        patterns.iter().filter_map(|pattern| Some(lead(pattern, element)?.0)).collect()
    };
    elements.iter().flat_map(keys).collect()
}

/// The key that `pattern` leads to from `element`, and the field behind an arrow: the first star stands for the
/// element.
fn lead<'a>(pattern: &'a [u8], element: &[u8]) -> Option<(Vec<u8>, Option<&'a [u8]>)> {
    let star = memchr::memchr(b'*', pattern)?;
    let (prefix, rest) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = rest.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < rest.len());
    let key = [prefix, element, &rest[..arrow.unwrap_or(rest.len())]].concat();
    Some((key, arrow.map(|at| &rest[at + 2..])))
}

fn sorted(
    ctx: &mut Ctx<'_>,
    elements: Vec<Vec<u8>>,
    options: &SortOptions<'_>,
) -> Result<Vec<Vec<u8>>, CommandError> {
    let mut weighted = Vec::with_capacity(elements.len());
    let work = ctx.work;
    for element in work.over(elements) {
        let found = options.by.map(|pattern| look_up(ctx, pattern, &element));
        let weight = match (options.alpha, found) {
            (true, Some(found)) => SortKey::Text(found),
            (true, None) => SortKey::Text(None),
            // An element without a weight weighs nothing.
            (false, Some(None)) => SortKey::Number(0.0),
            (false, Some(Some(text))) => SortKey::Number(weight(&text)?),
            (false, None) => SortKey::Number(weight(&element)?),
        };
        weighted.push((weight, element));
    }
    let by_pattern = options.by.is_some();
    weighted.sort_by(|(a, first), (b, second)| {
        let order = match (a, b) {
            (SortKey::Number(a), SortKey::Number(b)) => {
                a.partial_cmp(b).unwrap_or(Ordering::Equal).then_with(|| first.cmp(second))
            }
            (SortKey::Text(a), SortKey::Text(b)) if by_pattern => a.cmp(b),
            _ => first.cmp(second),
        };
        if options.descending { order.reverse() } else { order }
    });
    Ok(weighted.into_iter().map(|(_, element)| element).collect())
}

/// A number as C's `strtod` reads it from a text that ends with the first zero byte.
fn weight(text: &[u8]) -> Result<f64, CommandError> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    match text {
        b"" => Ok(0.0),
        _ => number::parse_f64(&text[blanks..])
            .ok_or(CommandError::new("ERR One or more scores can't be converted into double")),
    }
}

/// The string that `pattern` leads to from `element`: `#` is the element itself, the first star stands for it,
/// and what follows a later `->` is the field of a hash.
fn look_up(ctx: &mut Ctx<'_>, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let (key, field) = lead(pattern, element)?;
    let now_ms = ctx.now_ms;
    match (&ctx.entry(&key)?.value, field) {
        (Value::Hash(hash), Some(field)) => hash.live(now_ms).get(field).map(<[u8]>::to_vec),
        (Value::String(text), None) => Some(Str::as_bytes(text).into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn numbers_and_texts() {
        let mut bench = Bench::new();
        bench.run("RPUSH l 10 2 1.5 -3");
        bench.expect("SORT l", "*4 $2 -3 $3 1.5 $1 2 $2 10");
        bench.expect("SORT l ALPHA DESC LIMIT 1 2", "*2 $2 10 $3 1.5");
        bench.expect("SORT_RO l LIMIT 9 9", "*0");
        bench.expect("SORT_RO l STORE x", "-ERR syntax error");
        bench.run("RPUSH l x");
        bench.expect("SORT l", "-ERR One or more scores can't be converted into double");
        bench.run("SET s 1");
        bench.expect("SORT s", "-WRONGTYPE Operation against a key holding the wrong kind of value");
    }

    #[test]
    fn patterns_lead_to_other_keys() {
        let mut bench = Bench::new();
        bench.run("SADD s a b c");
        bench.run("MSET w_a 3 w_b 1 w_c 2");
        bench.run("HSET h_a f first");
        bench.expect("SORT s BY w_*", "*3 $1 b $1 c $1 a");
        bench.expect("SORT s BY w_* GET # GET h_*->f LIMIT 1 2", "*4 $1 c $-1 $1 a $5 first");
        bench.expect("SORT s BY nosort", "*3 $1 a $1 b $1 c");
        bench.expect("SORT s BY w_* GET h_*->f STORE r", ":3");
        bench.expect("LRANGE r 0 -1", "*3 $0  $0  $5 first");
        bench.check_roll_back(&["SORT s ALPHA STORE r", "SORT none STORE r"]);
    }
}
