//! `/v1/command` and `/v1/pipeline`: any command.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use resp::Value;
use serde::{Deserialize, Serialize};

use super::ask::{Argv, Ask, parse};
use super::json::{self, Shown, Word};
use super::problem::Problem;

/// Commands that change what a connection is: here each request is a session of its own.
const OF_CONNECTIONS: &[(&str, &str)] = &[
    ("multi", "POST /v1/pipeline with \"atomic\": true"),
    ("exec", "POST /v1/pipeline with \"atomic\": true"),
    ("discard", "POST /v1/pipeline with \"atomic\": true"),
    ("watch", "a script, which is atomic"),
    ("unwatch", "a script, which is atomic"),
    ("select", "the query parameter db"),
    ("hello", "nothing: replies are those of RESP3"),
    ("reset", "nothing: each request is new"),
    ("quit", "nothing: each request is new"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandBody {
    args: Vec<Word>,
}

#[derive(Serialize)]
struct ReplyBody<'a> {
    reply: Shown<'a>,
}

/// Runs one command.
pub async fn command(mut ask: Ask) -> Result<Response, Problem> {
    let CommandBody { args } = ask.json()?;
    let argv = admit(args)?;
    let shape = ask.shape()?;
    if ask.accepts(RESP) {
        let reply = ask.run(argv).await?;
        return Ok(raw(reply));
    }
    let value = ask.value(argv).await?;
    Ok(json::body(&ReplyBody { reply: Shown(&value, shape) }))
}

const RESP: &str = "application/resp";

/// The reply as it is, RESP3. An error has the status that its JSON would have.
fn raw(reply: Vec<u8>) -> Response {
    let status = match reply.split_first() {
        Some((b'-', text)) => Problem::of_reply(text.trim_ascii_end()).status,
        _ => StatusCode::OK,
    };
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(RESP))], reply).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PipelineBody {
    commands: Vec<Vec<Word>>,
    #[serde(default)]
    atomic: bool,
}

#[derive(Serialize)]
struct RepliesBody<'a> {
    replies: Vec<Shown<'a>>,
}

/// Runs several commands one after the other; with `atomic` as one transaction.
pub async fn pipeline(mut ask: Ask) -> Result<Response, Problem> {
    let PipelineBody { commands, atomic } = ask.json()?;
    let commands: Vec<Argv> = commands.into_iter().map(admit).collect::<Result<_, _>>()?;
    let shape = ask.shape()?;
    let replies = if atomic {
        match ask.transaction(commands).await? {
            Value::Array(replies) => replies,
            other => vec![other],
        }
    } else {
        let mut replies = Vec::with_capacity(commands.len());
        for command in commands {
            replies.push(parse(&ask.run(command).await?)?);
        }
        replies
    };
    let replies = replies.iter().map(|reply| Shown(reply, shape)).collect();
    Ok(json::body(&RepliesBody { replies }))
}

/// Refuses what makes no sense without a connection of its own.
fn admit(args: Vec<Word>) -> Result<Argv, Problem> {
    let argv: Argv = args.into_iter().map(|word| word.0).collect();
    let Some(name) = argv.first() else { return Err(Problem::bad("a command needs a name")) };
    let is_named = |(known, _): &&(&str, &str)| name.eq_ignore_ascii_case(known.as_bytes());
    match OF_CONNECTIONS.iter().find(is_named) {
        Some((known, instead)) => {
            let known = known.to_uppercase();
            let text = format!("ERR {known} needs a connection of its own; instead of it there is {instead}");
            Err(Problem::of_reply(text.as_bytes()))
        }
        None => Ok(argv),
    }
}
