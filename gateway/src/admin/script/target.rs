//! Where a script is run: by a server, or in this process.

use std::sync::Arc;

use resp::Value;

use super::error::ToolError;
use super::local::{self, Engine};
use super::remote::Connection;
use super::show::member;
use super::task::ServerAddress;
use crate::net::request::{Failure, Work, parse};
use crate::scripts::options::{Flags, Options};
use crate::server::Server;

/// What has the keys.
pub enum Place {
    /// A server in this process.
    Local(Arc<Server>),
    /// A server that is reached by a connection.
    Remote(ServerAddress),
}

impl Place {
    /// The server, or one in this process with an empty store.
    pub async fn open(server: Option<&ServerAddress>) -> Result<Place, ToolError> {
        match server {
            Some(server) => Ok(Place::Remote(server.clone())),
            None => Ok(Place::Local(Engine::start().await?.server()?)),
        }
    }

    /// A client of it.
    pub async fn connect(&self) -> Result<Target, ToolError> {
        match self {
            Place::Local(server) => Ok(Target::Local(Box::new(local::client(server)))),
            Place::Remote(server) => Ok(Target::Remote(Connection::open(server).await?)),
        }
    }
}

/// A client of a server.
pub enum Target {
    /// In this process.
    Local(Box<Work>),
    /// On a connection.
    Remote(Connection),
}

impl Target {
    /// Runs a command. An error reply is a value.
    pub async fn call(&mut self, argv: &[&[u8]]) -> Result<Value, ToolError> {
        match self {
            Target::Remote(connection) => connection.call(argv).await,
            Target::Local(work) => match work.run(argv).await.and_then(|reply| parse(&reply)) {
                Ok(value) => Ok(value),
                Err(Failure::Reply(text)) => Ok(Value::Error(text)),
                Err(Failure::Request(text) | Failure::Internal(text)) => Err(ToolError::new(text)),
            },
        }
    }

    /// Runs a script.
    pub async fn eval(
        &mut self,
        script: &[u8],
        keys: &[String],
        args: &[String],
    ) -> Result<Value, ToolError> {
        self.call(&request(b"EVAL", script, &keys.len().to_string(), keys, args)).await
    }

    /// Runs a script and undoes its changes: the reply is a map that has the script's reply and these changes. Or it is an
    /// error.
    pub async fn dry_run(
        &mut self,
        script: &[u8],
        keys: &[String],
        args: &[String],
    ) -> Result<Value, ToolError> {
        if let Target::Local(work) = self {
            work.session.overrides.options = Options { flags: Flags::DRY_RUN, ..Options::default() };
            let value = self.eval(script, keys, args).await;
            if let Target::Local(work) = self {
                work.session.overrides.options = Options::default();
            }
            return value;
        }
        // A server that does not know the flag could run the script for real.
        let probe = self.call(&[b"EVAL", b"#!lua flags=dry-run\nreturn 1", b"0"]).await?;
        if let Value::Error(text) = &probe {
            let text = String::from_utf8_lossy(text);
            return Err(ToolError::new(format_args!("the server supports no dry runs: {text}")));
        }
        if member(&probe, "writes").is_none() {
            return Err(ToolError::new("the server supports no dry runs"));
        }
        let (script, has_new_line) = with_dry_run(script);
        let value = self.eval(&script, keys, args).await?;
        Ok(if has_new_line { one_line_up(value) } else { value })
    }
}

/// A request that runs a script.
pub fn request<'a>(
    command: &'a [u8],
    script: &'a [u8],
    count: &'a str,
    keys: &'a [String],
    args: &'a [String],
) -> Vec<&'a [u8]> {
    let words = keys.iter().chain(args).map(String::as_bytes);
    [command, script, count.as_bytes()].into_iter().chain(words).collect()
}

/// The script with the flag `dry-run` in its header, and whether that is a new line.
fn with_dry_run(script: &[u8]) -> (Vec<u8>, bool) {
    const FLAG: &[u8] = b" flags=dry-run";
    let start = script.len() - script.trim_ascii_start().len();
    if !script.starts_with(b"#!") && !script[start..].starts_with(b"--!df") {
        return ([b"--!df", FLAG, b"\n", script].concat(), true);
    }
    let len = script[start..].iter().position(|byte| *byte == b'\n').unwrap_or(script.len() - start);
    let (header, rest) = script.split_at(start + len);
    ([header.trim_ascii_end(), FLAG, rest].concat(), false)
}

/// Errors of a script that has one line more than its author knows of, with the numbers of the author's lines.
fn one_line_up(value: Value) -> Value {
    const SOURCE: &str = "user_script:";
    let corrected = |text: Vec<u8>| {
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut parts = text.split(SOURCE);
        let mut corrected = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (line, rest) = part.split_at(digits);
            corrected.push_str(SOURCE);
            match line.parse::<u32>() {
                Ok(line) => corrected.push_str(&line.saturating_sub(1).to_string()),
                Err(_) => corrected.push_str(line),
            }
            corrected.push_str(rest);
        }
        Value::Error(corrected.into_bytes())
    };
    match value {
        Value::Error(text) => corrected(text),
        Value::Map(pairs) => {
            let pair = |(name, value): (Value, Value)| match value {
                Value::Error(text) => (name, corrected(text)),
                value => (name, value),
            };
            Value::Map(pairs.into_iter().map(pair).collect())
        }
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_added_to_the_header() {
        for (script, wanted, is_new) in [
            ("return 1", "--!df flags=dry-run\nreturn 1", true),
            ("#!lua\nreturn 1", "#!lua flags=dry-run\nreturn 1", false),
            ("#!lua flags=no-writes\r\nreturn 1", "#!lua flags=no-writes flags=dry-run\nreturn 1", false),
            ("\n --!df fuel=9\nreturn 1", "\n --!df fuel=9 flags=dry-run\nreturn 1", false),
            ("--!df", "--!df flags=dry-run", false),
        ] {
            let (text, has_new_line) = with_dry_run(script.as_bytes());
            assert_eq!((&*String::from_utf8_lossy(&text), has_new_line), (wanted, is_new));
        }
    }

    #[test]
    fn lines_of_errors_are_those_of_the_author() {
        let error = |text: &str| Value::Error(text.into());
        let before = error("ERR user_script:3: stop script: ab, on @user_script:12.");
        assert_eq!(one_line_up(before), error("ERR user_script:2: stop script: ab, on @user_script:11."));
        let pair = |value| Value::Map(vec![(Value::Bulk(b"reply".into()), value)]);
        assert_eq!(one_line_up(pair(error("user_script:2: a"))), pair(error("user_script:1: a")));
        assert_eq!(one_line_up(Value::Integer(2)), Value::Integer(2));
    }
}
