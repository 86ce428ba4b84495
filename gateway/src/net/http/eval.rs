//! `/v1/eval` and `/v1/evalsha`: scripts with a budget of the caller's choice, dry runs and traces.

use axum::response::Response;
use resp::Value;
use serde::{Deserialize, Serialize};
use store_engine::Protocol;

use super::extract::Ask;
use super::json::{self, Shape, Shown, Text, Word};
use super::problem::Problem;
use super::report::{RunReport, TraceReport};
use crate::net::eval::{self, Done, RunRequest};
use crate::net::request;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EvalBody {
    script: Option<Word>,
    #[serde(default)]
    keys: Vec<Word>,
    #[serde(default)]
    args: Vec<Word>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    trace: bool,
    #[serde(default)]
    variables: bool,
    #[serde(default)]
    raw: bool,
    #[serde(default)]
    writes: bool,
}

/// A budget; what it does not say is left to the script and the configuration.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    fuel: Option<Word>,
    timeout_ms: Option<Word>,
    memory: Option<Word>,
}

/// What a run returned, used and did.
#[derive(Serialize)]
struct EvalReply<'a> {
    reply: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<Text<'a>>,
    run: Option<RunReport<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writes: Option<Shown<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writes_omitted: Option<Shown<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<TraceReport<'a>>,
}

/// Runs a script by its text.
pub async fn eval(mut ask: Ask) -> Result<Response, Problem> {
    let body: EvalBody = ask.json()?;
    let script = body.script.as_ref().ok_or_else(|| Problem::bad("script is missing"))?.0.clone();
    run(&mut ask, false, &script, &body).await
}

/// Runs a script by its digest.
pub async fn evalsha(mut ask: Ask) -> Result<Response, Problem> {
    let body: EvalBody = ask.json()?;
    if body.script.is_some() {
        return Err(Problem::bad("the script is given by the path, not by the body"));
    }
    let sha = ask.segment(3);
    run(&mut ask, true, &sha, &body).await
}

async fn run(ask: &mut Ask, by_sha: bool, script: &[u8], body: &EvalBody) -> Result<Response, Problem> {
    let shape = ask.shape()?;
    if body.variables && !body.trace {
        return Err(Problem::bad("variables are a part of the trace: trace must be true, too"));
    }
    let run_request = RunRequest {
        by_sha,
        script,
        keys: body.keys.iter().map(|word| &*word.0).collect(),
        args: body.args.iter().map(|word| &*word.0).collect(),
        words: words(body),
        read_only: body.read_only,
        dry_run: body.dry_run,
        trace: body.trace,
        variables: body.variables,
        writes: body.writes,
    };
    let done = eval::run(&mut ask.work, run_request).await?;
    let (wants_raw, wants_trace, most) = (body.raw, body.trace, ask.most_reply_bytes());
    let bytes = done.bytes + done.trace.snapshot().bytes();
    request::apart(bytes, move || answer(&done, shape, wants_raw, wants_trace, most)).await?
}

/// What came of a run, in no more than `most` bytes.
fn answer(done: &Done, shape: Shape, raw: bool, trace: bool, most: usize) -> Result<Response, Problem> {
    let snapshot = done.trace.snapshot();
    let run = RunReport::of(&snapshot);
    let steps = trace.then(|| TraceReport::of(&snapshot, done.trace.wants_variables()));
    // What was written is shown in the same form whatever is asked for, as it is ours.
    let ours = |value| Shown(value, Shape::Plain);
    let (writes, omitted) = done.writes().map(|(report, omitted)| (ours(report), ours(omitted))).unzip();
    if let Value::Error(text) = done.reply() {
        let mut problem = Problem::of_reply(text);
        let report = [
            ("run", run.map(serde_json::to_value)),
            ("writes", writes.map(serde_json::to_value)),
            ("writes_omitted", omitted.map(serde_json::to_value)),
            ("trace", steps.map(serde_json::to_value)),
        ];
        for (name, value) in report {
            if let Some(Ok(value)) = value {
                problem = problem.with(name, value);
            }
        }
        return Err(problem);
    }
    let raw = raw.then(|| {
        let mut bytes = Vec::new();
        done.reply().write_to(Protocol::Resp3, &mut bytes);
        bytes
    });
    let (raw, reply) = (raw.as_deref().map(Text), Shown(done.reply(), shape));
    json::body_within(&EvalReply { reply, raw, run, writes, writes_omitted: omitted, trace: steps }, most)
}

/// What the caller asks for, in the words of SCRIPT FLAGS.
fn words(body: &EvalBody) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = body.flags.iter().map(|flag| flag.clone().into_bytes()).collect();
    let Limits { fuel, timeout_ms, memory } = &body.limits;
    for (name, value) in [("fuel", fuel), ("timeout", timeout_ms), ("memory", memory)] {
        words.extend(value.as_ref().map(|value| [name.as_bytes(), b"=", &value.0].concat()));
    }
    words
}
