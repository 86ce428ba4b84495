//! `/v1/eval` and `/v1/evalsha`: scripts with a budget of the caller's choice, dry runs and traces.

use std::sync::Arc;

use axum::response::Response;
use resp::Value;
use serde::{Deserialize, Serialize};

use super::ask::{Ask, argv, parse};
use super::json::{self, Shape, Shown, Word};
use super::problem::Problem;
use super::told::{RunTold, TraceTold};
use crate::command::scripting;
use crate::options::{Flags, Options};
use crate::trace::Trace;

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
    run: Option<RunTold<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writes: Option<Shown<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writes_omitted: Option<Shown<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<TraceTold<'a>>,
}

/// Runs a script by its text.
pub async fn eval(mut ask: Ask) -> Result<Response, Problem> {
    let body: EvalBody = ask.json()?;
    let script = body.script.as_ref().ok_or_else(|| Problem::bad("a script is needed"))?.0.clone();
    run(&mut ask, ["EVAL", "EVAL_RO"], script, body).await
}

/// Runs a script by its digest.
pub async fn evalsha(mut ask: Ask) -> Result<Response, Problem> {
    let body: EvalBody = ask.json()?;
    if body.script.is_some() {
        return Err(Problem::bad("the path names the script"));
    }
    let sha = ask.segment(3);
    run(&mut ask, ["EVALSHA", "EVALSHA_RO"], sha, body).await
}

async fn run(ask: &mut Ask, names: [&str; 2], script: Vec<u8>, body: EvalBody) -> Result<Response, Problem> {
    let shape = ask.shape()?;
    let trace = Arc::new(Trace::new(body.trace));
    ask.session.wishes.options = options(&body)?;
    ask.session.wishes.trace = Some(trace.clone());
    let count = body.keys.len().to_string();
    let mut call = argv(&[names[usize::from(body.read_only)]], &[&script, count.as_bytes()]);
    call.extend(body.keys.into_iter().chain(body.args).map(|word| word.0));
    let value = parse(&ask.run(call).await?)?;

    let seen = trace.seen();
    let (run, steps) = (RunTold::of(&seen), body.trace.then(|| TraceTold::of(&seen)));
    let dry = trace.is_dry();
    let part = |name: &str| match &value {
        Value::Map(parts) if dry => {
            parts.iter().find(|(key, _)| key.text() == Some(name.as_bytes())).map(|(_, part)| part)
        }
        _ => None,
    };
    // What was written is shown in the same form whatever is asked for, as it is ours.
    let ours = |name: &str| part(name).map(|part| Shown(part, Shape::Plain));
    let (reply, writes, omitted) = (part("reply").unwrap_or(&value), ours("writes"), ours("omitted"));
    if let Value::Error(text) = reply {
        let mut problem = Problem::of_reply(text);
        let told = [
            ("run", run.map(serde_json::to_value)),
            ("writes", writes.map(serde_json::to_value)),
            ("writes_omitted", omitted.map(serde_json::to_value)),
            ("trace", steps.map(serde_json::to_value)),
        ];
        for (name, value) in told {
            if let Some(Ok(value)) = value {
                problem = problem.with(name, value);
            }
        }
        return Err(problem);
    }
    let reply = Shown(reply, shape);
    Ok(json::body(&EvalReply { reply, run, writes, writes_omitted: omitted, trace: steps }))
}

/// What the caller asks for, in the words of SCRIPT FLAGS and with its errors.
fn options(body: &EvalBody) -> Result<Options, Problem> {
    let mut words: Vec<Vec<u8>> = body.flags.iter().map(|flag| flag.clone().into_bytes()).collect();
    let Limits { fuel, timeout_ms, memory } = &body.limits;
    for (name, value) in [("fuel", fuel), ("timeout", timeout_ms), ("memory", memory)] {
        words.extend(value.as_ref().map(|value| [name.as_bytes(), b"=", &value.0].concat()));
    }
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let wrong = |error: store_engine::CommandError| Problem::of_reply(error.text().as_bytes());
    let mut options = scripting::options(&words).map_err(wrong)?;
    if body.dry_run {
        options.flags.0 |= Flags::DRY_RUN.0;
    }
    Ok(options)
}
