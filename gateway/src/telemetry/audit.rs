//! Lines of the log about what administrators do and what users are refused.

use std::sync::Arc;

use parking_lot::Mutex;
use store_engine::Args;
use tracing::info;

use crate::config::Config;
use crate::telemetry::arguments::{quote, shortened};
use crate::telemetry::log;

/// Commands with the flag ADMIN that only read, or only concern the connection: monitoring and replicas call them all the time.
pub const LOOK: &[&str] = &[
    "acl|dryrun",
    "acl|getuser",
    "acl|list",
    "acl|users",
    "client|list",
    "cluster|count-failure-reports",
    "cluster|replicas",
    "cluster|slaves",
    "config|get",
    "config|help",
    "lastsave",
    "latency|doctor",
    "latency|graph",
    "latency|histogram",
    "latency|history",
    "latency|latest",
    "module|list",
    "pfdebug",
    "pfselftest",
    "replconf",
    "role",
    "slowlog|get",
    "slowlog|len",
];

/// Commands without it that change something for everybody, or send data elsewhere.
pub const ALSO: &[&str] = &[
    "flushall",
    "flushdb",
    "function|delete",
    "function|flush",
    "function|kill",
    "function|load",
    "function|restore",
    "migrate",
    "script|flags",
    "script|flush",
    "script|kill",
    "swapdb",
];

/// Bits of the parameter audit-log.
const ADMIN: u64 = 1;
const DENIED: u64 = 2;

/// Lines a second about refusals, so that a flood of them does not hide other lines.
const MOST_REFUSALS: u32 = 10;

/// Whose call a line is about.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The name of the user.
    pub user: &'a [u8],
    /// The address of the client.
    pub addr: &'a str,
}

/// A call that was refused.
pub struct Denial<'a> {
    /// Whose it was.
    pub caller: Caller<'a>,
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// What was not allowed: a command, a key, a channel, or to log in.
    pub reason: &'a str,
    /// Where the call came from.
    pub context: &'a str,
    /// The command, key, channel or user.
    pub object: &'a [u8],
}

/// Who writes them.
pub struct Audit {
    config: Arc<Config>,
    /// By the numbers of the registry.
    audited: Box<[bool]>,
    /// The second in which refusals were logged last, and how many.
    refusals: Mutex<(u64, u32)>,
}

impl Audit {
    /// For these commands, by their numbers: the name of each, and whether it has the flag ADMIN.
    pub fn new(config: Arc<Config>, commands: impl Iterator<Item = (String, bool)>) -> Audit {
        let is_audited = |(name, is_admin): (String, bool)| match is_admin {
            true => !LOOK.contains(&&*name),
            false => ALSO.contains(&&*name),
        };
        let audited = commands.map(is_audited).collect();
        Audit { config, audited, refusals: Mutex::default() }
    }

