//! The checks of a call: one list for clients, EXEC and scripts.

use store::{AdmittedCall, Call, Pass};
use store_engine::keys::KeyAt;
use store_engine::{Args, Command};

use super::origin::{Checked, NotAdmitted, Origin, ScriptOrigin};
use super::parse::{Parsed, Recent, parse, parse_again};
use super::{declared, limits, permission, replica, resources, scripts, sessions};
use crate::server::{Row, Server};
use crate::session::Session;
use crate::session::following::Mode;

/// Refuses a call, or does not.
type CheckFn = fn(&Server, Origin<'_>, &Checked<'_, '_>) -> Result<(), NotAdmitted>;

/// A condition of a call.
struct Check {
    #[allow(dead_code, reason = "documents the list, which a test shows")]
    name: &'static str,
    /// The origins whose calls it concerns: a sum of [`CLIENT`], [`EXEC`] and [`SCRIPT`].
    origins: u8,
    depends_on: Facts,
    run: CheckFn,
}

/// What the result of a check depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Facts {
    /// The command and the script: it holds for all calls of the command by the script.
    Command,
    /// The user: a session that may do everything passes.
    User,
    /// The call and the state of the server.
    Call,
    /// Whose data the server has: its own, or that of another server.
    Data,
}

const CLIENT: u8 = 1;
const EXEC: u8 = 2;
const SCRIPT: u8 = 4;

/// All checks, in the order in which they are made, which is that of Redis: the first that fails is the reply. A store node
/// repeats `memory` and `disk` for the calls of other processes.
const CHECKS: [Check; 14] = [
    check("for scripts", SCRIPT, Facts::Command, |_, _, call| scripts::refuse_outside_scripts(call)),
    check("read-only script", SCRIPT, Facts::Command, |_, origin, call| scripts::refuse_writes(origin, call)),
    check("no waiting in scripts", SCRIPT, Facts::Call, |_, _, call| scripts::refuse_waiting(call)),
    check("users are known", CLIENT, Facts::User, |server, _, call| {
        permission::refuse_while_users_unknown(&server.acl, call)
    }),
    check("authentication", CLIENT, Facts::User, |server, origin, call| {
        permission::refuse_unauthenticated(&server.acl, origin, call)
    }),
    check("transaction", CLIENT, Facts::Call, |_, origin, call| sessions::refuse_within_multi(origin, call)),
    check("calls per second", CLIENT, Facts::User, |server, origin, call| {
        limits::refuse_too_many(&server.acl, origin, call)
    }),
    check("permission", CLIENT | EXEC | SCRIPT, Facts::User, permission::refuse_without_permission),
    check("declared keys", SCRIPT, Facts::Call, declared::refuse_undeclared),
    check("memory", CLIENT | SCRIPT, Facts::Call, resources::refuse_when_full),
    check("disk", CLIENT | SCRIPT, Facts::Call, resources::refuse_while_disk_fails),
    check("replica", CLIENT | SCRIPT, Facts::Data, replica::refuse_writes),
    check("subscription", CLIENT, Facts::Call, |_, origin, call| {
        sessions::refuse_while_subscribed(origin, call)
    }),
    check("loading", CLIENT | SCRIPT, Facts::Data, replica::refuse_while_loading),
];

const fn check(name: &'static str, origins: u8, depends_on: Facts, run: CheckFn) -> Check {
    Check { name, origins, depends_on, run }
}

/// A set of checks, a bit each.
type CheckSet = u16;

/// The checks of calls from an origin, without those that depend on the facts `known` before.
const fn checks_of(origin: u8, known: &[Facts]) -> CheckSet {
    let (mut set, mut at) = (0, 0);
    while at < CHECKS.len() {
        let mut is_due = CHECKS[at].origins & origin != 0;
        let mut fact = 0;
        while fact < known.len() {
            is_due &= CHECKS[at].depends_on as u8 != known[fact] as u8;
            fact += 1;
        }
        set |= (is_due as CheckSet) << at;
        at += 1;
    }
    set
}

/// The checks of a server that has the data of another one. Most have not: these made GET 16 deep 4 % dearer there.
const OF_REPLICA: CheckSet = {
    let all = CLIENT | EXEC | SCRIPT;
    checks_of(all, &[]) & !checks_of(all, &[Facts::Data])
};

impl Origin<'_> {
    /// The checks of a call. `is_repeated`: the script has made a call of the same command before.
    #[inline]
    fn checks(self, is_repeated: bool) -> CheckSet {
        const COMMAND: Facts = Facts::Command;
        const USER: Facts = Facts::User;
        let may_do_all = |session: &Session| session.authenticated && session.account.is_unlimited();
        match self {
            Origin::Client(session) if may_do_all(session) => const { checks_of(CLIENT, &[USER]) },
            Origin::Client(_) => const { checks_of(CLIENT, &[]) },
            Origin::Exec(session) if session.account.is_unlimited() => const { checks_of(EXEC, &[USER]) },
            Origin::Exec(_) => const { checks_of(EXEC, &[]) },
            Origin::Script(script) => match (script.caller.account.is_none(), is_repeated) {
                (true, true) => const { checks_of(SCRIPT, &[USER, COMMAND]) },
                (true, false) => const { checks_of(SCRIPT, &[USER]) },
                (false, true) => const { checks_of(SCRIPT, &[COMMAND]) },
                (false, false) => const { checks_of(SCRIPT, &[]) },
            },
        }
    }
}

