//! INFO, CONFIG, PING and what else is about the server as a whole.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use script::Compilation;
use store::Store;
use store::client::Member;
use store_engine::keyspace::Sticky;
use store_engine::reply;
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, DATABASES, Group, Reply};

use super::replicaof;
use super::rows::{CONNECTION, REDIS_VERSION};
use crate::acl::log::Reason;
use crate::config::{Config, OF_DATA};
use crate::process::{descriptors, version};
use crate::scripting;
use crate::server::{AsyncHandler, Handler, Server, SessionCommand};
use crate::session::following::Mode;
use crate::session::tracking::Sizes;
use crate::session::{DataAccess, Session};
use crate::telemetry::counters::{resident_bytes, unix_time};
use crate::telemetry::log;
use crate::telemetry::rates::human;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "info",
            arity: Arity::AtLeast(1),
            flags: flags::DANGEROUS,
            summary: "Returns information and statistics about the server.",
            syntax: "section...?",
            ..SERVER
        },
        run: Handler::Inline(info),
    },
    SessionCommand {
        spec: Command {
            name: "config",
            since: "2.0.0",
            arity: Arity::AtLeast(2),
            summary: "A container for server configuration commands.",
            complexity: "Depends on subcommand.",
            syntax: "",
            subcommands: CONFIG,
            help: HELP,
            ..ADMIN
        },
        run: Handler::Async(AsyncHandler {
            data_access: DataAccess::Nothing,
            ..AsyncHandler::new(|server, _, args, out| Box::pin(configure(server, args, out)))
        }),
    },
    SessionCommand {
        spec: Command {
            name: "time",
            since: "2.6.0",
            flags: flags::FAST,
            summary: "Returns the server time.",
            syntax: "",
            ..SERVER
        },
        run: Handler::Inline(|_, _, _, out| {
            scripting::reply_time(unix_time(), out);
            Ok(())
        }),
    },
    SessionCommand {
        spec: Command {
            name: "debug",
            arity: Arity::AtLeast(2),
            summary: "A container for debugging commands.",
            complexity: "Depends on subcommand.",
            syntax: "",
            ..ADMIN
        },
        run: Handler::Inline(|_, _, _, _| {
            Err(CommandError::new("ERR DEBUG is not available on this server"))
        }),
    },
];

const SERVER: Command = Command { group: Group::Server, ..CONNECTION };
const ADMIN: Command = Command { flags: flags::NO_SCRIPT | flags::ADMIN | flags::DANGEROUS, ..SERVER };

/// What CONFIG HELP shows.
const HELP: &str = "\
GET <pattern>
    Return parameters matching the glob-like <pattern> and their values.
SET <directive> <value>
    Set the configuration <directive> to <value>.
RESETSTAT
    Reset statistics reported by the INFO command.
REWRITE
    Rewrite the configuration file.";

static CONFIG: &[Command] = &[
    Command {
        name: "get",
        since: "2.0.0",
        arity: Arity::AtLeast(3),
        summary: "Returns the effective values of configuration parameters.",
        complexity: "O(N) when N is the number of configuration parameters provided",
        syntax: "parameter(parameter)...",
        ..ADMIN
    },
    Command {
        name: "help",
        since: "5.0.0",
        arity: Arity::Exactly(2),
        summary: "Returns helpful text about the different subcommands.",
        syntax: "",
        ..ADMIN
    },
    Command {
        name: "resetstat",
        since: "2.0.0",
        arity: Arity::Exactly(2),
        summary: "Resets the server's statistics.",
        syntax: "",
        ..ADMIN
    },
    Command {
        name: "rewrite",
        since: "2.8.0",
        arity: Arity::Exactly(2),
        summary: "Persists the effective configuration to file.",
        syntax: "",
        ..ADMIN
    },
    Command {
        name: "set",
        since: "2.0.0",
        arity: Arity::AtLeast(4),
        summary: "Sets configuration parameters in-flight.",
        complexity: "O(N) when N is the number of configuration parameters provided",
        syntax: "parameter_value(parameter value)...",
        ..ADMIN
    },
];