    /// Whether calls of this command are recorded.
    #[inline]
    pub fn concerns(&self, number: u16) -> bool {
        self.audited.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Writes a line about a call, whose reply is this `error` if it is one.
    #[cold]
    pub fn record_call(&self, caller: Caller<'_>, args: Args<'_>, error: Option<&[u8]>) {
        let outcome = match error.map(|error| error.strip_prefix(b"-").unwrap_or(error)) {
            None => "ok".to_owned(),
            // The code word only: texts repeat what was wrong, which may be a password.
            Some(error) => {
                let word = error.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
                word.escape_ascii().to_string()
            }
        };
        self.write(caller, args, &outcome);
    }

    /// Writes a line about a call that a script makes; what becomes of it is known when the script has ended.
    #[cold]
    pub fn record_call_of_script(&self, caller: Caller<'_>, args: Args<'_>) {
        self.write(caller, args, "called by a script");
    }

    fn write(&self, caller: Caller<'_>, args: Args<'_>, outcome: &str) {
        // Nobody turns it off unseen.
        let is_off = self.config.audit_log.get() & ADMIN == 0 && !turns_off(args);
        if is_off || looks(args) {
            return;
        }
        let (user, addr) = (caller.user.escape_ascii(), caller.addr);
        let command = command(args, outcome == "ok");
        info!(target: log::AUDIT, user = %user, addr, command, outcome, "admin");
    }

    /// Writes a line about a call that was refused.
    pub fn record_denial(&self, denial: &Denial<'_>) {
        if self.config.audit_log.get() & DENIED == 0 || !self.has_line(denial.at_ms / 1000) {
            return;
        }
        let Denial { caller: Caller { user, addr }, reason, context, object, .. } = denial;
        let user = user.escape_ascii();
        let object = object[..object.len().min(128)].escape_ascii();
        info!(target: log::AUDIT, user = %user, addr, reason, context, object = %object, "denied");
    }

    /// Whether there may be a line in this second.
    fn has_line(&self, second: u64) -> bool {
        let mut audited = self.refusals.lock();
        if audited.0 != second {
            *audited = (second, 0);
        }
        audited.1 += 1;
        audited.1 <= MOST_REFUSALS
    }
}

fn is(args: Args<'_>, at: usize, word: &str) -> bool {
    args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether a call that might change something only looks.
fn looks(args: Args<'_>) -> bool {
    let shows_log = is(args, 0, "acl") && is(args, 1, "log") && !is(args, 2, "reset");
    // SCRIPT FLAGS without flags.
    let shows_flags = is(args, 0, "script") && is(args, 1, "flags") && args.len() == 3;
    shows_log || shows_flags
}

/// Whether a call may be the end of lines about such calls.
fn turns_off(args: Args<'_>) -> bool {
    is(args, 0, "config") && (2..args.len()).any(|at| is(args, at, "audit-log"))
}

/// A call without what is secret in it. Of users it has what they may do from now on, but no passwords; and nothing of
/// what was not understood, which may be one.
fn command(args: Args<'_>, fine: bool) -> String {
    let of_user = is(args, 0, "acl") && (is(args, 1, "setuser") || is(args, 1, "deluser"));
    let is_password = |arg: &[u8]| matches!(arg.first(), Some(b'>' | b'<' | b'#' | b'!'));
    let mut line = String::new();
    let words = shortened(args);
    // The last one may say how many more there are.
    let kept = if words.len() < args.len() { words.len() - 1 } else { words.len() };
    for (at, word) in words.into_iter().enumerate() {
        let word = match args.get(at).filter(|_| at < kept) {
            Some(arg) if of_user && (at <= 2 || (fine && !is_password(arg))) => {
                arg[..arg.len().min(128)].to_vec()
            }
            _ => word,
        };
        if at > 0 {
            line.push(' ');
        }
        match word.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"') && !word.is_empty() {
            true => line.push_str(&String::from_utf8_lossy(&word)),
            false => quote(&word, &mut line),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str, fine: bool) -> String {
        let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        command(Args::new(&items), fine)
    }

    #[test]
    fn secrets_are_left_out() {
        for (line, fine, wanted) in [
            ("acl setuser u on >pw #abc ~k +get", true, "acl setuser u on (redacted) (redacted) ~k +get"),
            ("ACL SETUSER u pw", false, "ACL SETUSER u (redacted)"),
            ("acl deluser a b", true, "acl deluser a b"),
            ("config set hz 10 requirepass pw", true, "config set hz 10 requirepass (redacted)"),
            ("flushall", true, "flushall"),
        ] {
            assert_eq!(shown(line, fine), wanted);
        }
    }

    #[test]
    fn calls_that_only_read_are_no_changes() {
        for (line, wanted) in [
            ("acl log", true),
            ("acl log reset", false),
            ("script flags 2067d915024a3e1657c4169c84f809f8ebdf5c2c", true),
            ("script flags 2067d915024a3e1657c4169c84f809f8ebdf5c2c no-writes", false),
        ] {
            let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(looks(Args::new(&items)), wanted, "{line}");
        }
        let commands = ["module|list", "module|load"].map(|name| (name.to_owned(), true));
        let audit = Audit::new(Arc::new(Config::defaults()), commands.into_iter());
        assert_eq!([0, 1].map(|number| audit.concerns(number)), [false, true]);
    }

    #[test]
    fn few_refusals_are_logged() {
        let audit = Audit::new(Arc::new(Config::defaults()), std::iter::empty());
        assert_eq!((0..50).filter(|_| audit.has_line(1)).count(), MOST_REFUSALS as usize);
        assert!(audit.has_line(2));
    }
}
