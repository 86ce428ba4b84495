//! MEMORY, as far as it is about the process; what a key takes, the engine knows.

use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply};

use super::rows::CONNECTION;
use crate::server::{Handler, Server, SessionCommand};
use crate::session::Session;
use crate::telemetry::counters::{allocator_report, give_back_memory, peak_bytes, resident_bytes};

/// The rows of this family: subcommands of the engine's MEMORY.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command { name: "memory|doctor", summary: "Reports memory problems of the server.", ..MEMORY },
        run: Handler::Inline(doctor),
    },
    SessionCommand {
        spec: Command {
            name: "memory|malloc-stats",
            summary: "Returns the statistics of the memory allocator.",
            ..MEMORY
        },
        run: Handler::Inline(|_, _, _, out| {
            out.verbatim("txt", &allocator_report());
            Ok(())
        }),
    },
    SessionCommand {
        spec: Command { name: "memory|purge", summary: "Releases unused memory of the allocator.", ..MEMORY },
        run: Handler::Inline(|_, _, _, out| {
            give_back_memory();
            out.ok();
            Ok(())
        }),
    },
    SessionCommand {
        spec: Command { name: "memory|stats", summary: "Returns memory usage by category.", ..MEMORY },
        run: Handler::Inline(stats),
    },
];

const MEMORY: Command = Command {
    group: Group::Server,
    since: "4.0.0",
    arity: Arity::Exactly(2),
    flags: flags::RANDOM,
    complexity: "O(1)",
    syntax: "",
    ..CONNECTION
};

/// What is accounted for, beside what the process occupies.
struct MemoryAccount {
    dataset: u64,
    keys: u64,
    scripts: u64,
    libraries: u64,
    clients: u64,
    resident: u64,
    peak: u64,
}

impl MemoryAccount {
    fn of(server: &Server) -> MemoryAccount {
        let usage = server.store.usage();
        let resident = resident_bytes();
        MemoryAccount {
            dataset: usage.bytes as u64,
            keys: usage.keys.iter().sum::<usize>() as u64,
            scripts: server.scripting.cache.usage().1 as u64,
            libraries: server.scripting.functions.libraries().bytes() as u64,
            clients: server.sessions.client_bytes() as u64,
            resident,
            peak: peak_bytes().max(resident),
        }
    }

    fn total(&self) -> u64 {
        self.dataset + self.scripts + self.libraries + self.clients
    }
}

/// A share that is none of nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// By the names that Redis has for them. What has no meaning here is left out.
fn stats(server: &Server, _: &mut Session, _: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let account = MemoryAccount::of(server);
    let total = account.total();
    let numbers = [
        ("peak.allocated", account.peak),
        ("total.allocated", total),
        ("clients.slaves", 0),
        ("clients.normal", account.clients),
        ("lua.caches", account.scripts),
        ("functions.caches", account.libraries),
        ("overhead.total", total - account.dataset),
        ("keys.count", account.keys),
        ("keys.bytes-per-key", account.dataset.checked_div(account.keys).unwrap_or(0)),
        ("dataset.bytes", account.dataset),
        ("allocator.resident", account.resident),
        ("fragmentation.bytes", account.resident.saturating_sub(total)),
    ];
    let shares = [
        ("dataset.percentage", 100.0 * ratio(account.dataset, total)),
        ("peak.percentage", 100.0 * ratio(account.resident, account.peak)),
        ("fragmentation", ratio(account.resident, total)),
    ];
    out.map(numbers.len() + shares.len());
    for (name, number) in numbers {
        out.bulk(name.as_bytes());
        out.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
    for (name, ratio) in shares {
        out.bulk(name.as_bytes());
        out.double(ratio);
    }
    Ok(())
}

/// From how many bytes on what the process itself takes does not hide the rest.
const ENOUGH: u64 = 64 << 20;

fn doctor(server: &Server, _: &mut Session, _: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let account = MemoryAccount::of(server);
    let (total, limit) = (account.total(), server.config.maxmemory.get());
    let mb = |bytes: u64| bytes >> 20;
    let mut findings = Vec::new();
    if limit > 0 && account.dataset > limit / 10 * 9 {
        findings.push(format!(
            "Nearly full: keys and values use {} of {} MB. Raise maxmemory, or choose a maxmemory-policy that \
             evicts keys.",
            mb(account.dataset),
            mb(limit)
        ));
    }
    if total >= ENOUGH && account.resident > total / 2 * 3 + ENOUGH {
        findings.push(format!(
            "Unused memory: the process occupies {} MB, of which {} MB are in use. If many keys were deleted, \
             MEMORY PURGE releases some of it.",
            mb(account.resident),
            mb(total)
        ));
    }
    if account.scripts > ENOUGH && account.scripts > account.dataset {
        findings.push(format!(
            "Cached scripts use {} MB, more than the data. Pass values that differ between calls as KEYS and \
             ARGV instead of generating a script for each call.",
            mb(account.scripts)
        ));
    }
    let text = match findings.is_empty() {
        true => format!("No problems found: {} keys use {} MB.", account.keys, mb(total)),
        false => findings.join("\n"),
    };
    out.verbatim("txt", text.as_bytes());
    Ok(())
}
