//! Replies, and reports of runs, as messages.

use std::collections::HashMap;

use bytes::Bytes;
use proto::gateway::v1::call::Answer as AnswerShown;
use proto::gateway::v1::reply::Kind;
use proto::gateway::v1::step::Step as StepShown;
use proto::gateway::v1::{
    Attributed, Call, Change, Entry, Error, List, Log, LongReply, Map, Null, Preview, Reply, Rerun, Run,
    Step, Trace, Verbatim,
};
use resp::Value;
use store_engine::Protocol;

use crate::net::eval::field;
use crate::net::report::{Answer, level_word};
use crate::net::request::code_of;
use crate::telemetry::script_trace::{CallStep, Rerun as RerunSeen, RunState, Step as StepState};

/// How deep aggregates are shown as messages. A level is three messages, and a hundred is what clients read.
const DEEPEST: usize = 30;

/// A reply.
pub fn reply(value: Value) -> Reply {
    shown(value, DEEPEST)
}

fn shown(value: Value, depth: usize) -> Reply {
    if depth == 0 && is_aggregate(&value) {
        let mut resp = Vec::new();
        value.write_to(Protocol::Resp3, &mut resp);
        return Reply { kind: Some(Kind::Resp(resp.into())) };
    }
    let below = depth.saturating_sub(1);
    let items =
        |items: Vec<Value>| List { items: items.into_iter().map(|item| shown(item, below)).collect() };
    let entry = |(key, value)| Entry { key: Some(shown(key, below)), value: Some(shown(value, below)) };
    let kind = match value {
        Value::Null | Value::NullArray => Kind::Null(Null {}),
        Value::Bulk(text) => Kind::Bulk(text.into()),
        Value::Integer(number) => Kind::Integer(number),
        Value::Status(text) => Kind::Status(text.into()),
        Value::Array(members) | Value::Push(members) => Kind::Array(items(members)),
        Value::Set(members) => Kind::Set(items(members)),
        Value::Map(pairs) => Kind::Map(Map { entries: pairs.into_iter().map(entry).collect() }),
        Value::Error(text) => Kind::Error(error(&text)),
        Value::Double(number) => Kind::Double(number),
        Value::Boolean(value) => Kind::Boolean(value),
        Value::BigNumber(digits) => Kind::BigNumber(String::from_utf8_lossy(&digits).into_owned()),
        Value::Verbatim { format, text } => {
            let format = String::from_utf8_lossy(&format).into_owned();
            Kind::Verbatim(Verbatim { format, text: text.into() })
        }
        Value::Attribute { attributes, value } => Kind::Attributed(Box::new(Attributed {
            attributes: attributes.into_iter().map(entry).collect(),
            value: Some(Box::new(shown(*value, below))),
        })),
    };
    Reply { kind: Some(kind) }
}

fn is_aggregate(value: &Value) -> bool {
    matches!(
        value,
        Value::Array(_) | Value::Push(_) | Value::Set(_) | Value::Map(_) | Value::Attribute { .. }
    )
}

/// The text of an error with its code word.
pub fn error(text: &[u8]) -> Error {
    let message = String::from_utf8_lossy(text).into_owned();
    Error { code: code_of(&message).to_owned(), message }
}

/// What a run used, if it began.
pub fn run(snapshot: &RunState) -> Option<Run> {
    let ended = snapshot.ended?;
    Some(Run {
        sha: snapshot.name.clone(),
        mode: snapshot.mode.to_owned(),
        outcome: ended.word().to_owned(),
        fuel: snapshot.usage.fuel,
        compile_fuel: snapshot.usage.compile_fuel,
        memory_bytes: snapshot.usage.memory_bytes as u64,
        calls: snapshot.usage.calls,
        reruns: snapshot.reruns.len() as u64,
        microseconds: snapshot.usage.time.as_micros() as u64,
    })
}

/// The same beside an error.
pub fn metadata(run: Run) -> HashMap<String, String> {
    let Run { sha, mode, outcome, fuel, compile_fuel, memory_bytes, calls, reruns, microseconds } = run;
    let numbers = [
        ("fuel", fuel),
        ("compile_fuel", compile_fuel),
        ("memory_bytes", memory_bytes),
        ("calls", calls),
        ("reruns", reruns),
        ("microseconds", microseconds),
    ];
    let numbers = numbers.map(|(name, number)| (name.to_owned(), number.to_string()));
    let words = [("sha", sha), ("mode", mode), ("outcome", outcome)];
    numbers.into_iter().chain(words.map(|(name, word)| (name.to_owned(), word))).collect()
}

/// What a run did. `remote`: the data is on store nodes.
pub fn trace(snapshot: &RunState, remote: bool) -> Trace {
    Trace {
        steps: snapshot.steps.iter().map(|step| self::step(step, remote)).collect(),
        omitted: snapshot.omitted,
        reruns: snapshot.reruns.iter().map(rerun).collect(),
    }
}

