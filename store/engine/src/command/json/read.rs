//! Commands that read documents.

use super::common::{NO_DOCUMENT, at_most, found, no_value, no_value_or, path_at, reply_from, wrong_type};
use crate::error::{self, CommandError};
use crate::reply::Protocol;
use crate::steps::Work;
use crate::value::json::{Found, Layout, Node, Path, Printer, parse};
use crate::value::{Json, Kind};
use crate::{Args, Ctx, Reply};

/// Replies with a value as text.
pub fn text(node: &Node, layout: Layout<'_>, out: &mut Reply, work: &Work) {
    out.bulk_of(|buf, limit| {
        Printer::new(buf, layout, limit, work).node(node);
    });
}

/// Replies with all values as the text of an array.
fn text_of_all(all: &[Found<'_>], layout: Layout<'_>, out: &mut Reply, work: &Work) {
    out.bulk_of(|buf, limit| {
        list(&mut Printer::new(buf, layout, limit, work), all);
    });
}

fn list(printer: &mut Printer<'_>, all: &[Found<'_>]) -> bool {
    printer.list(b"[]", all.iter(), |printer, found| printer.node(found.node))
}

/// The options of JSON.GET, and where its paths begin.
fn layout(args: Args<'_>) -> Result<(Layout<'_>, Vec<&[u8]>), CommandError> {
    let (mut layout, mut paths) = (Layout::default(), Vec::new());
    let mut cursor = args.cursor(2);
    while !cursor.is_done() {
        if cursor.flag("INDENT") {
            layout.indent = cursor.bytes()?;
        } else if cursor.flag("NEWLINE") {
            layout.newline = cursor.bytes()?;
        } else if cursor.flag("SPACE") {
            layout.space = cursor.bytes()?;
        } else if cursor.flag("NOESCAPE") {
            // Does nothing since RedisJSON 2.
        } else if cursor.flag("FORMAT") {
            return Err(CommandError::new("ERR the FORMAT argument is not supported"));
        } else {
            paths.push(cursor.bytes()?);
        }
    }
    Ok((layout, paths))
}

pub fn get(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (layout, spelled) = layout(args)?;
    let mut paths: Vec<(&[u8], Path)> = Vec::new();
    for path in spelled {
        // A path that is named twice is one member of the reply.
        if !paths.iter().any(|(held, _)| *held == path) {
            paths.push((path, Path::parse(path)?));
        }
    }
    reply_from(ctx, args[1], |root, out, work| {
        let Some(root) = root else {
            out.null();
            return Ok(());
        };
        match &*paths {
            [] => text(root, layout, out, work),
            [(_, path)] => {
                let all = found(path, root, work)?;
                match all.first() {
                    _ if !path.is_legacy => text_of_all(&all, layout, out, work),
                    Some(first) => text(first.node, layout, out, work),
                    None => return Err(no_value(path)),
                }
            }
            several => {
                let is_legacy = several.iter().all(|(_, path)| path.is_legacy);
                let mut members = Vec::with_capacity(several.len());
                for (spelled, path) in several {
                    let all = found(path, root, work)?;
                    if is_legacy && all.is_empty() {
                        return Err(no_value(path));
                    }
                    // It was read as a path.
                    members.push((std::str::from_utf8(spelled).unwrap_or_default(), all));
                }
                out.bulk_of(|buf, limit| {
                    let mut printer = Printer::new(buf, layout, limit, work);
                    printer.list(b"{}", members.iter(), |printer, (name, all)| {
                        printer.name(name)
                            && match (&**all, is_legacy) {
                                ([first, ..], true) => printer.node(first.node),
                                _ => list(printer, all),
                            }
                    });
                });
            }
        }
        Ok(())
    })
}

pub fn get_many(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let path = Path::parse(args[args.len() - 1])?;
    let keys = &args.rest(1)[..args.len() - 2];
    ctx.note_reads(keys);
    let Ctx { partitions, db, now_ms, work, out, .. } = ctx;
    out.array(keys.len());
    for key in keys {
        let json = partitions.peek(*db, key, *now_ms).and_then(|entry| Json::of(&entry.value));
        let all = json.map(|json| found(&path, json.root(), work)).transpose()?;
        match all.as_deref() {
            None => out.null(),
            Some(all) if !path.is_legacy => text_of_all(all, Layout::default(), out, work),
            Some([]) => out.null(),
            Some([first, ..]) => text(first.node, Layout::default(), out, work),
        }
        if out.is_over_limit() {
            break;
        }
    }
    Ok(())
}

