//! The page of all commands: which are supported, different, absent, or this server's own.

use std::fmt::Write as _;

use store_engine::{Command, syntax};

use crate::admission::is_for_scripts;
use crate::commands::table::FAMILIES;
use crate::server::{Registry, Row};

/// Commands that Redis 7.0 does not have.
const ADDED: &[(&str, &str)] = &[
    (
        "CLIENT MAINT_NOTIFICATIONS",
        "as in Redis Software, over RESP3: SIGTERM sends MOVING, and the connection is served for six seconds more. No endpoint is named",
    ),
    (
        "CLIENT NO-TOUCH",
        "as in Redis 7.2; over store nodes, values that a script or transaction fetches count as used",
    ),
    ("CLIENT SETINFO", "as in Redis 7.2"),
    ("CLIENT TRACEPARENT", "sets the trace context of the next requests of the connection"),
    ("CLUSTER SLOT-STATS", "as in Redis 8.2 and Valkey 8, with `key-count` alone, of database 0"),
    ("DELEX", "as in Redis 8.4"),
    ("DELIFEQ", "as in Valkey 9"),
    ("DIGEST", "as in Redis 8.4"),
    ("HEXPIRE", "as in Redis 7.4 and Valkey 9, with the texts of Valkey"),
    ("HEXPIREAT", "as in Redis 7.4 and Valkey 9, with the texts of Valkey"),
    ("HEXPIRETIME", "as in Redis 7.4 and Valkey 9: rounded to the nearest second, as in Valkey"),
    ("HGETDEL", "as in Redis 8.0 and Valkey 9.1"),
    ("HGETEX", "as in Redis 8.0 and Valkey 9"),
    ("HPERSIST", "as in Redis 7.4 and Valkey 9"),
    ("HPEXPIRE", "as in Redis 7.4 and Valkey 9, with the texts of Valkey"),
    ("HPEXPIREAT", "as in Redis 7.4 and Valkey 9, with the texts of Valkey"),
    ("HPEXPIRETIME", "as in Redis 7.4 and Valkey 9"),
    ("HPTTL", "as in Redis 7.4 and Valkey 9"),
    ("HSETEX", "as in Redis 8.0 and Valkey 9, which also has the options NX and XX of the key"),
    ("HTTL", "as in Redis 7.4 and Valkey 9: rounded to the nearest second, as in Valkey"),
    ("INCREX", "as in Redis 8.8, with NX, XX and the texts of Valkey 9.2"),
    ("JSON.ARRAPPEND", "as in RedisJSON 2.6"),
    ("JSON.ARRINDEX", "as in RedisJSON 2.6"),
    ("JSON.ARRINSERT", "as in RedisJSON 2.6"),
    ("JSON.ARRLEN", "as in RedisJSON 2.6"),
    ("JSON.ARRPOP", "as in RedisJSON 2.6, without FORMAT"),
    ("JSON.ARRTRIM", "as in RedisJSON 2.6"),
    ("JSON.CLEAR", "as in RedisJSON 2.6"),
    ("JSON.DEBUG HELP", "as in RedisJSON 2.6"),
    ("JSON.DEBUG MEMORY", "as in RedisJSON 2.6"),
    ("JSON.DEL", "as in RedisJSON 2.6"),
    ("JSON.FORGET", "as in RedisJSON 2.6"),
    ("JSON.GET", "as in RedisJSON 2.6, without FORMAT"),
    ("JSON.MERGE", "as in RedisJSON 2.6, without FORMAT"),
    ("JSON.MGET", "as in RedisJSON 2.6"),
    ("JSON.MSET", "as in RedisJSON 2.6"),
    ("JSON.NUMINCRBY", "as in RedisJSON 2.6; `ERR numeric overflow` as in Redis 8"),
    ("JSON.NUMMULTBY", "as in RedisJSON 2.6; `ERR numeric overflow` as in Redis 8"),
    ("JSON.OBJKEYS", "as in RedisJSON 2.6"),
    ("JSON.OBJLEN", "as in RedisJSON 2.6"),
    ("JSON.RESP", "as in RedisJSON 2.6"),
    ("JSON.SET", "as in RedisJSON 2.6, without FORMAT"),
    ("JSON.STRAPPEND", "as in RedisJSON 2.6"),
    ("JSON.STRLEN", "as in RedisJSON 2.6"),
    ("JSON.TOGGLE", "as in RedisJSON 2.6"),
    ("JSON.TYPE", "as in RedisJSON 2.6"),
    ("MSETEX", "as in Redis 8.4"),
    ("OBJECT STICKY", "whether a key is sticky"),
    ("SCRIPT FLAGS", "adds flags and options to those of a script"),
    ("SCRIPT LATENCY", "how long the runs of each script took"),
    ("SCRIPT LIST", "digest and text of each script"),
    ("SCRIPT RUNNING", "scripts that run or wait"),
    ("SCRIPT SHOW", "the text of a script"),
    ("SCRIPT STATS", "what the runs of scripts did and used"),
    ("STICK", "marks keys as sticky: they are never evicted (Dragonfly's command)"),
    ("UNSTICK", "removes that mark"),
    (
        "WAITAOF",
        "as in Redis 7.2: with numlocal 1 waits until all changes of all clients are on disk, over store nodes on all of them",
    ),
    ("XACKDEL", "as in Redis 8.2"),
    ("XDELEX", "as in Redis 8.2"),
];

