//! `/v1/command` and `/v1/pipeline`: any command.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::ask::{Argv, Ask};
use super::json::{self, Shown, Word};
use super::problem::Problem;
use crate::frontend::work::{self, parse};

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
        ask.transaction(commands).await?
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
    work::admit(args.first().map(|name| &*name.0))?;
    Ok(args.into_iter().map(|word| word.0).collect())
}