pub fn type_of(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    at_most(args, 3)?;
    let path = path_at(args, 2)?;
    reply_from(ctx, args[1], |root, out, work| {
        // RedisJSON puts the reply of RESP3 into one more array.
        if out.protocol == Protocol::Resp3 {
            out.array(1);
        }
        let Some(root) = root else {
            out.null();
            return Ok(());
        };
        let all = found(&path, root, work)?;
        let name = |out: &mut Reply, found: &Found<'_>| out.bulk(found.node.type_name().as_bytes());
        if path.is_legacy {
            match all.first() {
                Some(first) => name(out, first),
                None => out.null(),
            }
            return Ok(());
        }
        out.array(all.len());
        out.each(work, &all, name);
        Ok(())
    })
}

/// How a command replies that looks at values of one type.
struct Look {
    /// Replies; whether the value was of that type.
    reply: fn(&Node, &mut Reply, &Work) -> bool,
    /// The error for a JSONPath where there is no document.
    no_document: fn(&Path) -> CommandError,
    /// Whether a legacy path that selects nothing has null for a reply.
    null_for_none: bool,
    /// The error for a legacy path to a value of another type.
    wrong: fn(&Path, &Node) -> CommandError,
}

fn look(ctx: &mut Ctx<'_>, args: Args<'_>, look: &Look) -> Result<(), CommandError> {
    at_most(args, 3)?;
    let path = path_at(args, 2)?;
    reply_from(ctx, args[1], |root, out, work| {
        let Some(root) = root else {
            if !path.is_legacy {
                return Err((look.no_document)(&path));
            }
            out.null();
            return Ok(());
        };
        let all = found(&path, root, work)?;
        if path.is_legacy {
            return match all.first() {
                Some(first) if (look.reply)(first.node, out, work) => Ok(()),
                Some(first) => Err((look.wrong)(&path, first.node)),
                None if look.null_for_none => {
                    out.null();
                    Ok(())
                }
                None => Err(no_value(&path)),
            };
        }
        out.array(all.len());
        out.each(work, &all, |out, found| {
            if !(look.reply)(found.node, out, work) {
                out.null();
            }
        });
        Ok(())
    })
}

pub fn string_len(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let reply = |node: &Node, out: &mut Reply, _: &Work| match node {
        Node::String(text) => {
            out.count(text.len());
            true
        }
        _ => false,
    };
    let wrong = |_: &Path, node: &Node| wrong_type("string", node);
    look(ctx, args, &Look { reply, no_document: |_| NO_DOCUMENT, null_for_none: false, wrong })
}

pub fn array_len(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let reply = |node: &Node, out: &mut Reply, _: &Work| match node {
        Node::Array(elements) => {
            out.count(elements.len());
            true
        }
        _ => false,
    };
    let wrong = |path: &Path, _: &Node| no_value_or(path, "not an array");
    look(ctx, args, &Look { reply, no_document: |_| NO_DOCUMENT, null_for_none: false, wrong })
}

pub fn object_len(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let reply = |node: &Node, out: &mut Reply, _: &Work| match node {
        Node::Object(object) => {
            out.count(object.len());
            true
        }
        _ => false,
    };
    let no_document = |path: &Path| no_value_or(path, "not an object");
    let wrong = |_: &Path, node: &Node| wrong_type("object", node);
    look(ctx, args, &Look { reply, no_document, null_for_none: true, wrong })
}

pub fn object_keys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let reply = |node: &Node, out: &mut Reply, work: &Work| match node {
        Node::Object(object) => {
            out.array(object.len());
            out.bulks(work, object.iter().map(|(name, _)| name.as_bytes()));
            true
        }
        _ => false,
    };
    let wrong = |path: &Path, _: &Node| no_value_or(path, "not an object");
    look(ctx, args, &Look { reply, no_document: |_| NO_DOCUMENT, null_for_none: true, wrong })
}

