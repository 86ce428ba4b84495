//! Scripts with a budget of the caller's choice, dry runs and traces.

use std::sync::Arc;

use resp::Value;

use super::request::{Failure, Work, apart, parse};
use crate::commands::script;
use crate::scripts::options::Flags;
use crate::telemetry::script_stats::Ended;
use crate::telemetry::script_trace::Trace;

/// A run that is requested.
pub struct RunRequest<'a> {
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
    /// It is to be rolled back, and to report what it would have changed.
    pub dry_run: bool,
    /// It is to report what it does.
    pub trace: bool,
    /// Its trace is to have the variables of the script at each call.
    pub variables: bool,
    /// It is to report what it wrote, also if that is kept.
    pub writes: bool,
}

/// What came of a run.
pub struct Done {
    /// What it used and did.
    pub trace: Arc<Trace>,
    /// How many bytes it answered with.
    pub bytes: usize,
    value: Value,
    dry: bool,
    /// What was written and is kept, and how much more there was.
    kept: Option<(Value, Value)>,
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

    /// What it wrote, or would have written, and how many keys that leaves out; if it was asked for.
    pub fn writes(&self) -> Option<(&Value, &Value)> {
        let kept = self.kept.as_ref().map(|(changes, omitted)| (changes, omitted));
        self.part("writes").zip(self.part("omitted")).or(kept)
    }

    /// A part of a dry run's reply.
    fn part(&self, name: &str) -> Option<&Value> {
        if self.dry { field(&self.value, name) } else { None }
    }
}

/// A value of a map whose keys are names.
pub fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = map else { return None };
    pairs.iter().find(|(key, _)| key.text() == Some(name.as_bytes())).map(|(_, value)| value)
}

/// Runs a script.
pub async fn run(work: &mut Work, request: RunRequest<'_>) -> Result<Done, Failure> {
    let words: Vec<&[u8]> = request.words.iter().map(Vec::as_slice).collect();
    let wrong = |error: store_engine::CommandError| Failure::Reply(error.text().as_bytes().to_vec());
    let mut options = script::options(&words).map_err(wrong)?;
    if request.dry_run {
        options.flags.0 |= Flags::DRY_RUN.0;
    }
    let trace = Trace::new(request.trace).with_changes(request.writes).with_variables(request.variables);
    let trace = Arc::new(trace);
    work.session.overrides.options = options;
    work.session.overrides.trace = Some(trace.clone());
    let name: &[u8] = match (request.by_sha, request.read_only) {
        (false, false) => b"EVAL",
        (false, true) => b"EVAL_RO",
        (true, false) => b"EVALSHA",
        (true, true) => b"EVALSHA_RO",
    };
    let count = request.keys.len().to_string();
    let mut argv = vec![name, request.script, count.as_bytes()];
    argv.extend(request.keys);
    argv.extend(request.args);
    let reply = work.run(&argv).await?;
    let bytes = reply.len();
    let value = apart(bytes, move || parse(&reply)).await??;
    let dry = trace.is_dry();
    let snapshot = trace.snapshot();
    // One that something ended kept nothing.
    let kept =
        snapshot.changes.as_ref().filter(|_| matches!(snapshot.ended, Some(Ended::Well | Ended::WithError)));
    let kept =
        kept.map(|(changes, omitted)| Ok::<_, Failure>((parse(changes)?, Value::Integer(*omitted as i64))));
    let kept = kept.transpose()?;
    drop(snapshot);
    Ok(Done { trace, bytes, value, dry, kept })
}
