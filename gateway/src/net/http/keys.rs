//! `/v1/keys` and `/v1/key/{key}`: what there is, and one value of any type.

use std::num::NonZeroU64;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use resp::Value;
use serde::{Deserialize, Serialize};
use store_engine::value::stream;

use super::extract::{Argv, Ask, argv};
use super::json::{self, Shape, Shown, Text, Word};
use super::problem::Problem;

const BYTES: &str = "application/octet-stream";

/// Elements of a collection that are shown at a time unless the client says otherwise.
const PAGE: u64 = 1000;

/// How often a value is asked for whose key is changed to another type each time in between.
const MOST_TRIES: usize = 8;

#[derive(Serialize)]
struct KeysBody<'a> {
    keys: Shown<'a>,
    cursor: Option<Text<'a>>,
}

/// A page of the keys of a database.
pub async fn list(mut ask: Ask) -> Result<Response, Problem> {
    let cursor = ask.number("cursor")?.unwrap_or(0).to_string();
    let mut scan = argv(&["SCAN", &cursor], &[]);
    for (name, word) in [("match", "MATCH"), ("count", "COUNT"), ("type", "TYPE")] {
        if let Some(value) = ask.query(name) {
            scan.extend(argv(&[word], &[value]));
        }
    }
    let page = ask.value(scan).await?;
    let (cursor, keys) = paged(&page);
    Ok(json::body(&KeysBody { keys: Shown(keys, Shape::Plain), cursor: cursor.map(Text) }))
}

/// The cursor of a SCAN's reply, unless that is its end, and what it has found.
fn paged(page: &Value) -> (Option<&[u8]>, &Value) {
    match page {
        Value::Array(parts) if parts.len() == 2 => {
            (parts[0].text().filter(|cursor| *cursor != b"0"), &parts[1])
        }
        other => (None, other),
    }
}

#[derive(Serialize)]
struct KeyBody<'a> {
    key: Text<'a>,
    #[serde(rename = "type")]
    type_name: Text<'a>,
    ttl_ms: Option<i64>,
    sticky: bool,
    bytes: Shown<'a>,
    length: Shown<'a>,
    value: serde_json::Value,
    cursor: Option<String>,
}

/// The type of documents.
const JSON: &[u8] = b"ReJSON-RL";

fn absent() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "NOTFOUND", "no such key")
}

/// A key's value, its elements from `cursor` on, and what else is known of the key. Read as one transaction.
pub async fn show(mut ask: Ask) -> Result<Response, Problem> {
    let key = ask.segment(3);
    if ask.accepts(BYTES) {
        let value = ask.value(argv(&["GET"], &[&key])).await?;
        let text = value.text().ok_or_else(absent)?.to_vec();
        return Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(BYTES))], text).into_response());
    }
    let (from, count) = (ask.number("cursor")?.unwrap_or(0), ask.number("count")?.unwrap_or(PAGE).max(1));
    let from: u128 = from;
    for _ in 0..MOST_TRIES {
        let kind = ask.value(argv(&["TYPE"], &[&key])).await?;
        let kind = kind.text().unwrap_or_default();
        if kind == b"none" {
            return Err(absent());
        }
        let Some(parts) = read(&mut ask, &key, kind, from, count).await? else { continue };
        let [ttl, sticky, bytes, length, value] = &parts;
        let length = match (kind, value.text()) {
            (JSON, Some(text)) => &Value::Integer(text.len() as i64),
            _ => length,
        };
        let whole = if let Value::Integer(length) = length { *length as u64 } else { 0 };
        let (value, cursor) = elements(kind, value, from, count, whole);
        return Ok(json::body(&KeyBody {
            key: Text(&key),
            type_name: Text(kind),
            ttl_ms: if let Value::Integer(ttl @ 0..) = ttl { Some(*ttl) } else { None },
            sticky: matches!(sticky, Value::Integer(1) | Value::Boolean(true)),
            bytes: Shown(bytes, Shape::Plain),
            length: Shown(length, Shape::Plain),
            value,
            cursor,
        }));
    }
    Err(Problem::new(StatusCode::CONFLICT, "CHANGED", "the type of the key kept changing while it was read"))
}