pub fn array_index(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    at_most(args, 6)?;
    let path = Path::parse(args[2])?;
    let wanted = parse(args[3], ctx.work)?;
    let bound = |at: usize| args.get(at).map_or(Ok(0), |_| args.integer(at));
    let (start, stop) = (bound(4)?, bound(5)?);
    reply_from(ctx, args[1], |root, out, work| {
        let Some(root) = root else { return Err(CommandError::new("ERR Path does not exist")) };
        let all = found(&path, root, work)?;
        if path.is_legacy {
            return match all.first().map(|found| found.node) {
                Some(Node::Array(elements)) => {
                    out.integer(index_of(&wanted, elements, start, stop, work));
                    Ok(())
                }
                Some(other) => Err(wrong_type("array", other)),
                None => Err(no_value(&path)),
            };
        }
        out.array(all.len());
        out.each(work, &all, |out, found| match found.node {
            Node::Array(elements) => out.integer(index_of(&wanted, elements, start, stop, work)),
            _ => out.null(),
        });
        Ok(())
    })
}

/// The first position of a value from `start` up to `stop`, of which 0 means the end; -1 if there is none.
fn index_of(wanted: &Node, elements: &[Node], start: i64, stop: i64, work: &Work) -> i64 {
    let len = elements.len() as i64;
    let from_end = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let start = from_end(start).min((len - 1).max(0));
    let stop = if stop == 0 { len } else { from_end(stop).min(len) };
    let range = start as usize..stop.max(start) as usize;
    let place = elements.get(range).and_then(|some| some.iter().position(|node| node.equals(wanted, work)));
    place.map_or(-1, |at| at as i64 + start)
}

pub fn resp(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    at_most(args, 3)?;
    let path = path_at(args, 2)?;
    reply_from(ctx, args[1], |root, out, work| {
        let Some(root) = root else {
            out.null();
            return Ok(());
        };
        let all = found(&path, root, work)?;
        if path.is_legacy {
            let first = all.first().ok_or_else(|| no_value(&path))?;
            as_resp(first.node, out, work);
            return Ok(());
        }
        out.array(all.len());
        out.each(work, &all, |out, found| as_resp(found.node, out, work));
        Ok(())
    })
}

/// A value as RESP: behind their bracket the elements of an array, and the names and values of an object.
fn as_resp(node: &Node, out: &mut Reply, work: &Work) {
    match node {
        Node::Null => out.null(),
        Node::Bool(value) => out.status(if *value { "true" } else { "false" }),
        Node::Int(number) => out.integer(*number),
        Node::Float(number) => out.double(*number),
        Node::String(text) => out.bulk(text.as_bytes()),
        Node::Array(elements) => {
            out.array(1 + elements.len());
            out.status("[");
            out.each(work, elements, |out, node| as_resp(node, out, work));
        }
        Node::Object(object) => {
            out.array(1 + 2 * object.len());
            out.status("{");
            out.each(work, object.iter(), |out, (name, node)| {
                out.bulk(name.as_bytes());
                as_resp(node, out, work);
            });
        }
    }
}

pub fn debug_memory(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() > 4 {
        return Err(error::wrong_arity("json.debug|memory"));
    }
    let path = path_at(args, 3)?;
    let (key, work) = (args[2], ctx.work);
    let mut done = Ok(());
    ctx.reply_from::<Json>(key, |json, out| {
        let Some(json) = json else {
            return if path.is_legacy { out.integer(0) } else { out.array(0) };
        };
        let all = match found(&path, json.root(), work) {
            Ok(all) => all,
            Err(error) => return done = Err(error),
        };
        let size = |node: &Node| match std::ptr::eq(node, json.root()) {
            true => json.bytes(),
            false => size_of::<Node>() + node.heap(),
        };
        match all.first() {
            _ if !path.is_legacy => {
                out.array(all.len());
                out.each(work, &all, |out, found| {
                    let bytes = size(found.node);
                    work.step((bytes / size_of::<Node>()) as u64);
                    out.count(bytes);
                });
            }
            Some(first) => out.count(size(first.node)),
            None => done = Err(no_value(&path)),
        }
    })?;
    done
}

pub fn debug_help(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<(), CommandError> {
    ctx.out.array(2);
    ctx.out.status("MEMORY <key> [path] - reports memory usage");
    ctx.out.status("HELP                - this message");
    Ok(())
}
