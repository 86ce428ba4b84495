//! What is told of a run: what it used, and each step of it if the client asked for a trace.

use resp::Value;
use serde::Serialize;

use super::json::{Shape, Shown, Text};
use crate::net::told::{Answer, level_word};
use crate::net::work::code_of;
use crate::telemetry::script_trace::{Rerun, Seen, Step};

/// What a run used.
#[derive(Serialize)]
pub struct RunTold<'a> {
    sha: &'a str,
    mode: &'a str,
    outcome: &'a str,
    fuel: u64,
    memory_bytes: usize,
    calls: u64,
    reruns: usize,
    microseconds: u64,
}

impl<'a> RunTold<'a> {
    /// Of a run that began; before that there is nothing to tell.
    pub fn of(seen: &'a Seen) -> Option<RunTold<'a>> {
        let ended = seen.ended?;
        Some(RunTold {
            sha: &seen.name,
            mode: seen.mode,
            outcome: ended.word(),
            fuel: seen.spent.fuel,
            memory_bytes: seen.spent.memory_bytes,
            calls: seen.spent.calls,
            reruns: seen.reruns.len(),
            microseconds: seen.spent.time.as_micros() as u64,
        })
    }
}

/// What a run did.
#[derive(Serialize)]
pub struct TraceTold<'a> {
    steps: Vec<StepTold<'a>>,
    omitted: u64,
    reruns: Vec<RerunTold<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum StepTold<'a> {
    Call(CallTold<'a>),
    Log { level: &'static str, text: Text<'a> },
}

#[derive(Serialize)]
struct CallTold<'a> {
    args: Vec<Text<'a>>,
    arg_count: usize,
    db: usize,
    key: Option<Text<'a>>,
    shard: Option<usize>,
    at_microseconds: u64,
    microseconds: u64,
    #[serde(flatten)]
    reply: ReplyTold,
}

/// A reply that is short is shown whole, of others the kind and the length.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ReplyTold {
    Reply(serde_json::Value),
    Error { code: String, message: String },
    LongReply { kind: &'static str, length: Option<u64>, bytes: usize },
    Collected(bool),
}

#[derive(Serialize)]
struct RerunTold<'a> {
    why: &'a str,
    db: Option<usize>,
    key: Option<Text<'a>>,
}

impl<'a> TraceTold<'a> {
    /// Of a run.
    pub fn of(seen: &'a Seen) -> TraceTold<'a> {
        TraceTold {
            steps: seen.steps.iter().map(step).collect(),
            omitted: seen.omitted,
            reruns: seen.reruns.iter().map(rerun).collect(),
        }
    }
}

fn rerun(rerun: &Rerun) -> RerunTold<'_> {
    let key = rerun.key.as_ref();
    RerunTold { why: rerun.why, db: key.map(|(db, _)| *db), key: key.map(|(_, key)| Text(key)) }
}

fn step(step: &Step) -> StepTold<'_> {
    match step {
        Step::Log { level, text } => StepTold::Log { level: level_word(*level), text: Text(text) },
        Step::Call(call) => StepTold::Call(CallTold {
            args: call.args.iter().map(|arg| Text(arg)).collect(),
            arg_count: call.arg_count,
            db: call.db,
            key: call.key.as_ref().map(|(key, _)| Text(key)),
            shard: call.key.as_ref().map(|(_, shard)| *shard),
            at_microseconds: call.at.as_micros() as u64,
            microseconds: call.took.as_micros() as u64,
            reply: reply(Answer::of(call)),
        }),
    }
}

fn reply(answer: Answer) -> ReplyTold {
    match answer {
        Answer::Whole(Value::Error(text)) => {
            let message = String::from_utf8_lossy(&text).into_owned();
            ReplyTold::Error { code: code_of(&message).to_owned(), message }
        }
        Answer::Whole(value) => {
            let shown = serde_json::to_value(Shown(&value, Shape::Plain));
            ReplyTold::Reply(shown.unwrap_or_default())
        }
        Answer::Long { kind, length, bytes } => ReplyTold::LongReply { kind, length, bytes },
        Answer::Collected => ReplyTold::Collected(true),
    }
}
