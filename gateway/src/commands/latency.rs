//! LATENCY.

mod report;

use store_engine::reply;
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply};

use super::rows::CONNECTION;
use crate::server::{Handler, Server, SessionCommand};
use crate::session::Session;
use crate::telemetry::counters::unix_time;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[SessionCommand {
    spec: Command {
        name: "latency",
        arity: Arity::AtLeast(2),
        summary: "A container for latency diagnostics commands.",
        complexity: "Depends on subcommand.",
        syntax: "",
        subcommands: LATENCY,
        help: HELP,
        ..ADMIN
    },
    run: Handler::Inline(latency),
}];

const ADMIN: Command = Command {
    since: "2.8.13",
    group: Group::Server,
    flags: flags::ADMIN | flags::NO_SCRIPT | flags::LOADING | flags::DANGEROUS,
    ..CONNECTION
};

/// What LATENCY HELP shows.
const HELP: &str = "\
DOCTOR
    Return a human readable latency analysis report.
GRAPH <event>
    Return an ASCII latency graph for the <event> class.
HISTORY <event>
    Return time-latency samples for the <event> class.
LATEST
    Return the latest latency samples for all events.
RESET [<event> ...]
    Reset latency data of one or more <event> classes.
    (default: reset all data for all event classes)
HISTOGRAM [COMMAND ...]
    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.
    If no commands are specified then all histograms are replied.";

static LATENCY: &[Command] = &[
    Command {
        name: "doctor",
        arity: Arity::Exactly(2),
        summary: "Returns a human-readable latency analysis report.",
        syntax: "",
        ..ADMIN
    },
    Command {
        name: "graph",
        arity: Arity::Exactly(3),
        summary: "Returns a latency graph for an event.",
        syntax: "event",
        ..ADMIN
    },
    Command {
        name: "help",
        arity: Arity::Exactly(2),
        flags: flags::LOADING,
        summary: "Returns helpful text about the different subcommands.",
        syntax: "",
        ..ADMIN
    },
    Command {
        name: "histogram",
        since: "7.0.0",
        arity: Arity::AtLeast(2),
        summary: "Returns the cumulative distribution of latencies of a subset or all commands.",
        complexity: "O(N) where N is the number of commands with latency information being retrieved.",
        syntax: "command...?",
        ..ADMIN
    },
    Command {
        name: "history",
        arity: Arity::Exactly(3),
        summary: "Returns timestamp-latency samples for an event.",
        syntax: "event",
        ..ADMIN
    },
    Command {
        name: "latest",
        arity: Arity::Exactly(2),
        summary: "Returns the latest latency samples for all events.",
        syntax: "",
        ..ADMIN
    },
    Command {
        name: "reset",
        arity: Arity::AtLeast(2),
        summary: "Resets the latency data for one or more events.",
        syntax: "event...?",
        ..ADMIN
    },
];

fn latency(server: &Server, _: &mut Session, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let name = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    match &*args[1].to_ascii_lowercase() {
        b"latest" => {
            let all = server.telemetry.latency.all();
            out.array(all.len());
            for (kind, series) in all {
                let Some(latest) = series.spikes.back() else { continue };
                out.array(4);
                out.bulk(kind.as_bytes());
                out.integer(latest.at as i64);
                out.integer(latest.millis as i64);
                out.integer(series.most_millis as i64);
            }
        }
        b"doctor" => {
            let threshold = server.config.latency_monitor_threshold.get();
            let text = report::doctor(&server.telemetry.latency.all(), threshold, unix_time().as_secs());
            out.verbatim("txt", text.as_bytes());
        }
        b"graph" => {
            let wanted = name(args[2]);
            let found = server.telemetry.latency.all().into_iter().find(|(kind, _)| *kind == wanted);
            let (kind, series) = found.ok_or_else(|| {
                CommandError::owned(format!("ERR No samples available for event '{wanted}'"))
            })?;
            out.verbatim("txt", report::graph(kind, &series, unix_time().as_secs()).as_bytes());
        }
        b"history" => {
            let wanted = name(args[2]);
            let found = server.telemetry.latency.all().into_iter().find(|(kind, _)| *kind == wanted);
            let spikes = found.map(|(_, series)| series.spikes).unwrap_or_default();
            out.array(spikes.len());
            for spike in spikes {
                out.array(2);
                out.integer(spike.at as i64);
                out.integer(spike.millis as i64);
            }
        }
        b"histogram" => super::calls::histogram(server, args.rest(2), out),
        b"reset" => {
            let mut kinds: Vec<String> = args.rest(2).iter().map(|word| name(word)).collect();
            if kinds.is_empty() {
                kinds = server.telemetry.latency.all().into_iter().map(|(kind, _)| kind.to_owned()).collect();
            }
            out.count(kinds.iter().filter(|kind| server.telemetry.latency.forget(kind)).count());
        }
        _ => reply::help(out, "LATENCY", HELP),
    }
    Ok(())
}
