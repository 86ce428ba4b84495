//! `/v1/scripts`: what is known of scripts. Redis forgets all of them or none, so one cannot be deleted.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::extract::{Ask, argv};
use super::json::{self, Shape, Shown, Text, Word};
use super::problem::Problem;
use crate::commands::script;
use crate::scripts::cache::{Known, parse_sha, sha_of, spelled};

/// What is known of a script.
#[derive(Serialize)]
struct ScriptBody<'a> {
    sha: &'a str,
    name: Option<&'a str>,
    flags: Vec<String>,
    bytes: usize,
    loaded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<Text<'a>>,
}

impl<'a> ScriptBody<'a> {
    fn of(known: &'a Known, script: Option<&'a [u8]>) -> ScriptBody<'a> {
        ScriptBody {
            sha: &known.sha,
            name: known.header.name.as_deref(),
            flags: known.options.words(),
            bytes: script.map_or_else(|| known.text().len(), <[u8]>::len),
            loaded: known.is_pinned(),
            script: script.map(Text),
        }
    }
}

#[derive(Serialize)]
struct ScriptsBody<'a> {
    scripts: Vec<ScriptBody<'a>>,
}

/// All scripts, without their texts.
pub async fn list(ask: Ask) -> Result<Response, Problem> {
    ask.work.check(&[b"SCRIPT", b"LIST"])?;
    let all = ask.server().scripting.cache.all();
    Ok(json::body(&ScriptsBody { scripts: all.iter().map(|known| ScriptBody::of(known, None)).collect() }))
}

/// One script with its text.
pub async fn show(ask: Ask) -> Result<Response, Problem> {
    ask.work.check(&[b"SCRIPT", b"SHOW", &ask.segment(3)])?;
    let known = parse_sha(&ask.segment(3)).and_then(|sha| ask.server().scripting.cache.get(&sha));
    let known = known.ok_or_else(|| Problem::of_reply(b"NOSCRIPT No matching script. Please use EVAL."))?;
    Ok(json::body(&ScriptBody::of(&known, Some(&known.text()))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadBody {
    script: Word,
}

#[derive(Serialize)]
struct CheckBody<'a> {
    sha: String,
    name: Option<&'a str>,
    flags: Vec<String>,
}

/// Whether a script compiles, and what its header says.
pub async fn check(ask: Ask) -> Result<Response, Problem> {
    let LoadBody { script: Word(text) } = ask.json()?;
    ask.work.check(&[b"SCRIPT", b"LOAD", &text])?;
    let checked = script::check(ask.server(), &ask.work.session, &text).await;
    let header = checked.map_err(|error| Problem::of_reply(error.text().as_bytes()))?;
    let (sha, name) = (spelled(&sha_of(&text)), header.name.as_deref());
    Ok(json::body(&CheckBody { sha, name, flags: header.options.words() }))
}

/// SCRIPT LOAD.
pub async fn load(mut ask: Ask) -> Result<Response, Problem> {
    let LoadBody { script: Word(text) } = ask.json()?;
    let sha = ask.value(argv(&["SCRIPT", "LOAD"], &[&text])).await?;
    let sha = String::from_utf8_lossy(sha.text().unwrap_or_default()).into_owned();
    let location = HeaderValue::from_str(&format!("/v1/scripts/{sha}"));
    let mut response = (StatusCode::CREATED, json::body(&serde_json::json!({ "sha": sha }))).into_response();
    response.headers_mut().extend(location.ok().map(|location| (header::LOCATION, location)));
    Ok(response)
}

/// SCRIPT FLUSH.
pub async fn flush(mut ask: Ask) -> Result<Response, Problem> {
    ask.value(argv(&["SCRIPT", "FLUSH"], &[])).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// SCRIPT STATS.
pub async fn stats(mut ask: Ask) -> Result<Response, Problem> {
    let sha = ask.segment(3);
    let stats = ask.value(argv(&["SCRIPT", "STATS"], &[&sha])).await?;
    Ok(json::body(&Shown(&stats, Shape::Plain)))
}

/// SCRIPT KILL.
pub async fn kill(mut ask: Ask) -> Result<Response, Problem> {
    let sha = ask.segment(3);
    ask.value(argv(&["SCRIPT", "KILL"], &[&sha])).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
