//! Commands that change values of any type, strings, numbers and booleans.

use std::collections::BTreeMap;

use super::common::{
    NO_DOCUMENT, at_most, check_depth, check_room, no_value_or, path_at, places_inside_out, reply_counts,
    wrong_type,
};
use crate::ctx::Expiry;
use crate::edit::Editor;
use crate::error::{self, CommandError};
use crate::reply::Protocol;
use crate::steps::Work;
use crate::value::json::path::Selector;
use crate::value::json::{
    Change, Edit, Layout, Member, Node, Object, Path, Place, parse, printed, prune, select,
};
use crate::value::{Json, Str};
use crate::{Args, Ctx, Value};

const NOT_AT_ROOT: CommandError = CommandError::new("ERR new objects must be created at the root");

/// When a value is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    /// Where there is none.
    Absent,
    /// Where there is one.
    Present,
}

/// What setting a path of a document means.
enum Plan {
    /// These values are replaced.
    Replace(Vec<Place>),
    /// The object there gets a member of this name.
    Add(Place, Box<str>),
    /// Nothing can be set, or is to be.
    Nothing,
}

fn plan(json: &Json, path: &Path, condition: Condition, work: &Work) -> Result<Plan, CommandError> {
    let places = select(&path.segments, json.root(), work)?.places();
    if !places.is_empty() {
        return Ok(if condition == Condition::Absent { Plan::Nothing } else { Plan::Replace(places) });
    }
    if condition == Condition::Present {
        return Ok(Plan::Nothing);
    }
    let Some((last, parents)) = path.segments.split_last().filter(|_| path.is_static()) else {
        return Err(CommandError::new("ERR wrong static path"));
    };
    let [Selector::Name(name)] = &*last.selectors else {
        return Err(CommandError::new("ERR array index out of range"));
    };
    let parents = select(parents, json.root(), work)?;
    Ok(match &*parents.found {
        [parent] if matches!(parent.node, Node::Object(_)) => Plan::Add(parents.place(*parent), name.clone()),
        _ => Plan::Nothing,
    })
}

/// Checks that the values of a plan may be set.
fn check(json: &Json, plan: &Plan, value: &Node, work: &Work) -> Result<(), CommandError> {
    let depth = value.depth();
    match plan {
        Plan::Replace(places) => {
            places.iter().try_for_each(|place| check_depth(place.len() + depth))?;
            check_room(json.bytes(), value.heap(), places.len(), work)
        }
        Plan::Add(place, _) => {
            check_depth(place.len() + 1 + depth)?;
            check_room(json.bytes(), value.heap(), 1, work)
        }
        Plan::Nothing => Ok(()),
    }
}

/// Adds a member to the object at a place.
fn add(json: &mut Editor<'_, Json>, place: Place, members: Vec<Member>) {
    let end = json.node(&place).map_or(0, Node::len);
    json.apply(Edit { place, change: Change::Insert(vec![(end, members)]) });
}

/// Sets the value at a path; whether it was set.
fn set_value(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    path: &Path,
    value: Node,
    condition: Condition,
) -> Result<bool, CommandError> {
    let work = ctx.work;
    let exists = ctx.peek::<Json>(key)?.is_some();
    if path.is_root() || !exists {
        let wanted = if exists { Condition::Present } else { Condition::Absent };
        if condition != Condition::Always && condition != wanted {
            return Ok(false);
        }
        if !path.is_root() {
            return Err(NOT_AT_ROOT);
        }
        check_room(0, value.heap(), 1, work)?;
        ctx.put(key, Value::Json(Json::new(value)), Expiry::Keep);
        return Ok(true);
    }
    let Some(mut json) = ctx.edit(key).existing::<Json>()? else { return Ok(false) };
    let plan = plan(&json, path, condition, work)?;
    check(&json, &plan, &value, work)?;
    match plan {
        Plan::Nothing => return Ok(false),
        Plan::Add(place, name) => add(&mut json, place, vec![(name, value)]),
        Plan::Replace(places) => {
            // What is within another value goes with it.
            for place in work.over(prune(places)) {
                json.apply(Edit { place, change: Change::Replace(value.clone()) });
            }
        }
    }
    Ok(true)
}