/// Commands that behave differently from Redis 7.0.15.
const DIFFERENT: &[(&str, &str)] = &[
    ("ACL GETUSER", "has one more field for a user with `limit:` rules"),
    (
        "ACL SETUSER",
        "has `limit:` rules besides. Refuses `+command\\|word` with blanks in the word, and unclosed quotes within parentheses: Redis takes the former and cannot load what it saves then, and turns the latter into a selector without rules. Where a rule in parentheses has quotes, `ACL LIST` quotes it, and it shows the pattern `*` beside others as `%RW~*`, which can be given again",
    ),
    ("BGREWRITEAOF", "writes the journal into the checkpoint, as BGSAVE does"),
    ("BGSAVE", "writes the journal into the checkpoint; no RDB file is written, see `moonshard backup`"),
    ("CLIENT KILL", "has the option MAXAGE, as in Redis 7.4"),
    (
        "CLIENT LIST",
        "`argv-mem`, `rbs` and `rbp` are 0: a call is read where it has arrived (`qbuf`), and a connection has a reply buffer only while replies are written (`obl`). Flag `d` covers keys that are watched in this process; flag `c` is never shown. `lib-name` and `lib-ver` are shown if the client has set them",
    ),
    (
        "CLIENT PAUSE",
        "pauses the clients of this gateway. In one process no key expires meanwhile; keys on store nodes do, since other gateways go on",
    ),
    (
        "CLUSTER COUNTKEYSINSLOT",
        "not callable in scripts, as it looks at keys that the script may have locked",
    ),
    ("CLUSTER GETKEYSINSLOT", "not callable in scripts, as it looks at keys that the script may have locked"),
    ("CLUSTER INFO", "with `cluster-enabled yes` a gateway presents itself as one node that owns all slots"),
    (
        "CLUSTER NODES",
        "one node that owns all slots, whatever `cluster-enabled` says; so do SLOTS and SHARDS, with the address of `cluster-announce`",
    ),
    ("COMMAND GETKEYS", "refuses a count such as `1e5`, which Redis reads as 1"),
    (
        "CONFIG GET",
        "answers the parameters of this server, and what is true of it for well-known parameters of redis.conf",
    ),
    ("CONFIG SET", "`hz` is refused outside of 1 to 500, where Redis takes the nearest value"),
    (
        "EVAL",
        "runs in a sandbox with a budget; a script that is ended by a limit, a kill or a lost client is rolled back",
    ),
    (
        "FCALL",
        "every call sees the library as it was when it was loaded: a library's own variables do not outlive the call",
    ),
    ("FUNCTION KILL", "also ends functions that have written; their writes are rolled back"),
    (
        "FUNCTION LOAD",
        "the first line of a library also takes options such as `fuel=N` and `on-error=rollback`",
    ),
    ("HLEN", "counts fields whose time is over until they are removed, as Valkey 9 does"),
    ("HSCAN", "has the option NOVALUES, as in Redis 7.4"),
    (
        "INFO",
        "`used_memory` is the memory of keys and values alone, so there is no ratio to `used_memory_rss`; fields about forks, replication and Redis' allocator are left out",
    ),
    (
        "MIGRATE",
        "moves keys in batches of 64: those of a batch are locked meanwhile, and other clients are served. Nothing is sent before AUTH and \
         SELECT have succeeded. A port without a listener is an error of connecting, where Redis says writing. Not within MULTI, and not \
         callable in scripts. `migrate-hosts` says which hosts are allowed",
    ),
    ("PSYNC", SYNC),
    (
        "PUBLISH",
        "over store nodes, subscribers of a gateway that does not answer within half a second are not counted",
    ),
    (
        "REPLCONF",
        "`capa eof` and `rdb-filter-only` count for the next SYNC or PSYNC of the connection; other options of replicas are ignored",
    ),
    (
        "REPLICAOF",
        "follows Redis or Valkey, see the chapter on moving from Redis; another Moonshard sends no changes. Over store nodes this gateway \
         applies the changes, and other gateways refuse writes as well. Not within MULTI",
    ),
    ("RESTORE", "has the option STICK, which marks the key as sticky"),
    ("ROLE", "a master has no replicas"),
    (
        "SAVE",
        "writes the journal into the checkpoint, if there is one; no RDB file is written, see `moonshard backup`",
    ),
    (
        "SCRIPT KILL",
        "also ends scripts that have written; their writes are rolled back. Takes a digest, or CLIENT and a client id",
    ),
    (
        "SET",
        "has the option STICK, which marks the key as sticky, IFEQ as in Valkey 8.1, and IFNE, IFDEQ and IFDNE as in Redis 8.4",
    ),
    ("SLAVEOF", "as REPLICAOF"),
    (
        "SORT",
        "compares whole texts, where Redis stops at their first zero byte; a weight is a number or not, where Redis also looks at what an earlier call left in `errno`",
    ),
    ("SYNC", SYNC),
    ("WAIT", "there are no replicas: waits for the timeout and answers 0"),
    ("XADD", "has the options KEEPREF, DELREF and ACKED, as in Redis 8.2"),
    (
        "XAUTOCLAIM",
        "takes any `COUNT`; Redis refuses one that it has no memory for, whether there are entries or not",
    ),
    (
        "XREAD",
        "a blocked client goes on waiting if what came was trimmed or removed at once, where Redis answers with no entries. The ID `+` means the last entry, as in Redis 7.4",
    ),
    (
        "XREADGROUP",
        "a blocked client goes on waiting if what came was trimmed or removed at once, where Redis answers with no entries. Has the option CLAIM, as in Redis 8.4; a blocked client looks at most every 20 ms for what it can claim",
    ),
    ("XTRIM", "has the options KEEPREF, DELREF and ACKED, as in Redis 8.2"),
    ("ZRANK", "has the option WITHSCORE, as in Redis 7.2"),
    ("ZREVRANK", "has the option WITHSCORE, as in Redis 7.2"),
];

