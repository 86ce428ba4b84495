//! Scripts with a budget of the caller's choice, dry runs and traces.

use std::sync::Arc;

use resp::Value;

use super::work::{Failure, Work, parse};
use crate::command::scripting;
use crate::options::Flags;
use crate::trace::Trace;

/// A run that somebody asks for.
pub struct Asked<'a> {
    /// `script` is a digest, not a text.
    pub by_sha: bool,
    /// What is run.
    pub script: &'a [u8],
    /// KEYS
    pub keys: Vec<&'a [u8]>,
    /// ARGV
    pub args: Vec<&'a [u8]>,
    /// Flags and budget, in the words of SCRIPT FLAGS.
    pub words: Vec<Vec<u8>>,
    /// It may not write.
    pub read_only: bool,
    /// It is to be undone, and to tell what it would have changed.
    pub dry_run: bool,
    /// It is to tell what it does.
    pub trace: bool,
}

/// What came of a run.
pub struct Done {
    /// What it used and did.
    pub trace: Arc<Trace>,
    value: Value,
    dry: bool,
}

impl Done {
    /// What the script returned.
    pub fn reply(&self) -> &Value {
        self.part("reply").unwrap_or(&self.value)
    }

    /// The same, and nothing else.
    pub fn into_reply(self) -> Value {
        match self.value {
            Value::Map(pairs) if self.dry => {
                let reply = pairs.into_iter().find(|(key, _)| key.text() == Some(b"reply"));
                reply.map_or(Value::Null, |(_, reply)| reply)
            }
            value => value,
        }
    }

    /// The parts of a dry run's reply beside that: `writes`, `omitted`.
    pub fn part(&self, name: &str) -> Option<&Value> {
        if self.dry { field(&self.value, name) } else { None }
    }
}

/// A value of a map whose keys are names.
pub fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = map else { return None };
    pairs.iter().find(|(key, _)| key.text() == Some(name.as_bytes())).map(|(_, value)| value)
}

/// Runs a script.
pub async fn run(work: &mut Work, asked: Asked<'_>) -> Result<Done, Failure> {
    let words: Vec<&[u8]> = asked.words.iter().map(Vec::as_slice).collect();
    let wrong = |error: store_engine::CommandError| Failure::Reply(error.text().as_bytes().to_vec());
    let mut options = scripting::options(&words).map_err(wrong)?;
    if asked.dry_run {
        options.flags.0 |= Flags::DRY_RUN.0;
    }
    let trace = Arc::new(Trace::new(asked.trace));
    work.session.wishes.options = options;
    work.session.wishes.trace = Some(trace.clone());
    let name: &[u8] = match (asked.by_sha, asked.read_only) {
        (false, false) => b"EVAL",
        (false, true) => b"EVAL_RO",
        (true, false) => b"EVALSHA",
        (true, true) => b"EVALSHA_RO",
    };
    let count = asked.keys.len().to_string();
    let mut argv = vec![name, asked.script, count.as_bytes()];
    argv.extend(asked.keys);
    argv.extend(asked.args);
    let value = parse(&work.run(&argv).await?)?;
    let dry = trace.is_dry();
    Ok(Done { trace, value, dry })
}
