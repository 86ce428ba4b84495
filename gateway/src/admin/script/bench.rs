//! `moonshard script bench`: how often a script runs in a second, and how long a run takes.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use resp::Value;

use super::error::ToolError;
use super::show::{member, print, readable};
use super::target::{Place, Target, request};
use super::task::ScriptCall;
use crate::scripts::cache::{sha_of, spelled};

/// What the runs of one client took.
struct Runs {
    micros: Histogram<u64>,
    errors: u64,
    first_error: Option<Vec<u8>>,
}

/// Runs a script repeatedly. Whether no run replied with an error.
pub async fn run(call: &ScriptCall, seconds: u32, clients: u32) -> Result<bool, ToolError> {
    let script = call.text()?;
    let place = Place::open(call.server.as_ref()).await?;
    let mut first = place.connect().await?;
    let loaded = first.call(&[b"SCRIPT", b"LOAD", &script]).await?;
    if matches!(loaded, Value::Error(_)) {
        print(&readable(&loaded))?;
        return Ok(false);
    }
    // The server has compiled the script from now on.
    for _ in 0..2 {
        first.eval(&script, &call.keys, &call.args).await?;
    }
    let sha = spelled(&sha_of(&script));
    let began = Instant::now();
    let until = began + Duration::from_secs(seconds.into());
    let mut running = Vec::new();
    for _ in 0..clients {
        let target = place.connect().await?;
        let (sha, keys, args) = (sha.clone(), call.keys.clone(), call.args.clone());
        running.push(tokio::spawn(repeat(target, sha, keys, args, until)));
    }
    let mut all = Runs::new()?;
    for runs in running {
        all.add(runs.await.map_err(|error| ToolError::new(format_args!("a client stopped: {error}")))??);
    }
    let took = began.elapsed().as_secs_f64();
    let fuel = fuel(&mut first, &sha).await;
    print(&all.report(took, fuel))?;
    Ok(all.errors == 0)
}

async fn repeat(
    mut target: Target,
    sha: String,
    keys: Vec<String>,
    args: Vec<String>,
    until: Instant,
) -> Result<Runs, ToolError> {
    let mut runs = Runs::new()?;
    let count = keys.len().to_string();
    let request = request(b"EVALSHA", sha.as_bytes(), &count, &keys, &args);
    let mut began = Instant::now();
    while began < until {
        let value = target.call(&request).await?;
        let ended = Instant::now();
        runs.micros.saturating_record(ended.duration_since(began).as_micros() as u64);
        if let Value::Error(text) = value {
            runs.errors += 1;
            runs.first_error.get_or_insert(text);
        }
        began = ended;
    }
    Ok(runs)
}

/// The fuel of half of the runs or less, if the server reports it.
async fn fuel(target: &mut Target, sha: &str) -> Option<i64> {
    let stats = target.call(&[b"SCRIPT", b"STATS", sha.as_bytes()]).await.ok()?;
    match member(&stats, "fuel_p50") {
        Some(Value::Integer(fuel)) => Some(*fuel),
        _ => None,
    }
}

impl Runs {
    fn new() -> Result<Runs, ToolError> {
        let micros = Histogram::new(3).map_err(|error| ToolError::new(format_args!("{error:?}")))?;
        Ok(Runs { micros, errors: 0, first_error: None })
    }

    fn add(&mut self, other: Runs) {
        // Both count in the same steps.
        let _ = self.micros.add(&other.micros);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    fn report(&self, seconds: f64, fuel: Option<i64>) -> String {
        let count = self.micros.len();
        let at = |share| self.micros.value_at_quantile(share);
        let mut text = format!(
            "runs             {count} in {seconds:.1} s\n\
             runs per second  {:.0}\n\
             latency          p50 {} us, p99 {} us, max {} us\n",
            count as f64 / seconds,
            at(0.5),
            at(0.99),
            self.micros.max()
        );
        if let Some(fuel) = fuel {
            text.push_str(&format!("fuel per run     {fuel} (median)\n"));
        }
        if let Some(error) = &self.first_error {
            let (errors, error) = (self.errors, String::from_utf8_lossy(error));
            text.push_str(&format!("errors           {errors}, the first: {error}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_added_up() {
        let mut all = Runs::new().expect("a histogram");
        for (micros, error) in [(10, None), (20, Some("ERR a")), (30, Some("ERR b"))] {
            let mut runs = Runs::new().expect("a histogram");
            runs.micros.record(micros).expect("it grows");
            runs.errors = u64::from(error.is_some());
            runs.first_error = error.map(|text: &str| text.as_bytes().to_vec());
            all.add(runs);
        }
        insta::assert_snapshot!(all.report(2.0, Some(99)), @r"
        runs             3 in 2.0 s
        runs per second  2
        latency          p50 20 us, p99 30 us, max 30 us
        fuel per run     99 (median)
        errors           2, the first: ERR a
        ");
    }
}