pub fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let path = Path::parse(args[2])?;
    let condition = match args.rest(4) {
        [] => Condition::Always,
        [word] if word.eq_ignore_ascii_case(b"NX") => Condition::Absent,
        [word] if word.eq_ignore_ascii_case(b"XX") => Condition::Present,
        _ => return Err(error::SYNTAX),
    };
    let value = parse(args[3], ctx.work)?;
    match set_value(ctx, args[1], &path, value, condition)? {
        true => ctx.out.ok(),
        false => ctx.out.null(),
    }
    Ok(())
}

pub fn set_many(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() % 3 != 1 {
        return Err(error::wrong_arity("json.mset"));
    }
    // All is checked against what there is before anything is set.
    let mut triplets = Vec::with_capacity(args.len() / 3);
    for triplet in args.rest(1).chunks_exact(3) {
        let (key, path, value) = (triplet[0], Path::parse(triplet[1])?, parse(triplet[2], ctx.work)?);
        match ctx.peek::<Json>(key)? {
            None if !path.is_root() => return Err(NOT_AT_ROOT),
            Some(json) if !path.is_root() => {
                check(json, &plan(json, &path, Condition::Always, ctx.work)?, &value, ctx.work)?;
            }
            _ => {}
        }
        triplets.push((key, path, value));
    }
    for (key, path, value) in triplets {
        // As in RedisJSON a path that an earlier triplet of the call has taken away is left out.
        let _ = set_value(ctx, key, &path, value, Condition::Always);
    }
    ctx.out.ok();
    Ok(())
}

pub fn merge(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let path = Path::parse(args[2])?;
    let (key, work) = (args[1], ctx.work);
    let patch = parse(args[3], work)?;
    if ctx.peek::<Json>(key)?.is_none() {
        set_value(ctx, key, &path, patch, Condition::Always)?;
        ctx.out.ok();
        return Ok(());
    }
    let Some(mut json) = ctx.edit(key).existing::<Json>()? else { return Err(NO_DOCUMENT) };
    let plan = plan(&json, &path, Condition::Always, work)?;
    check(&json, &plan, &patch, work)?;
    let merged = match plan {
        Plan::Nothing => false,
        Plan::Add(place, name) => {
            add(&mut json, place, vec![(name, patch)]);
            true
        }
        Plan::Replace(mut places) => {
            // Those within others first: merging moves nothing that is around a value.
            places.sort_unstable_by(|one, other| other.cmp(one));
            for mut place in work.over(places) {
                merge_at(&mut json, &mut place, patch.clone(), work)?;
            }
            true
        }
    };
    drop(json);
    if merged {
        ctx.out.ok()
    } else {
        ctx.out.null()
    }
    Ok(())
}

/// Merges a value into the one at a place: RFC 7396.
fn merge_at(
    json: &mut Editor<'_, Json>,
    place: &mut Place,
    patch: Node,
    work: &Work,
) -> Result<(), CommandError> {
    let is_object = matches!(json.node(place), Some(Node::Object(_)));
    let members = match patch {
        Node::Object(object) if is_object => object.into_members(),
        value => {
            json.apply(Edit { place: place.clone(), change: Change::Replace(without_nulls(value)) });
            return Ok(());
        }
    };
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for (name, value) in members {
        if !work.step(1) {
            return Err(crate::steps::CANCELLED);
        }
        let Some(Node::Object(held)) = json.node(place) else { break };
        match (held.find(&name), value) {
            (Some(at), Node::Null) => gone.push(at),
            (None, Node::Null) => {}
            (Some(at), value) => {
                place.push(at);
                merge_at(json, place, value, work)?;
                place.pop();
            }
            (None, value) => new.push((name, without_nulls(value))),
        }
    }
    if !gone.is_empty() {
        json.apply(Edit { place: place.clone(), change: Change::Remove(runs(gone)) });
    }
    if !new.is_empty() {
        add(json, place.clone(), new);
    }
    Ok(())
}