/// A call that passed the checks.
pub struct Admitted<'a> {
    /// The row that was called.
    pub row: Row,
    /// The number of what was called, as the registry counts.
    pub number: u16,
    call: AdmittedCall<'a>,
    no_touch: bool,
}

impl<'a> Admitted<'a> {
    /// The facts of the command; of a container the subcommand's.
    pub fn spec(&self) -> &'static Command {
        self.call.parsed().command()
    }

    /// Name and arguments.
    pub fn args(&self) -> Args<'a> {
        self.call.parsed().args()
    }

    /// The positions of the keys among the arguments, with what is done to each.
    pub fn keys(&self) -> &[KeyAt] {
        self.call.parsed().keys()
    }

    /// The call in database `db` at `now_ms`, Unix time in milliseconds, for the store.
    pub fn at(&self, db: usize, now_ms: u64) -> Call<'_> {
        self.call.at(db, now_ms).without_touch(self.no_touch)
    }

    /// What is left of the call without its arguments, which are kept elsewhere.
    pub fn pass(&self) -> Pass {
        self.call.pass()
    }
}

/// Parses a call of a client or of EXEC, and makes all checks.
#[inline]
pub fn admit<'a>(server: &Server, origin: Origin<'_>, args: Args<'a>) -> Result<Admitted<'a>, NotAdmitted> {
    admit_parsed(server, origin, parse(&server.registry, args, false)?, false)
}

/// Makes the checks of a call that was parsed before.
#[inline]
pub fn admit_queued<'a>(
    server: &Server,
    session: &Session,
    parsed: Parsed<'a>,
) -> Result<Admitted<'a>, NotAdmitted> {
    admit_parsed(server, Origin::Exec(session), parsed, false)
}

/// Parses a call of a script, and makes all checks.
#[inline(always)] // The result is large: moving it took 2 % of the time of a script of short calls.
pub fn admit_in_script<'a>(
    server: &Server,
    script: &ScriptOrigin<'_>,
    args: Args<'a>,
    recent: &mut Recent,
) -> Result<Admitted<'a>, NotAdmitted> {
    let (parsed, is_repeated) = parse_again(&server.registry, args, recent)?;
    let admitted = admit_parsed(server, Origin::Script(script), parsed, is_repeated)?;
    if !is_repeated {
        recent.remember(admitted.row, admitted.number, args.name());
    }
    Ok(admitted)
}

#[inline(always)]
fn admit_parsed<'a>(
    server: &Server,
    origin: Origin<'_>,
    parsed: Parsed<'a>,
    is_repeated: bool,
) -> Result<Admitted<'a>, NotAdmitted> {
    let Parsed { row, number, call } = parsed;
    let call = call.admit(|call| {
        let call = &Checked { row, call };
        let mut due = origin.checks(is_repeated);
        if server.sessions.following.mode() == Mode::Primary {
            due &= !OF_REPLICA;
        }
        while due != 0 {
            (CHECKS[due.trailing_zeros() as usize].run)(server, origin, call)?;
            due &= due - 1;
        }
        Ok::<_, NotAdmitted>(())
    })?;
    Ok(Admitted { row, number, call, no_touch: origin.no_touch() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(set: CheckSet) -> Vec<&'static str> {
        let is_due = |at: &usize| set & (1 << at) != 0;
        (0..CHECKS.len()).filter(is_due).map(|at| CHECKS[at].name).collect()
    }

    #[test]
    fn every_origin_passes_its_part_of_the_list() {
        let lists = [
            ("client", checks_of(CLIENT, &[])),
            ("client that may do everything", checks_of(CLIENT, &[Facts::User])),
            ("EXEC", checks_of(EXEC, &[])),
            ("script", checks_of(SCRIPT, &[])),
            ("script that repeats a command", checks_of(SCRIPT, &[Facts::User, Facts::Command])),
        ];
        let lines = lists.map(|(origin, set)| format!("{origin}: {}", names(set).join(", ")));
        insta::assert_snapshot!(lines.join("\n"), @r"
        client: users are known, authentication, transaction, calls per second, permission, memory, disk, replica, subscription, loading
        client that may do everything: transaction, memory, disk, replica, subscription, loading
        EXEC: permission
        script: for scripts, read-only script, no waiting in scripts, permission, declared keys, memory, disk, replica, loading
        script that repeats a command: no waiting in scripts, declared keys, memory, disk, replica, loading
        ");
    }
}