/// Time to live, mark, bytes, length and elements, if the key is still of this type.
async fn read(
    ask: &mut Ask,
    key: &[u8],
    kind: &[u8],
    from: u128,
    count: u64,
) -> Result<Option<[Value; 5]>, Problem> {
    let first_entry = format!("{}-{}", from >> 64, from as u64);
    let from = position(from);
    let (first, last) = (from.to_string(), from.saturating_add(count - 1).min(i64::MAX as u64).to_string());
    let count = count.to_string();
    let range = |name: &str, more: &[&str]| -> Argv {
        let mut call = argv(&[name], &[key, first.as_bytes(), last.as_bytes()]);
        call.extend(argv(more, &[]));
        call
    };
    let scan = |name: &str| argv(&[name], &[key, first.as_bytes(), b"COUNT", count.as_bytes()]);
    let (length, elements) = match kind {
        b"string" => ("STRLEN", argv(&["GET"], &[key])),
        b"list" => ("LLEN", range("LRANGE", &[])),
        b"hash" => ("HLEN", scan("HSCAN")),
        b"set" => ("SCARD", scan("SSCAN")),
        b"stream" => {
            ("XLEN", argv(&["XRANGE"], &[key, first_entry.as_bytes(), b"+", b"COUNT", count.as_bytes()]))
        }
        // Its length is that of the text.
        JSON => ("TYPE", argv(&["JSON.GET"], &[key])),
        _ => ("ZCARD", range("ZRANGE", &["WITHSCORES"])),
    };
    let mut commands: Vec<Argv> =
        [&["TYPE"][..], &["PTTL"], &["OBJECT", "STICKY"], &["MEMORY", "USAGE"], &[length]]
            .map(|words| argv(words, &[key]))
            .into();
    commands.push(elements);
    let replies = ask.all(commands).await?;
    if replies.first().and_then(Value::text) != Some(kind) {
        return Ok(None);
    }
    Ok(replies.into_iter().skip(1).collect::<Vec<_>>().try_into().ok())
}

/// A cursor as the position of an element; that of a stream's entry is its ID as one number.
fn position(cursor: u128) -> u64 {
    u64::try_from(cursor).unwrap_or(u64::MAX)
}

/// The cursor of the entry behind this one.
fn behind_entry(id: &Value) -> Option<u128> {
    let id = stream::parse(id.text()?, 0)?;
    (u128::from(id.ms) << 64 | u128::from(id.seq?)).checked_add(1)
}

/// Elements as JSON, and where those behind them begin.
fn elements(
    kind: &[u8],
    value: &Value,
    from: u128,
    count: u64,
    length: u64,
) -> (serde_json::Value, Option<String>) {
    let from = position(from);
    let show = |value: &Value| serde_json::to_value(Shown(value, Shape::Plain)).unwrap_or_default();
    let behind = |shown: usize| {
        let next = from.saturating_add(shown as u64);
        (next < length && shown > 0).then(|| next.to_string())
    };
    match (kind, value) {
        (b"hash" | b"set", page) => {
            let (cursor, found) = paged(page);
            let cursor = cursor.map(|cursor| String::from_utf8_lossy(cursor).into_owned());
            match found {
                Value::Array(flat) if kind == b"hash" => {
                    let pairs = flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                    (show(&Value::Map(pairs.collect())), cursor)
                }
                members => (show(members), cursor),
            }
        }
        (b"zset", Value::Array(pairs)) => {
            let scored = pairs.iter().map(|pair| match pair {
                Value::Array(pair) if pair.len() == 2 => {
                    serde_json::json!({ "member": show(&pair[0]), "score": show(&pair[1]) })
                }
                other => show(other),
            });
            (scored.collect(), behind(pairs.len()))
        }
        (b"stream", Value::Array(entries)) => {
            let parts = |entry: &Value| match entry {
                Value::Array(parts) => <[Value; 2]>::try_from(parts.clone()).ok(),
                _ => None,
            };
            let report = entries.iter().filter_map(parts).map(|[id, fields]| {
                // Names may come several times.
                let texts = if let Value::Array(texts) = fields { texts } else { Vec::new() };
                let pairs = texts.chunks_exact(2).map(|pair| show(&Value::Array(pair.to_vec())));
                serde_json::json!({ "id": show(&id), "fields": pairs.collect::<Vec<_>>() })
            });
            let last = entries.last().filter(|_| entries.len() as u64 >= count).and_then(parts);
            let last = last.and_then(|[id, _]| behind_entry(&id));
            (report.collect(), last.map(|cursor| cursor.to_string()))
        }
        (b"list", Value::Array(items)) => (show(value), behind(items.len())),
        _ => (show(value), None),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutBody {
    value: Word,
    ttl_ms: Option<NonZeroU64>,
    #[serde(default)]
    sticky: bool,
}

/// Sets a key to a string.
pub async fn put(mut ask: Ask) -> Result<Response, Problem> {
    let key = ask.segment(3);
    // What the query says counts before what the body says.
    let (ttl_ms, sticky) = (ask.number("ttl_ms")?, ask.yes("sticky")?);
    let body: PutBody = if ask.sends(BYTES) {
        PutBody { value: Word(ask.body.to_vec()), ttl_ms: None, sticky: false }
    } else if ask.sends("application/json") {
        ask.json()?
    } else {
        let detail = format!("a value can be returned as application/json or as {BYTES}");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "REQUEST", detail));
    };
    let mut set = argv(&["SET"], &[&key, &body.value.0]);
    if let Some(ttl_ms) = ttl_ms.or(body.ttl_ms.map(NonZeroU64::get)) {
        set.extend(argv(&["PX", &ttl_ms.to_string()], &[]));
    }
    if sticky || body.sticky {
        set.extend(argv(&["STICK"], &[]));
    }
    ask.value(set).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Deletes a key.
pub async fn delete(mut ask: Ask) -> Result<Response, Problem> {
    let key = ask.segment(3);
    match ask.value(argv(&["DEL"], &[&key])).await? {
        Value::Integer(0) => Err(absent()),
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}