/// Those settings that hold where the data is.
fn of_data(pairs: &[(&[u8], &[u8])]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pairs = pairs.iter().map(|(name, value)| (text(name).to_ascii_lowercase(), text(value)));
    pairs.filter(|(name, _)| OF_DATA.contains(&name.as_str())).collect()
}

/// CONFIG.
async fn configure(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        b"get" => {
            let rows = server.config.get(args.rest(2));
            out.map(rows.len());
            for (name, value) in rows {
                out.bulk(name.as_bytes());
                out.bulk(value.as_bytes());
            }
        }
        b"set" => {
            if !args.len().is_multiple_of(2) {
                return Err(store_engine::error::wrong_arity("config|set"));
            }
            let pairs: Vec<_> = args.rest(2).chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            if let Store::Distributed(cluster) = &server.store {
                // First those who may refuse it: all parameters change, or none.
                Config::check(&pairs)?;
                cluster.configure(of_data(&pairs), false).await?;
            }
            server.config.set(&pairs)?;
            if pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"requirepass")) {
                server.acl.require(&server.config.requirepass.get());
            }
            log::follow(&server.config);
            if pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"maxclients")) {
                descriptors::fit_clients(&server.config);
            }
            match &server.store {
                Store::Local(node) => server.config.apply_settings_of_data(node),
                Store::Distributed(cluster) => {
                    cluster.set_sparse_limit(server.config.sparse_limit());
                }
            }
            out.ok();
        }
        b"resetstat" => {
            server.telemetry.counters.reset();
            server.telemetry.calls.reset();
            server.telemetry.errors.reset();
            server.store.reset_counts().await?;
            out.ok();
        }
        b"rewrite" => {
            server.config.rewrite()?;
            out.ok();
        }
        _ => reply::help(out, "CONFIG", HELP),
    }
    Ok(())
}

