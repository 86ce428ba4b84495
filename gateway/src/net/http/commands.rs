//! `/v1/command` and `/v1/pipeline`: any command.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use resp::Value;
use serde::{Deserialize, Serialize};
use store_engine::discard::discard;

use super::extract::{Argv, Ask};
use super::json::{self, Shown, Word};
use super::problem::Problem;
use crate::net::request::{self, Failure, parse};

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
    let (reply, most) = (ask.run(argv).await?, ask.most_reply_bytes());
    request::apart(reply.len(), move || match parse(&reply)? {
        Value::Error(text) => Err(Failure::Reply(text).into()),
        value => json::body_within(&ReplyBody { reply: Shown(&value, shape) }, most),
    })
    .await?
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
    let most = ask.most_reply_bytes();
    let shown = move |replies: &[Value]| {
        let replies = replies.iter().map(|reply| Shown(reply, shape)).collect();
        json::body_within(&RepliesBody { replies }, most)
    };
    if atomic {
        let (replies, bytes) = ask.transaction(commands).await?;
        return request::apart(bytes, move || shown(&replies)).await?;
    }
    let (mut replies, mut bytes) = (Vec::with_capacity(commands.len()), 0);
    for command in commands {
        let reply = ask.run(command).await?;
        bytes += reply.len();
        if bytes > most {
            discard(replies, bytes);
            return Err(Failure::Reply(PIPELINE_TOO_LARGE.to_vec()).into());
        }
        replies.push(reply);
    }
    request::apart(bytes, move || {
        let replies: Vec<Value> = replies.iter().map(|reply| parse(reply)).collect::<Result<_, _>>()?;
        shown(&replies)
    })
    .await?
}

/// What a pipeline answers whose replies are too large together. What it has done stays.
const PIPELINE_TOO_LARGE: &[u8] = b"REPLYLIMIT the replies together exceed the limit on reply bytes \
    (client-output-buffer-limit); the commands up to here were run. Ask for less at once";

/// Refuses what makes no sense without a connection of its own.
fn admit(args: Vec<Word>) -> Result<Argv, Problem> {
    request::admit(args.first().map(|name| &*name.0))?;
    Ok(args.into_iter().map(|word| word.0).collect())
}