const SYNC: &str = "for backups, as `redis-cli --rdb` makes them: sends all data as an RDB file, and no changes after it, as there \
                    are no replicas. Needs `REPLCONF capa eof`; one at a time. Refused over HTTP and gRPC";

/// Commands that only answer with an error.
const REFUSED: &[(&str, &str)] = &[
    ("CLUSTER ADDSLOTS", MANAGED),
    ("CLUSTER ADDSLOTSRANGE", MANAGED),
    ("CLUSTER BUMPEPOCH", MANAGED),
    ("CLUSTER DELSLOTS", MANAGED),
    ("CLUSTER DELSLOTSRANGE", MANAGED),
    ("CLUSTER FAILOVER", "there are no replicas"),
    ("CLUSTER FLUSHSLOTS", MANAGED),
    ("CLUSTER FORGET", MANAGED),
    ("CLUSTER MEET", MANAGED),
    ("CLUSTER REPLICATE", MANAGED),
    ("CLUSTER RESET", MANAGED),
    ("CLUSTER SET-CONFIG-EPOCH", MANAGED),
    ("CLUSTER SETSLOT", MANAGED),
    ("DEBUG", "there is no access to the server's insides"),
    ("FAILOVER", "there are no replicas"),
    ("MODULE LOAD", "there are no modules"),
    ("MODULE LOADEX", "there are no modules"),
    ("MODULE UNLOAD", "there are no modules"),
    ("SCRIPT DEBUG", "`NO` only; the web console steps through scripts"),
];

const MANAGED: &str = "`moonshard topology` adds and removes nodes and moves slots";

/// Commands that a script may not call although their rows allow it: they look at keys that the script may have locked.
const NOT_IN_SCRIPTS: &[&str] = &["CLUSTER COUNTKEYSINSLOT", "CLUSTER GETKEYSINSLOT", "CLUSTER SLOT-STATS"];