/// A section of INFO: its name and its writer.
type Section = (&'static str, fn(&Server, &mut String));

static SECTIONS: &[Section] = &[
    ("server", server_section),
    ("clients", clients_section),
    ("memory", memory_section),
    ("persistence", persistence_section),
    ("stats", stats_section),
    ("replication", |server, text| replicaof::describe(&server.sessions.following, text)),
    ("cpu", |_, text| cpu_section(text)),
    ("scripts", scripts_section),
    ("commandstats", super::calls::commandstats),
    ("errorstats", |server, text| super::calls::errorstats(&server.telemetry, text)),
    ("latencystats", super::calls::latencystats),
    ("cluster", |server, text| cluster_section(&server.config, text)),
    ("stores", |server, text| stores_section(&server.store, text)),
    ("keyspace", |server, text| keyspace_section(&server.store, text)),
];

/// Sections that are long, and shown only on request, or with all.
const RARE: &[&str] = &["commandstats", "latencystats"];

fn info(server: &Server, _: &mut Session, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let wanted: Vec<String> =
        args.rest(1).iter().map(|name| String::from_utf8_lossy(name).to_lowercase()).collect();
    let has = |word: &str| wanted.iter().any(|wanted| wanted == word);
    let everything = has("all") || has("everything");
    let usual = everything || wanted.is_empty() || has("default");
    let mut text = String::new();
    for (name, write) in SECTIONS {
        let is_shown = if RARE.contains(name) { everything } else { usual };
        if !is_shown && !has(name) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut title = (*name).to_owned();
        title[..1].make_ascii_uppercase();
        if *name == "cpu" {
            title.make_ascii_uppercase();
        }
        text.push_str(&format!("# {title}\r\n"));
        write(server, &mut text);
    }
    out.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Appends `name:value` lines; writing to a string cannot fail.
macro_rules! lines {
    ($text:expr, $($name:literal: $value:expr),+ $(,)?) => {
        $( let _ = write!($text, concat!($name, ":{}\r\n"), $value); )+
    };
}

fn server_section(server: &Server, text: &mut String) {
    let uptime = server.process.started.elapsed().as_secs();
    lines!(text,
        "redis_version": REDIS_VERSION,
        "redis_git_sha1": version::COMMIT,
        "redis_mode": server.config.mode(),
        "moonshard_version": env!("CARGO_PKG_VERSION"),
        "os": std::env::consts::OS,
        "arch_bits": usize::BITS,
        "multiplexing_api": "epoll",
        "process_id": std::process::id(),
        "run_id": server.process.run_id,
        "tcp_port": server.process.resp_addr.port(),
        "server_time_usec": unix_time().as_micros(),
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime / 86_400,
        "hz": server.config.hz.get(),
        "config_file": server.config.file().unwrap_or_default().display(),
        "io_threads": server.config.threads.get(),
        "shards": server.store.shards(),
    );
}

fn clients_section(server: &Server, text: &mut String) {
    lines!(text,
        "connected_clients": server.telemetry.counters.connections.load(Ordering::Relaxed),
        "maxclients": server.most_connections(),
        "tracking_clients": server.sessions.tracking.sizes().clients,
        "blocked_clients": server.blocked_clients(),
    );
}

/// A parameter as CONFIG GET shows it.
fn value_of(config: &Config, name: &str) -> String {
    config.get(&[name.as_bytes()]).into_iter().map(|(_, value)| value).collect()
}

fn memory_section(server: &Server, text: &mut String) {
    let usage = server.store.usage();
    let (_, script_bytes) = server.scripting.cache.usage();
    let mut sticky = Sticky::default();
    usage.sticky.iter().for_each(|part| sticky += *part);
    let (used, resident, most) = (usage.bytes as u64, resident_bytes(), server.config.maxmemory.get());
    let peak = server.telemetry.rate_sampler.peak(used);
    lines!(text,
        "used_memory": used,
        "used_memory_human": human(used),
        "used_memory_rss": resident,
        "used_memory_rss_human": human(resident),
        "used_memory_peak": peak,
        "used_memory_peak_human": human(peak),
        "used_memory_peak_perc": format_args!("{:.2}%", 100.0 * used as f64 / peak.max(1) as f64),
        "used_memory_dataset": used,
        "used_memory_scripts": script_bytes,
        "used_memory_functions": server.scripting.functions.libraries().bytes(),
        "mem_clients_slaves": 0,
        "mem_clients_normal": server.sessions.client_bytes(),
        "maxmemory": most,
        "maxmemory_human": human(most),
        "maxmemory_policy": value_of(&server.config, "maxmemory-policy"),
        "sticky_keys": sticky.keys,
        "sticky_bytes": sticky.bytes,
        "mem_allocator": "mimalloc",
        "lazyfree_pending_bytes": store_engine::discard::bytes_to_free(),
    );
}

fn persistence_section(server: &Server, text: &mut String) {
    let is_loading = server.sessions.following.mode() == Mode::Loading;
    crate::process::persistence::describe(&server.store, is_loading, text);
}

fn stats_section(server: &Server, text: &mut String) {
    let (counters, keys) = (&server.telemetry.counters, server.store.counts_since_reset());
    let of = |counter: &AtomicU64| counters.since_reset(counter);
    let [calls, came, went] = server.telemetry.rate_sampler.rates();
    let [channels, patterns, shard_channels] = server.sessions.pubsub.sizes();
    let Sizes { keys: tracked, items, prefixes, bytes: tracking_bytes, .. } =
        server.sessions.tracking.sizes();
    lines!(text,
        "total_connections_received": of(&counters.connections_total),
        "total_commands_processed": of(&counters.commands),
        "instantaneous_ops_per_sec": calls,
        "total_net_input_bytes": of(&counters.bytes_in),
        "total_net_output_bytes": of(&counters.bytes_out),
        "instantaneous_input_kbps": format_args!("{:.2}", came as f64 / 1024.0),
        "instantaneous_output_kbps": format_args!("{:.2}", went as f64 / 1024.0),
        "rejected_connections": of(&counters.connections_refused),
        "expired_keys": keys.expired,
        "expired_fields": keys.expired_fields,
        "evicted_keys": keys.evicted,
        "evicted_clients": of(&counters.clients_evicted),
        "keyspace_hits": keys.hits,
        "keyspace_misses": keys.misses,
        "pubsub_channels": channels,
        "pubsub_patterns": patterns,
        "pubsubshard_channels": shard_channels,
        "total_error_replies": server.telemetry.errors.all_since_reset(),
        "tracking_total_keys": tracked,
        "tracking_total_items": items,
        "tracking_total_prefixes": prefixes,
        "tracking_total_bytes": tracking_bytes,
        "client_output_buffer_limit_disconnections": of(&counters.slow_clients_cut),
        "acl_access_denied_auth": server.acl.log.count(Reason::Auth),
        "acl_access_denied_cmd": server.acl.log.count(Reason::Command),
        "acl_access_denied_key": server.acl.log.count(Reason::Key),
        "acl_access_denied_channel": server.acl.log.count(Reason::Channel),
    );
}

fn cluster_section(config: &Config, text: &mut String) {
    lines!(text, "cluster_enabled": u8::from(config.cluster_enabled.get()));
}

fn cpu_section(text: &mut String) {
    let (user, system) = crate::telemetry::counters::cpu_seconds();
    let _ = write!(text, "used_cpu_sys:{system:.6}\r\nused_cpu_user:{user:.6}\r\n");
}

fn scripts_section(server: &Server, text: &mut String) {
    let running = server.scripting.runtime.active();
    let (known, bytes) = server.scripting.cache.usage();
    let (libraries, functions) = server.scripting.functions.libraries().counts();
    let of = |counter: &AtomicU64| server.telemetry.counters.since_reset(counter);
    let tier = server.scripting.runtime.tier_report();
    lines!(text,
        "number_of_cached_scripts": known,
        "cached_scripts_bytes": bytes,
        "number_of_libraries": libraries,
        "number_of_functions": functions,
        "evicted_scripts": server.scripting.cache.evicted(),
        "scripts_running": running,
        "scripts_waiting": server.scripting.runs.len().saturating_sub(running),
        "scripts_run": of(&server.telemetry.counters.scripts_run),
        "scripts_rerun": of(&server.telemetry.counters.scripts_rerun),
        "scripts_killed": of(&server.telemetry.counters.scripts_killed),
        "undeclared_keys": of(&server.telemetry.counters.undeclared_keys),
        "undeclared_refused": of(&server.telemetry.counters.undeclared_refused),
        "script_traps": of(&server.telemetry.counters.script_traps),
        "script_instances_created": server.scripting.runtime.instances_made(),
        "script_compiled_runs": tier.runs,
        "script_machine_code_bytes": tier.code_bytes,
        "script_compilation_usec": tier.micros,
    );
    for (outcome, count) in Compilation::ALL.iter().zip(tier.outcomes) {
        let _ = write!(text, "script_compilations_{}:{count}\r\n", outcome.name());
    }
    for (limit, count) in server.scripting.runtime.limits_hit() {
        let _ = write!(text, "script_limit_{}:{count}\r\n", limit.name());
    }
}

fn stores_section(store: &Store, text: &mut String) {
    let members = store.cluster().map_or_else(Vec::new, |cluster| cluster.members());
    lines!(text, "stores": members.len());
    if let Some(cluster) = store.cluster() {
        lines!(text, "stores_epoch": cluster.map().epoch());
    }
    for (number, member) in members.iter().enumerate() {
        let Member { node, count, keys, epoch, prepared, decided, in_doubt, contradicted, up, clock, .. } =
            member;
        let state = up.as_ref().map_or("down", |()| "up");
        let _ = write!(
            text,
            "store{number}:addr={node},state={state},slots={count},keys={keys},epoch={epoch},\
             prepared={prepared},decided={decided},in_doubt={in_doubt},contradicted={contradicted}"
        );
        if let Some(clock) = clock {
            let _ = write!(text, ",clock_ahead_ms={},clock_error_ms={}", clock.ahead_ms, clock.error_ms);
        }
        if let Err(why) = up {
            let _ = write!(text, ",why={}", why.to_string().replace(['\r', '\n', ','], " "));
        }
        text.push_str("\r\n");
    }
}

fn keyspace_section(store: &Store, text: &mut String) {
    let usage = store.usage();
    for db in (0..DATABASES).filter(|db| usage.keys[*db] > 0) {
        let (keys, expiring, Sticky { keys: sticky, bytes, .. }) =
            (usage.keys[db], usage.expiring[db], usage.sticky[db]);
        let _ = write!(
            text,
            "db{db}:keys={keys},expires={expiring},avg_ttl=0,sticky_keys={sticky},sticky_bytes={bytes}\r\n"
        );
    }
}