/// A patch as it is where there is nothing to merge it with.
fn without_nulls(patch: Node) -> Node {
    let Node::Object(object) = patch else { return patch };
    let mut kept = Box::<Object>::default();
    for (name, value) in object.into_members() {
        if value != Node::Null {
            kept.set(name, without_nulls(value));
        }
    }
    Node::Object(kept)
}

/// Positions as runs of neighbours.
fn runs(mut positions: Vec<usize>) -> Vec<(usize, usize)> {
    positions.sort_unstable();
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in positions {
        match runs.last_mut() {
            Some((from, count)) if *from + *count == at => *count += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

pub fn delete(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    at_most(args, 3)?;
    let path = path_at(args, 2)?;
    let (key, work) = (args[1], ctx.work);
    if path.is_root() {
        let exists = ctx.peek::<Json>(key)?.is_some() && ctx.delete(key);
        ctx.out.count(usize::from(exists));
        return Ok(());
    }
    let Some(mut json) = ctx.edit(key).existing::<Json>()? else {
        ctx.out.count(0);
        return Ok(());
    };
    let places = prune(select(&path.segments, json.root(), work)?.places());
    let count = places.len();
    let mut parents: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
    for mut place in places {
        // A path that is not the root's leads to values that have parents.
        let Some(at) = place.pop() else { continue };
        parents.entry(place).or_default().push(at);
    }
    // Those within others first, before their place is another.
    for (place, positions) in work.over(parents.into_iter().rev()) {
        work.step((positions.len() + json.node(&place).map_or(0, Node::len) / 8) as u64);
        json.apply(Edit { place, change: Change::Remove(runs(positions)) });
    }
    let is_empty = json.root().is_container() && json.root().is_empty();
    drop(json);
    if count > 0 && is_empty {
        ctx.delete(key);
    }
    ctx.out.count(count);
    Ok(())
}

pub fn clear(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    at_most(args, 3)?;
    let path = path_at(args, 2)?;
    let work = ctx.work;
    let mut json = ctx.edit(args[1]).existing::<Json>()?.ok_or(NO_DOCUMENT)?;
    let matches = select(&path.segments, json.root(), work)?;
    let is_cleared = |node: &Node| match node {
        Node::Int(number) => *number != 0,
        Node::Float(number) => *number != 0.0,
        node => !node.is_empty(),
    };
    let cleared = matches.found.iter().filter(|found| is_cleared(found.node));
    let places = prune(cleared.map(|found| matches.place(*found)).collect());
    let count = places.len();
    for place in work.over(places) {
        let empty = match json.node(&place) {
            Some(Node::Array(_)) => Node::Array(Vec::new()),
            Some(Node::Object(_)) => Node::Object(Box::default()),
            _ => Node::Int(0),
        };
        json.apply(Edit { place, change: Change::Replace(empty) });
    }
    drop(json);
    ctx.out.count(count);
    Ok(())
}

/// How two numbers become one.
struct Operation {
    of_integers: fn(i64, i64) -> Option<i64>,
    of_floats: fn(f64, f64) -> f64,
}

pub fn increment(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let operation = Operation { of_integers: i64::checked_add, of_floats: |one, other| one + other };
    calculate(ctx, args, &operation)
}

pub fn multiply(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let operation = Operation { of_integers: i64::checked_mul, of_floats: |one, other| one * other };
    calculate(ctx, args, &operation)
}

impl Operation {
    /// The result for a value; none if it is no number.
    fn of(&self, node: &Node, operand: &Node) -> Result<Option<Node>, CommandError> {
        let float = |node: &Node| match node {
            Node::Int(number) => Some(*number as f64),
            Node::Float(number) => Some(*number),
            _ => None,
        };
        if let (Node::Int(one), Node::Int(other)) = (node, operand) {
            let result = (self.of_integers)(*one, *other);
            return result
                .map(|result| Some(Node::Int(result)))
                .ok_or(CommandError::new("ERR numeric overflow"));
        }
        let Some((one, other)) = float(node).zip(float(operand)) else { return Ok(None) };
        match (self.of_floats)(one, other) {
            result if result.is_finite() => Ok(Some(Node::Float(result))),
            _ => Err(CommandError::new("ERR result is not a number")),
        }
    }
}

fn calculate(ctx: &mut Ctx<'_>, args: Args<'_>, operation: &Operation) -> Result<(), CommandError> {
    let path = Path::parse(args[2])?;
    let work = ctx.work;
    let operand = parse(args[3], work)?;
    if !matches!(operand, Node::Int(_) | Node::Float(_)) {
        return Err(CommandError::new("ERR bad input number"));
    }
    let mut json = ctx.edit(args[1]).existing::<Json>()?.ok_or(NO_DOCUMENT)?;
    let matches = select(&path.segments, json.root(), work)?;
    let results = matches.found.iter().map(|found| operation.of(found.node, &operand));
    let results = results.collect::<Result<Vec<Option<Node>>, CommandError>>()?;
    for (place, result) in work.over(matches.places().into_iter().zip(&results)) {
        if let Some(result) = result {
            json.apply(Edit { place, change: Change::Replace(result.clone()) });
        }
    }
    drop(json);
    let out = &mut *ctx.out;
    if out.protocol == Protocol::Resp3 {
        out.array(results.len());
        out.each(work, &results, |out, result| match result {
            Some(Node::Int(number)) => out.integer(*number),
            Some(Node::Float(number)) => out.double(*number),
            _ => out.null(),
        });
    } else if path.is_legacy {
        let last = results.iter().flatten().next_back();
        let last = last.ok_or_else(|| no_value_or(&path, "does not contains a number"))?;
        out.bulk(printed(last).as_bytes());
    } else {
        let all = Node::Array(results.into_iter().map(|result| result.unwrap_or(Node::Null)).collect());
        super::read::text(&all, Layout::default(), out, work);
    }
    Ok(())
}

pub fn toggle(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let path = Path::parse(args[2])?;
    let work = ctx.work;
    let mut json = ctx.edit(args[1]).existing::<Json>()?.ok_or(NO_DOCUMENT)?;
    let matches = select(&path.segments, json.root(), work)?;
    let toggled = |node: &Node| match node {
        Node::Bool(value) => Some(!value),
        _ => None,
    };
    let results: Vec<Option<bool>> = matches.found.iter().map(|found| toggled(found.node)).collect();
    for (place, result) in work.over(matches.places().into_iter().zip(&results)) {
        if let Some(value) = *result {
            json.apply(Edit { place, change: Change::Replace(Node::Bool(value)) });
        }
    }
    drop(json);
    if path.is_legacy {
        let last = results.iter().flatten().next_back();
        let last = last.ok_or_else(|| no_value_or(&path, "not a bool"))?;
        ctx.out.bulk(last.to_string().as_bytes());
        return Ok(());
    }
    let counts: Vec<Option<usize>> = results.into_iter().map(|result| result.map(usize::from)).collect();
    reply_counts(ctx, &path, &counts, "not a bool")
}

pub fn append_string(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    at_most(args, 4)?;
    let work = ctx.work;
    let path = if args.len() == 4 { Path::parse(args[2])? } else { Path::root() };
    let more = match parse(args[args.len() - 1], work)? {
        Node::String(more) => more,
        other => return Err(wrong_type("string", &other)),
    };
    let mut json = ctx.edit(args[1]).existing::<Json>()?.ok_or(NO_DOCUMENT)?;
    let matches = select(&path.segments, json.root(), work)?;
    let mut results = Vec::with_capacity(matches.found.len());
    for found in &matches.found {
        results.push(match found.node {
            Node::String(held) if held.len() + more.len() > Str::MAX_BYTES => {
                return Err(error::STRING_TOO_LONG);
            }
            Node::String(held) => Some(held.len() + more.len()),
            _ => None,
        });
    }
    check_room(json.bytes(), more.len(), results.iter().flatten().count(), work)?;
    for (number, place) in places_inside_out(&path, json.root(), work)? {
        let Some(Node::String(held)) = json.node(&place).filter(|_| results[number].is_some()) else {
            continue;
        };
        if !work.step_bytes(held.len()) {
            break;
        }
        let longer = [&**held, &*more].concat();
        json.apply(Edit { place, change: Change::Replace(Node::String(longer.into())) });
    }
    drop(json);
    reply_counts(ctx, &path, &results, "not a string")
}
