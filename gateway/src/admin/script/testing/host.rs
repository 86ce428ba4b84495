//! What a test can reach: a server of its own, as a client.

use std::path::{Path, PathBuf};

use ::script::{CallFlags, Finishing, Host, HostCall, LogLevel};
use store_engine::Protocol;

use super::report::SOURCE;
use crate::admin::script::task::read;
use crate::net::request::{Failure, Work};
use crate::telemetry::log;

/// The call by which the helper `run` runs a script: the path, the number of keys, the keys and the arguments.
const RUN: &[u8] = b"moonshard.run";

/// The host of a test.
pub struct TestHost {
    client: Work,
    /// Where the paths of scripts begin.
    directory: PathBuf,
    /// The call that is to be made.
    call: Vec<Vec<u8>>,
}

impl TestHost {
    /// The host of a test in `file`.
    pub fn new(client: Work, file: &Path) -> TestHost {
        TestHost { client, directory: file.parent().unwrap_or(Path::new("")).to_owned(), call: Vec::new() }
    }

    async fn perform(&mut self) -> Vec<u8> {
        let call = std::mem::take(&mut self.call);
        let args: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
        let reply = match args.as_slice() {
            [RUN, path, count, rest @ ..] => self.run_script(path, count, rest).await,
            _ => self.client.run(&args).await,
        };
        reply.unwrap_or_else(|failure| match failure {
            Failure::Reply(text) => error(&text),
            Failure::Request(text) | Failure::Internal(text) => error(text.as_bytes()),
        })
    }

    /// Runs the script in a file. Its errors name the file.
    async fn run_script(&mut self, path: &[u8], count: &[u8], words: &[&[u8]]) -> Result<Vec<u8>, Failure> {
        let path = String::from_utf8_lossy(path).into_owned();
        let text =
            read(&self.directory.join(&path)).map_err(|error| Failure::Request(format!("ERR {error}")))?;
        let mut argv: Vec<&[u8]> = vec![b"EVAL", &text, count];
        argv.extend(words);
        let reply = self.client.run(&argv).await?;
        let Some(text) = reply.strip_prefix(b"-") else { return Ok(reply) };
        let text = String::from_utf8_lossy(text).replace(SOURCE, &format!("{path}:"));
        Ok(error(text.as_bytes()))
    }
}

/// An error reply.
fn error(text: &[u8]) -> Vec<u8> {
    let mut reply = vec![b'-'];
    reply.extend(text.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')));
    reply.extend_from_slice(b"\r\n");
    reply
}

impl Host for TestHost {
    fn call(&mut self, args: &[&[u8]], flags: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        if flags.acl_check() {
            reply.extend_from_slice(b":1\r\n");
            return HostCall::Done(0);
        }
        self.call = args.iter().map(|arg| arg.to_vec()).collect();
        self.client.session.protocol = if flags.resp3() { Protocol::Resp3 } else { Protocol::Resp2 };
        HostCall::Later
    }

    fn finish<'a>(&'a mut self, reply: &'a mut Vec<u8>) -> Finishing<'a> {
        Box::pin(async move {
            reply.extend(self.perform().await);
            HostCall::Done(0)
        })
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        log::script(level, text, None);
    }
}
