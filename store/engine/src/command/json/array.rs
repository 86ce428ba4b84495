//! Commands that change arrays.

use super::common::{
    NO_DOCUMENT, at_most, check_depth, check_room, no_value_or, path_at, places_inside_out, reply_counts,
};
use crate::edit::Editor;
use crate::error::CommandError;
use crate::steps::Work;
use crate::value::Json;
use crate::value::json::{Change, Edit, Layout, Member, Node, Path, Place, Printer, parse};
use crate::{Args, Ctx};

/// The arrays that a path selects, those within others first, each with its number among all that the path selects.
struct Arrays {
    places: Vec<(usize, Place)>,
    /// How many values the path selects.
    count: usize,
}

fn arrays(json: &Json, path: &Path, work: &Work) -> Result<Arrays, CommandError> {
    let mut places = places_inside_out(path, json.root(), work)?;
    let count = places.len();
    places.retain(|(_, place)| matches!(json.node(place), Some(Node::Array(_))));
    Ok(Arrays { places, count })
}

/// The values in the arguments from `at` on, as elements.
fn values(args: Args<'_>, at: usize, work: &Work) -> Result<Vec<Member>, CommandError> {
    args.rest(at).iter().map(|text| Ok((Box::default(), parse(text, work)?))).collect()
}

/// Puts values into arrays, in each where `position` says of its length; replies with the lengths.
fn put(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    path: &Path,
    values: &[Member],
    position: impl Fn(usize) -> Result<usize, CommandError>,
) -> Result<(), CommandError> {
    let work = ctx.work;
    let mut json = ctx.edit(key).existing::<Json>()?.ok_or(NO_DOCUMENT)?;
    let Arrays { places, count } = arrays(&json, path, work)?;
    let depth = values.iter().map(|(_, node)| node.depth()).max().unwrap_or(0);
    let mut positions = Vec::with_capacity(places.len());
    for (_, place) in &places {
        check_depth(place.len() + 1 + depth)?;
        positions.push(position(json.node(place).map_or(0, Node::len))?);
    }
    let bytes = values.iter().map(|(_, node)| size_of::<Node>() + node.heap()).sum();
    check_room(json.bytes(), bytes, places.len(), work)?;
    let mut lens = vec![None; count];
    for ((number, place), at) in work.over(places.into_iter().zip(positions)) {
        let len = json.node(&place).map_or(0, Node::len);
        // As in a string what lies behind is moved.
        work.step_bytes((len - at) * size_of::<Node>());
        lens[number] = Some(len + values.len());
        json.apply(Edit { place, change: Change::Insert(vec![(at, values.to_vec())]) });
    }
    drop(json);
    reply_counts(ctx, path, &lens, "not an array")
}

pub fn append(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let path = Path::parse(args[2])?;
    let values = values(args, 3, ctx.work)?;
    put(ctx, args[1], &path, &values, Ok)
}

pub fn insert(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let path = Path::parse(args[2])?;
    let index = args.integer(3)?;
    let values = values(args, 4, ctx.work)?;
    put(ctx, args[1], &path, &values, |len| {
        let at = if index < 0 { index.saturating_add(len as i64) } else { index };
        let at = usize::try_from(at).ok().filter(|at| *at <= len);
        at.ok_or(CommandError::new("ERR index out of bounds"))
    })
}

/// Removes elements; how many bytes lie behind them counts as work.
fn remove(json: &mut Editor<'_, Json>, place: Place, runs: Vec<(usize, usize)>, work: &Work) {
    let len = json.node(&place).map_or(0, Node::len);
    let behind = runs.first().map_or(0, |(at, count)| len - at - count);
    work.step_bytes(behind * size_of::<Node>());
    json.apply(Edit { place, change: Change::Remove(runs) });
}

/// A position from the end if it is negative; what is outside becomes the first or the last.
fn clamped(index: i64, len: usize) -> usize {
    let at = if index < 0 { index.saturating_add(len as i64).max(0) } else { index };
    usize::try_from(at).unwrap_or(usize::MAX).min(len.saturating_sub(1))
}

pub fn pop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    at_most(args, 4)?;
    let path = path_at(args, 2)?;
    let index = args.get(3).map_or(Ok(-1), |_| args.integer(3))?;
    let (work, limit) = (ctx.work, ctx.out.limit());
    let mut json = ctx.edit(args[1]).existing::<Json>()?.ok_or(NO_DOCUMENT)?;
    let Arrays { places, count } = arrays(&json, &path, work)?;
    if path.is_legacy && places.is_empty() {
        return Err(no_value_or(&path, "not an array"));
    }
    let mut texts = vec![None; count];
    let last = places.iter().map(|(number, _)| *number).max();
    let mut bytes = 0;
    for (number, place) in work.over(places) {
        let Some(Node::Array(elements)) = json.node(&place) else { continue };
        let at = clamped(index, elements.len());
        let Some(element) = elements.get(at) else { continue };
        let mut text = Vec::new();
        Printer::new(&mut text, Layout::default(), limit.saturating_sub(bytes), work).node(element);
        bytes += text.len();
        texts[number] = Some(text);
        remove(&mut json, place, vec![(at, 1)], work);
    }
    drop(json);
    if path.is_legacy {
        ctx.out.optional(last.and_then(|last| texts[last].as_deref()));
        return Ok(());
    }
    ctx.out.array(texts.len());
    ctx.out.each(work, &texts, |out, text| out.optional(text.as_deref()));
    Ok(())
}

pub fn trim(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let path = Path::parse(args[2])?;
    let (start, stop) = (args.integer(3)?, args.integer(4)?);
    let work = ctx.work;
    let mut json = ctx.edit(args[1]).existing::<Json>()?.ok_or(NO_DOCUMENT)?;
    let Arrays { places, count } = arrays(&json, &path, work)?;
    let mut lens = vec![None; count];
    for (number, place) in work.over(places) {
        let len = json.node(&place).map_or(0, Node::len);
        let kept = kept(start, stop, len);
        lens[number] = Some(kept.len());
        let runs: Vec<(usize, usize)> = [(0, kept.start), (kept.end, len - kept.end)]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        if !runs.is_empty() {
            remove(&mut json, place, runs, work);
        }
    }
    drop(json);
    reply_counts(ctx, &path, &lens, "not an array")
}

/// The elements that JSON.ARRTRIM keeps.
fn kept(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let is_behind = usize::try_from(start).is_ok_and(|start| start >= len);
    let (start, end) = (clamped(start, len), clamped(stop, len) + 1);
    if len == 0 || is_behind || start >= end { 0..0 } else { start..end }
}