fn rerun(rerun: &RerunSeen) -> Rerun {
    let (db, key) = rerun.key.as_ref().map(|(db, key)| (*db as u32, Bytes::copy_from_slice(key))).unzip();
    Rerun { why: rerun.why.to_owned(), db, key }
}

fn step(step: &StepState, remote: bool) -> Step {
    let step = match step {
        StepState::Log { level, text } => {
            StepShown::Log(Log { level: level_word(*level).to_owned(), text: Bytes::copy_from_slice(text) })
        }
        StepState::Call(call) => StepShown::Call(self::call(call, remote)),
    };
    Step { step: Some(step) }
}

fn call(call: &CallStep, remote: bool) -> Call {
    let (key, location) =
        call.key.as_ref().map(|(key, location)| (Bytes::copy_from_slice(key), *location as u32)).unzip();
    let (shard, node) = if remote { (None, location) } else { (location, None) };
    let answer = match Answer::of(call) {
        Answer::Whole(value) => AnswerShown::Reply(reply(value)),
        Answer::Long { kind, length, bytes } => {
            AnswerShown::LongReply(LongReply { kind: kind.to_owned(), length, bytes: bytes as u64 })
        }
        Answer::Collected => AnswerShown::Collected(true),
    };
    Call {
        args: call.args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect(),
        arg_count: call.arg_count as u64,
        db: call.db as u32,
        key,
        shard,
        node,
        at_microseconds: call.at.as_micros() as u64,
        microseconds: call.took.as_micros() as u64,
        answer: Some(answer),
    }
}

/// The keys that a dry run would have changed, from its own reply.
pub fn changes(writes: &Value) -> Vec<Change> {
    let Value::Array(writes) = writes else { return Vec::new() };
    writes
        .iter()
        .map(|change| Change {
            db: number(change, "db").unwrap_or_default() as u32,
            key: bytes(change, "key"),
            before: field(change, "before").and_then(preview),
            after: field(change, "after").and_then(preview),
        })
        .collect()
}

fn preview(report: &Value) -> Option<Preview> {
    if report.is_null() {
        return None;
    }
    let elements = match field(report, "elements") {
        Some(Value::Array(elements)) => elements.as_slice(),
        _ => &[],
    };
    let text = |value: &Value| Bytes::copy_from_slice(value.text().unwrap_or_default());
    Some(Preview {
        r#type: bytes(report, "type")
            .map(|name| String::from_utf8_lossy(&name).into_owned())
            .unwrap_or_default(),
        length: number(report, "length").unwrap_or_default(),
        expire_at_ms: number(report, "expire_at_ms"),
        sticky: matches!(field(report, "sticky"), Some(Value::Boolean(true))),
        elements: elements.iter().map(text).collect(),
    })
}

fn bytes(map: &Value, name: &str) -> Option<Bytes> {
    field(map, name).and_then(Value::text).map(Bytes::copy_from_slice)
}

/// A number of a map of numbers.
pub fn number(map: &Value, name: &str) -> Option<u64> {
    match field(map, name) {
        Some(Value::Integer(number)) => u64::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many messages stand inside each other at most.
    fn depth(reply: &Reply) -> usize {
        let entry = |entry: &Entry| {
            let depths = [&entry.key, &entry.value].map(|reply| reply.as_ref().map_or(0, depth));
            1 + depths.into_iter().max().unwrap_or_default()
        };
        let deepest = match reply.kind.as_ref().expect("a kind") {
            Kind::Array(list) | Kind::Set(list) => 1 + list.items.iter().map(depth).max().unwrap_or_default(),
            Kind::Map(map) => 1 + map.entries.iter().map(entry).max().unwrap_or_default(),
            Kind::Attributed(of) => {
                let value = of.value.as_ref().map_or(0, |value| depth(value));
                1 + of.attributes.iter().map(entry).max().unwrap_or_default().max(value)
            }
            Kind::Null(_) | Kind::Error(_) | Kind::Verbatim(_) => 1,
            _ => 0,
        };
        1 + deepest
    }

    #[test]
    fn no_reply_is_deeper_than_clients_read() {
        for level in [0, 1, DEEPEST, DEEPEST + 1, 200] {
            let nest = |inner: Value, _| Value::Map(vec![(Value::Integer(1), inner)]);
            let value = (0..level).fold(Value::Null, nest);
            let deep = depth(&reply(value));
            // In a trace five more stand around it.
            assert!(deep + 5 <= 100, "{level} levels are {deep} messages");
        }
    }

    #[test]
    fn what_is_deeper_is_told_as_resp() {
        let nested = (0..=DEEPEST).fold(Value::Integer(7), |inner, _| Value::Array(vec![inner]));
        let mut reply = reply(nested);
        for _ in 0..DEEPEST {
            let Some(Kind::Array(List { mut items })) = reply.kind else { panic!("no array") };
            reply = items.remove(0);
        }
        assert_eq!(reply.kind, Some(Kind::Resp(Bytes::from_static(b"*1\r\n:7\r\n"))));
    }
}
