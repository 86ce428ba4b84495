//! The codes that errors of this server begin with: what each means, and whether a client may send the request again.
//! The HTTP and gRPC listeners take their statuses from here, and the reference lists the rows.

/// Who defined a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrigin {
    /// Redis 7.0, with the same meaning.
    Redis,
    /// This server.
    Own,
    /// This server, for requests that have no reply of Redis: HTTP and gRPC.
    Listener,
}

/// Whether a client may send the same request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nothing was done, and the same request would fail again.
    Never,
    /// Nothing was done; the same request may succeed after a pause.
    Later,
    /// Some or all of it may have been done: the client has to read the data first.
    Check,
}

impl Retry {
    /// As the reference shows it.
    pub const fn label(self) -> &'static str {
        match self {
            Retry::Never => "no",
            Retry::Later => "yes, after a pause",
            Retry::Check => "check first",
        }
    }
}

/// The status codes of gRPC that errors are answered with, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the specification")]
pub enum Grpc {
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Grpc {
    /// As the specification of gRPC writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Grpc::Unknown => "UNKNOWN",
            Grpc::InvalidArgument => "INVALID_ARGUMENT",
            Grpc::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Grpc::NotFound => "NOT_FOUND",
            Grpc::PermissionDenied => "PERMISSION_DENIED",
            Grpc::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Grpc::FailedPrecondition => "FAILED_PRECONDITION",
            Grpc::Aborted => "ABORTED",
            Grpc::Internal => "INTERNAL",
            Grpc::Unavailable => "UNAVAILABLE",
            Grpc::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// A row.
#[derive(Debug)]
pub struct ErrorCode {
    /// The first word of the error's text.
    pub code: &'static str,
    /// Who defined it.
    pub origin: CodeOrigin,
    /// The status of an HTTP response.
    pub http: u16,
    /// The status of a gRPC call.
    pub grpc: Grpc,
    /// Whether the request may be sent again.
    pub retry: Retry,
    /// What happened, and what the client can do.
    pub meaning: &'static str,
}

const fn row(
    code: &'static str,
    origin: CodeOrigin,
    http: u16,
    grpc: Grpc,
    retry: Retry,
    meaning: &'static str,
) -> ErrorCode {
    ErrorCode { code, origin, http, grpc, retry, meaning }
}

use CodeOrigin::{Listener, Own, Redis};
use Retry::{Check, Later, Never};

/// Every code that the server itself answers with. Scripts may make up others.
#[rustfmt::skip]
pub static CODES: &[ErrorCode] = &[
    row("SCRIPTLIMIT", Own, 422, Grpc::ResourceExhausted, Never, "A script reached a limit: fuel, time, memory or size of the reply; the text names the limit and the parameter or rule that sets it. An atomic script's writes were rolled back; what a script with `disable-atomicity` wrote stays. Make the script cheaper, or raise the limit."),
    row("SCRIPTTRAP", Own, 500, Grpc::Internal, Never, "The sandbox failed, or returned an invalid reply. An atomic script's writes were rolled back. Report it as a bug, with the script."),
    row("TXNLIMIT", Own, 422, Grpc::ResourceExhausted, Never, "A `MULTI` transaction needs more memory to be rolled back than `transaction-memory-max`. It was rolled back. Make it smaller, or raise the limit."),
    row("KILLED", Own, 409, Grpc::Aborted, Later, "A script was ended by `SCRIPT KILL` or `FUNCTION KILL`, or a gRPC call by `CLIENT KILL`. An atomic script's writes were rolled back; what a script with `disable-atomicity` sent stays, so check first in that case."),
    row("UNDECLARED", Own, 422, Grpc::Unknown, Never, "A call in a script used a key that is not among its KEYS while `undeclared-keys` is `reject`; the text names the key and who demands it. The call was not made. Declare the key, or allow undeclared keys."),
    row("LIMIT", Own, 429, Grpc::ResourceExhausted, Later, "A `limit:` rule of the user refused the request; the text names the rule. For rates the text has the milliseconds to wait. A script mode that the user may not use is refused with the same code, and a retry does not help then."),
    row("REPLYLIMIT", Own, 422, Grpc::ResourceExhausted, Never, "The reply would exceed the hard limit of `client-output-buffer-limit` (1 GiB without one). Nothing was changed. Ask for less at once."),
    row("UNKNOWN", Own, 500, Grpc::Unknown, Check, "A store node was lost between a write and its answer: the write may or may not have been made."),
    row("CLUSTERDOWN", Redis, 503, Grpc::Unavailable, Later, "The store node of a key cannot be reached, or the gateway has not loaded the users yet. Nothing was done."),
    row("TRYAGAIN", Redis, 503, Grpc::Unavailable, Later, "A store node is shutting down, its slots are moving, the keys are held by a transaction in doubt, or the node was lost before it answered a read. Nothing was changed."),
    row("MISCONF", Redis, 503, Grpc::Unavailable, Check, "The disk cannot be written; the log has the details. While the error lasts, writes are refused and nothing is done. A write that was under way when the error began, and with it each reply of its pipeline, is answered with this code as well: it was made in memory and may not be durable."),
    row("OOM", Redis, 507, Grpc::ResourceExhausted, Later, "Memory has reached `maxmemory` and no key may be evicted. Nothing was done."),
    row("ERR", Redis, 400, Grpc::InvalidArgument, Never, "Any other error, with Redis' text: syntax, wrong number of arguments, values out of range, unknown commands, errors of scripts. Two of them pass: `max number of clients reached`, and an internal error of which the log has more."),
    row("WRONGTYPE", Redis, 409, Grpc::FailedPrecondition, Never, "The key holds another type than the command works on."),
    row("NOAUTH", Redis, 401, Grpc::Unauthenticated, Never, "The connection has to authenticate first. With gRPC also: too many calls without authentication on one connection."),
    row("WRONGPASS", Redis, 401, Grpc::Unauthenticated, Never, "The user does not exist, is off, or the password is wrong."),
    row("NOPERM", Redis, 403, Grpc::PermissionDenied, Never, "The user may not run the command, or not with these keys or channels."),
    row("DENIED", Redis, 503, Grpc::PermissionDenied, Never, "`protected-mode`: a connection from another machine while the user default needs no password. The connection is closed."),
    row("NOSCRIPT", Redis, 404, Grpc::NotFound, Never, "No script with this digest is loaded: use EVAL, or SCRIPT LOAD and then EVALSHA. Client libraries do so themselves. Nothing was done."),
    row("EXECABORT", Redis, 400, Grpc::Aborted, Never, "A command was refused while it was queued, so EXEC did nothing."),
    row("NOTBUSY", Redis, 409, Grpc::FailedPrecondition, Never, "SCRIPT KILL or FUNCTION KILL found nothing to end."),
    row("UNBLOCKED", Redis, 409, Grpc::Aborted, Later, "A blocked call was ended by CLIENT UNBLOCK, or because its stream was removed."),
    row("NOGROUP", Redis, 422, Grpc::Unknown, Never, "The stream or its consumer group does not exist."),
    row("BUSYGROUP", Redis, 422, Grpc::Unknown, Never, "The consumer group exists already."),
    row("BUSYKEY", Redis, 409, Grpc::FailedPrecondition, Never, "RESTORE without REPLACE, and the key exists."),
    row("IOERR", Redis, 503, Grpc::Unavailable, Check, "MIGRATE could not connect to the other server, or lost it. Keys that the other server has acknowledged are deleted; others stay, and the other server may have some of them, too."),
    row("INVALIDOBJ", Redis, 422, Grpc::Unknown, Never, "A string that should be a HyperLogLog is damaged."),
    row("READONLY", Redis, 403, Grpc::FailedPrecondition, Never, "The server follows another one, see REPLICAOF: only that one may be written to."),
    row("LOADING", Redis, 503, Grpc::Unavailable, Later, "The server follows another one, see REPLICAOF, and has only a part of its data yet."),
    row("NOPROTO", Redis, 422, Grpc::Unknown, Never, "HELLO asked for a protocol other than 2 and 3."),
    row("REQUEST", Listener, 400, Grpc::InvalidArgument, Never, "The request is not well formed; 415 if its media type is not accepted."),
    row("FORBIDDEN", Listener, 403, Grpc::PermissionDenied, Never, "A web page of another origin sent the request, or sent it to a host name that the server does not know: see `http-origins` and `http-hosts`."),
    row("NOTFOUND", Listener, 404, Grpc::NotFound, Never, "No such path or key."),
    row("METHOD", Listener, 405, Grpc::InvalidArgument, Never, "The path does not allow the method."),
    row("CHANGED", Listener, 409, Grpc::Aborted, Later, "The key changed its type while its value was read page by page."),
    row("TOOLARGE", Listener, 413, Grpc::ResourceExhausted, Never, "The body is larger than `http-body-max`."),
    row("TIMEOUT", Listener, 504, Grpc::DeadlineExceeded, Check, "`http-timeout-ms` or the deadline of the call has passed. A script that was running is rolled back; commands of a pipeline that ran before stay."),
    row("SHUTDOWN", Listener, 503, Grpc::Unavailable, Later, "The server shuts down and ends an open stream. Continue at another gateway."),
];

/// Codes of Redis that clients know and this server never answers with, and why.
pub static NEVER: &[(&str, &str)] = &[
    ("BUSY", "a running script does not stop other clients"),
    ("UNKILLABLE", "a script that has written can be ended, and its writes are rolled back"),
    ("MASTERDOWN, NOMASTERLINK, NOREPLICAS", "a server that follows another one answers with what it has"),
    ("MOVED, ASK, CROSSSLOT", "every gateway serves all slots, and a command or script may use keys of any"),
];

/// The row of a code.
pub fn of(code: &str) -> Option<&'static ErrorCode> {
    CODES.iter().find(|row| row.code == code)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use store_engine::syntax;

    use super::*;
    use crate::commands::table::FAMILIES;
    use crate::server::Registry;

    /// Upper-case words at the beginning of texts that are no error codes.
    const OTHER_WORDS: &[&str] =
        &["CLASS", "CPU", "FROMLONLAT", "FROMMEMBER", "HOST", "HTTP", "JSON", "POST", "RESP", "SPEC", "TLS"];

    fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in
            fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path())
        {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if entry.is_dir() {
                if !["target", "fuzz", "tests", "trial"].contains(&&*name) {
                    sources(&entry, found);
                }
            } else if name.ends_with(".c") || (name.ends_with(".rs") && !name.ends_with("tests.rs")) {
                found.push(entry);
            }
        }
    }

    /// The first words of texts in a source, without its tests: those in capital letters before a blank, and whole texts
    /// that are given to a function that takes a code.
    fn first_words(source: &str) -> BTreeSet<String> {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let mut words = BTreeSet::new();
        for line in lines {
            for (at, _) in line.match_indices('"') {
                let text = &line[at + 1..];
                let text = text.strip_prefix('-').unwrap_or(text);
                let word: String = text.chars().take_while(char::is_ascii_uppercase).collect();
                let behind = &text[word.len()..];
                let calls = ["Problem::new(StatusCode::", "with(Code::"];
                let alone = line.trim() == format!("\"{word}\",");
                let is_argument = alone || calls.iter().any(|call| line.contains(call));
                if word.len() >= 3 && (behind.starts_with(' ') || (is_argument && behind.starts_with("\",")))
                {
                    words.insert(word);
                }
            }
        }
        words
    }

    #[test]
    fn every_code_in_the_sources_has_a_row() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let mut files = Vec::new();
        ["gateway", "store", "guest-lua/c", "proto/tls"]
            .iter()
            .for_each(|directory| sources(&root.join(directory), &mut files));
        assert!(files.len() > 200, "{} sources", files.len());
        let registry = Registry::new(FAMILIES);
        let mut of_commands: BTreeSet<String> = OTHER_WORDS.iter().map(|word| (*word).to_owned()).collect();
        for number in 0..registry.count() {
            let spec = registry.spec_of(number);
            let manual = syntax::manual(spec.syntax);
            let words = manual.split(|letter: char| !letter.is_ascii_uppercase()).map(str::to_owned);
            of_commands.extend(words.chain([spec.name.to_uppercase()]));
            // HELP begins its lines with subcommands.
            let help = spec.help.lines().filter_map(|line| line.split(' ').next());
            of_commands.extend(help.map(str::to_owned));
        }
        let mut seen = BTreeSet::new();
        let mut missing = Vec::new();
        for file in files {
            let own = file.ends_with("src/codes.rs");
            let words =
                if own { BTreeSet::new() } else { first_words(&fs::read_to_string(&file).expect("text")) };
            for word in words {
                let is_command = of_commands.contains(&word) || registry.lookup(word.as_bytes()).is_some();
                if of(&word).is_none() && !is_command {
                    missing.push(format!("{word} in {}", file.display()));
                }
                seen.insert(word);
            }
        }
        assert!(missing.is_empty(), "no row of CODES for {missing:?}");
        let unused: Vec<&str> =
            CODES.iter().map(|row| row.code).filter(|code| !seen.contains(*code)).collect();
        assert!(unused.is_empty(), "rows that no source answers with: {unused:?}");
    }

    #[test]
    fn rows_are_complete() {
        let codes: BTreeSet<&str> = CODES.iter().map(|row| row.code).collect();
        assert_eq!(codes.len(), CODES.len());
        for row in CODES {
            assert!(row.meaning.ends_with('.') && !row.meaning.contains(['|', '\n']), "{}", row.code);
            assert!((400..=599).contains(&row.http), "{}", row.code);
        }
    }
}
