//! The report of a run: what it used, and each step of it if the client asked for a trace.

use resp::Value;
use serde::Serialize;

use super::frames::FramesReport;
use super::json::{Shape, Shown, Text};
use crate::net::report::{Answer, level_word};
use crate::net::request::code_of;
use crate::telemetry::script_trace::{Rerun, RunState, Step};

/// What a run used.
#[derive(Serialize)]
pub struct RunReport<'a> {
    sha: &'a str,
    mode: &'a str,
    outcome: &'a str,
    fuel: u64,
    compile_fuel: u64,
    memory_bytes: usize,
    calls: u64,
    reruns: usize,
    microseconds: u64,
}

impl<'a> RunReport<'a> {
    /// Of a run that began; before that there is nothing to report.
    pub fn of(snapshot: &'a RunState) -> Option<RunReport<'a>> {
        let ended = snapshot.ended?;
        Some(RunReport {
            sha: &snapshot.name,
            mode: snapshot.mode,
            outcome: ended.word(),
            fuel: snapshot.usage.fuel,
            compile_fuel: snapshot.usage.compile_fuel,
            memory_bytes: snapshot.usage.memory_bytes,
            calls: snapshot.usage.calls,
            reruns: snapshot.reruns.len(),
            microseconds: snapshot.usage.time.as_micros() as u64,
        })
    }
}

/// What a run did.
#[derive(Serialize)]
pub struct TraceReport<'a> {
    steps: Vec<StepReport<'a>>,
    omitted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    frames_omitted: Option<u64>,
    reruns: Vec<RerunReport<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum StepReport<'a> {
    Call(CallReport<'a>),
    Log { level: &'static str, text: Text<'a> },
}

#[derive(Serialize)]
struct CallReport<'a> {
    args: Vec<Text<'a>>,
    arg_count: usize,
    db: usize,
    key: Option<Text<'a>>,
    shard: Option<usize>,
    at_microseconds: u64,
    microseconds: u64,
    #[serde(flatten)]
    reply: ReplyReport,
    #[serde(flatten)]
    frames: Option<FramesReport<'a>>,
}

/// A reply that is short is shown whole, of others the kind and the length.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ReplyReport {
    Reply(serde_json::Value),
    Error { code: String, message: String },
    LongReply { kind: &'static str, length: Option<u64>, bytes: usize },
    Collected(bool),
}

#[derive(Serialize)]
struct RerunReport<'a> {
    why: &'a str,
    db: Option<usize>,
    key: Option<Text<'a>>,
}

impl<'a> TraceReport<'a> {
    /// Of a run; `variables`: it was to report its variables.
    pub fn of(snapshot: &'a RunState, variables: bool) -> TraceReport<'a> {
        TraceReport {
            steps: snapshot.steps.iter().map(step).collect(),
            omitted: snapshot.omitted,
            frames_omitted: variables.then_some(snapshot.frames_omitted),
            reruns: snapshot.reruns.iter().map(rerun).collect(),
        }
    }
}

fn rerun(rerun: &Rerun) -> RerunReport<'_> {
    let key = rerun.key.as_ref();
    RerunReport { why: rerun.why, db: key.map(|(db, _)| *db), key: key.map(|(_, key)| Text(key)) }
}

fn step(step: &Step) -> StepReport<'_> {
    match step {
        Step::Log { level, text } => StepReport::Log { level: level_word(*level), text: Text(text) },
        Step::Call(call) => StepReport::Call(CallReport {
            args: call.args.iter().map(|arg| Text(arg)).collect(),
            arg_count: call.arg_count,
            db: call.db,
            key: call.key.as_ref().map(|(key, _)| Text(key)),
            shard: call.key.as_ref().map(|(_, shard)| *shard),
            at_microseconds: call.at.as_micros() as u64,
            microseconds: call.took.as_micros() as u64,
            reply: reply(Answer::of(call)),
            frames: call.frames.as_deref().and_then(FramesReport::of),
        }),
    }
}

fn reply(answer: Answer) -> ReplyReport {
    match answer {
        Answer::Whole(Value::Error(text)) => {
            let message = String::from_utf8_lossy(&text).into_owned();
            ReplyReport::Error { code: code_of(&message).to_owned(), message }
        }
        Answer::Whole(value) => {
            let shown = serde_json::to_value(Shown(&value, Shape::Plain));
            ReplyReport::Reply(shown.unwrap_or_default())
        }
        Answer::Long { kind, length, bytes } => ReplyReport::LongReply { kind, length, bytes },
        Answer::Collected => ReplyReport::Collected(true),
    }
}