/// What a command is to a client of Redis.
fn status(name: &str) -> &'static str {
    let in_list = |list: &[(&str, &str)]| list.iter().any(|(listed, _)| *listed == name);
    if in_list(ADDED) {
        "added"
    } else if in_list(DIFFERENT) {
        "different"
    } else if in_list(REFUSED) {
        "refused"
    } else {
        "supported"
    }
}

/// A command or subcommand with its full name, in capital letters.
struct CommandRow {
    name: String,
    spec: &'static Command,
    scripts: bool,
}

/// All commands in the order of their names, subcommands behind their container.
fn all(registry: &Registry) -> Vec<CommandRow> {
    let mut shown = Vec::new();
    for (spec, inners) in registry.families() {
        let Some(row) = registry.lookup(spec.name.as_bytes()) else { continue };
        let name = spec.name.to_uppercase();
        if !spec.is_container() {
            shown.push(CommandRow { name: name.clone(), spec, scripts: is_for_scripts(row, spec) });
        }
        let own = spec.subcommands.iter().map(|sub| (sub, row));
        let inners = inners.into_iter().filter_map(|inner| {
            let row = registry.lookup(inner.name.as_bytes())?;
            Some((inner, row))
        });
        let mut subcommands: Vec<(String, &'static Command, Row)> = own
            .chain(inners)
            .map(|(sub, row)| {
                let word = sub.name.split_once('|').map_or(sub.name, |(_, word)| word);
                (format!("{name} {}", word.to_uppercase()), sub, row)
            })
            .collect();
        subcommands.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (name, spec, row) in subcommands {
            shown.push(CommandRow { name, spec, scripts: is_for_scripts(row, spec) });
        }
    }
    shown
}

fn list(text: &mut String, title: &str, columns: [&str; 2], rows: &[(&str, &str)]) {
    let [first, second] = columns;
    let _ = write!(text, "## {title}\n\n| {first} | {second} |\n| --- | --- |\n");
    for (name, meaning) in rows {
        let _ = writeln!(text, "| `{name}` | {meaning} |");
    }
    text.push('\n');
}

/// The page.
pub fn page() -> String {
    let registry = Registry::new(FAMILIES);
    let shown = all(&registry);
    let count = |wanted: &str| shown.iter().filter(|shown| status(&shown.name) == wanted).count();
    let intro = format!(
        "All commands and subcommands of Redis 7.0, and those that this server adds: {} behave as in Redis 7.0.15, {} behave \
         differently in a known way, {} exist and are always refused, {} are additions. Random calls are compared with Redis by a test; what is \
         not listed as different is meant to be the same, texts of errors included.",
        count("supported"),
        count("different"),
        count("refused"),
        count("added")
    );
    let mut text = super::page::begin("Commands", &intro);
    list(&mut text, "Always refused", ["command", "why"], REFUSED);
    list(&mut text, "Different from Redis 7.0", ["command", "difference"], DIFFERENT);
    list(&mut text, "Added", ["command", "meaning"], ADDED);
    let mut groups: Vec<&str> = shown.iter().map(|shown| shown.spec.group.name()).collect();
    groups.sort_unstable();
    groups.dedup();
    text.push_str("The column *scripts* says whether a script may call the command.\n\n");
    for group in groups {
        let title = group[..1].to_uppercase() + &group[1..];
        let _ = write!(
            text,
            "## {title}\n\n| command | status | scripts | since | complexity | summary |\n\
             | --- | --- | --- | --- | --- | --- |\n"
        );
        for CommandRow { name, spec, scripts } in
            shown.iter().filter(|shown| shown.spec.group.name() == group)
        {
            let manual = syntax::manual(spec.syntax);
            let call = format!("{name} {manual}").trim_end().replace('|', "\\|");
            let (status, scripts) =
                (status(name), if *scripts && !NOT_IN_SCRIPTS.contains(&&**name) { "yes" } else { "no" });
            let complexity = spec.complexity.replace('|', "\\|");
            let (since, summary) = (spec.since, spec.summary.replace('|', "\\|"));
            let _ =
                writeln!(text, "| `{call}` | {status} | {scripts} | {since} | {complexity} | {summary} |");
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_name_commands_that_exist() {
        let shown = all(&Registry::new(FAMILIES));
        let exists = |name: &str| shown.iter().any(|shown| shown.name == name);
        for (name, _) in ADDED.iter().chain(DIFFERENT).chain(REFUSED) {
            assert!(exists(name), "{name} is no command");
        }
        for list in [ADDED, DIFFERENT, REFUSED] {
            assert!(list.is_sorted_by_key(|(name, _)| *name), "{:?}", list.first());
        }
    }
}
