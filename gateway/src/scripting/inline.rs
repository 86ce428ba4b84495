//! Session commands that a script calls: they look at no data, and are answered on the spot.

use std::time::Duration;

use store_engine::command::resolve;
use store_engine::reply::help;
use store_engine::{Args, CommandError, DATABASES, Reply};

use crate::admission::{Admitted, Caller};
use crate::server::{Row, Server, run_now};
use crate::session::{ClientInfo, Session};

/// Answers a call. `db` is the database that the script has selected, and `clock` what it sees as the present time.
pub(super) fn answer(
    server: &Server,
    caller: &Caller,
    admitted: &Admitted<'_>,
    db: &mut usize,
    clock: Duration,
    out: &mut Reply,
) {
    let (row, spec, args) = (admitted.row, admitted.spec(), admitted.args());
    match (spec.name, row) {
        ("select", _) => {
            match args.integer(1).map(|db| usize::try_from(db).ok().filter(|db| *db < DATABASES)) {
                Ok(Some(selected)) => {
                    *db = selected;
                    out.ok();
                }
                Ok(None) => out.error(&CommandError::new("ERR DB index is out of range")),
                Err(_) => out.error(&store_engine::error::NOT_AN_INTEGER),
            }
        }
        ("time", _) => reply_time(clock, out),
        ("help", row) => {
            let container = row.spec();
            help(out, &container.name.to_ascii_uppercase(), container.help);
        }
        (_, Row::Session(command)) => {
            let run = command.run.in_script().expect("admission refuses others");
            let mut session = session(server, caller, *db, out);
            run_now(server, &mut session, args, run, out);
        }
        (_, Row::Engine(_)) => unreachable!("the hosts ask the store"),
    }
}

/// The state that such a call sees.
fn session(server: &Server, caller: &Caller, db: usize, out: &Reply) -> Session {
    let known = server.sessions.client(caller.client);
    let account = || caller.account.clone().unwrap_or_else(|| server.acl.default_account().clone());
    // It may have gone while its script runs on.
    let client = known.unwrap_or_else(|| {
        let memory = server.sessions.memory.clone();
        ClientInfo::new(caller.client, String::new(), String::new(), account(), memory)
    });
    let account = client.account.lock().clone();
    Session::within(client, account, db, out.protocol)
}

/// `redis.acl_check_cmd`: whether the user may make a call.
pub(super) fn answer_whether_allowed(server: &Server, caller: &Caller, args: Args<'_>, out: &mut Reply) {
    let row = server.registry.lookup(args.name());
    let row = row.map(|row| server.registry.inner(row, args).map_or(row, |(row, _)| row).spec());
    let Some((row, spec)) = row.and_then(|row| Some((row, resolve(row, args)?))) else {
        return out.error(&CommandError::new("ERR Invalid command passed to redis.acl_check_cmd()"));
    };
    match &caller.account {
        Some(account) if server.acl.check(account, row, spec, args).is_err() => out.null(),
        _ => out.integer(1),
    }
}

/// TIME: seconds and microseconds.
pub fn reply_time(clock: Duration, out: &mut Reply) {
    out.array(2);
    out.bulk_integer(clock.as_secs() as i64);
    out.bulk_integer(clock.subsec_micros().into());
}
