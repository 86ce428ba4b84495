//! What INFO and LATENCY show of calls by command, in the forms of Redis 7.0.

use std::fmt::Write as _;

use store_engine::Reply;

use crate::server::Server;
use crate::telemetry::Telemetry;
use crate::telemetry::counts::CallReport;

/// Commands that were called since the last reset, by name.
fn called(server: &Server) -> impl Iterator<Item = (String, CallReport)> + '_ {
    let all = server.telemetry.calls.since_reset().into_iter().enumerate();
    all.filter(|(_, report)| !report.is_empty())
        .map(|(number, report)| (server.registry.name_of(number), report))
}

/// INFO's section `commandstats`. Calls within scripts and transactions are counted and not timed.
pub fn commandstats(server: &Server, text: &mut String) {
    for (name, CallReport { spread, calls, failed, rejected, denied }) in called(server) {
        let (usec, timed) = (spread.nanos / 1000, spread.count().max(1));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "cmdstat_{name}:calls={calls},usec={usec},usec_per_call={:.2},rejected_calls={},failed_calls={failed}\r\n",
            usec as f64 / timed as f64,
            rejected + denied,
        );
    }
}

/// INFO's section `errorstats`.
pub fn errorstats(telemetry: &Telemetry, text: &mut String) {
    for (code, count) in telemetry.errors.since_reset() {
        let _ = write!(text, "errorstat_{code}:count={count}\r\n");
    }
}

/// INFO's section `latencystats`.
pub fn latencystats(server: &Server, text: &mut String) {
    if !server.config.latency_tracking.get() {
        return;
    }
    let percents = server.config.percentiles();
    for (name, CallReport { spread, .. }) in called(server).filter(|(_, report)| report.spread.count() > 0) {
        let values = percents.iter().map(|percent| {
            let nanos = spread.percentile(*percent);
            format!("p{percent}={}.{:03}", nanos / 1000, nanos % 1000)
        });
        let values: Vec<String> = values.collect();
        let _ = write!(text, "latency_percentiles_usec_{name}:{}\r\n", values.join(","));
    }
}

/// LATENCY HISTOGRAM of these commands, or of all. A container stands for its subcommands.
pub fn histogram(server: &Server, names: &[&[u8]], out: &mut Reply) {
    let is_wanted = |name: &str| {
        let container = name.split('|').next().unwrap_or(name);
        names.is_empty()
            || names.iter().any(|wanted| {
                wanted.eq_ignore_ascii_case(name.as_bytes())
                    || wanted.eq_ignore_ascii_case(container.as_bytes())
            })
    };
    let timed = called(server).filter(|(name, report)| report.spread.count() > 0 && is_wanted(name));
    let found: Vec<(String, CallReport)> = timed.collect();
    out.map(found.len());
    for (name, CallReport { spread, .. }) in found {
        out.bulk(name.as_bytes());
        out.map(2);
        out.bulk(b"calls");
        out.count(usize::try_from(spread.count()).unwrap_or(usize::MAX));
        out.bulk(b"histogram_usec");
        let doubling = spread.doubling();
        out.map(doubling.len());
        for (longest, sum) in doubling {
            // As Redis names its steps, which end a little behind the powers of two.
            out.count((longest + longest / 128) as usize / 1000);
            out.count(usize::try_from(sum).unwrap_or(usize::MAX));
        }
    }
}
