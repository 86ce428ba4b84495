//! ACL and its subcommands, and what becomes of clients when users change.

use std::sync::Arc;

use store_engine::command::resolve;
use store_engine::reply;
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply, error};
use tracing::info;

use super::rows::CONNECTION;
use crate::acl::commands::{CATEGORIES, category};
use crate::acl::file::parse_rules;
use crate::acl::log::AclLogEntry;
use crate::acl::user::{User, hex};
use crate::acl::{Account, Acl, DEFAULT, Denied, Refused, Selector, allows_channel, has_spaces};
use crate::admission::full_name;
use crate::config::Config;
use crate::scripting::records;
use crate::server::{AsyncHandler, Handler, Server, SessionCommand};
use crate::session::pubsub::SubscriptionKind;
use crate::session::{ClientInfo, Session, Sessions};
use crate::telemetry::counters::unix_ms;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[SessionCommand {
    spec: Command {
        name: "acl",
        since: "6.0.0",
        arity: Arity::AtLeast(2),
        summary: "A container for Access List Control commands.",
        complexity: "Depends on subcommand.",
        syntax: "",
        subcommands: ACL,
        help: HELP,
        ..BASE
    },
    run: Handler::Async(AsyncHandler::new(|server, session, args, out| {
        Box::pin(perform(server, session, args, out))
    })),
}];

const BASE: Command = Command { group: Group::Server, flags: flags::NO_SCRIPT, ..CONNECTION };
const ADMIN: Command = Command { flags: flags::NO_SCRIPT | flags::ADMIN | flags::DANGEROUS, ..BASE };

const fn sub(
    base: Command,
    name: &'static str,
    arity: Arity,
    summary: &'static str,
    complexity: &'static str,
    syntax: &'static str,
) -> Command {
    Command { name, since: "6.0.0", arity, summary, complexity, syntax, ..base }
}

/// What ACL HELP shows.
const HELP: &str = "\
CAT [<category>]
    List all commands that belong to <category>, or all command categories
    when no category is specified.
DELUSER <username> [<username> ...]
    Delete a list of users.
DRYRUN <username> <command> [<arg> ...]
    Returns whether the user can execute the given command without executing the command.
GETUSER <username>
    Get the user's details.
GENPASS [<bits>]
    Generate a secure 256-bit user password. The optional `bits` argument can
    be used to specify a different size.
LIST
    Show users details in config file format.
LOAD
    Reload users from the ACL file.
LOG [<count> | RESET]
    Show the ACL log entries.
SAVE
    Save the current config to the ACL file.
SETUSER <username> <attribute> [<attribute> ...]
    Create or modify a user with the specified attributes.
USERS
    List all the registered usernames.
WHOAMI
    Return the current connection username.";

static ACL: &[Command] = &[
    sub(
        BASE,
        "cat",
        Arity::AtLeast(2),
        "Lists the ACL categories, or the commands inside a category.",
        "O(1) since the categories and commands are a fixed set.",
        "categoryname?",
    ),
    sub(
        ADMIN,
        "deluser",
        Arity::AtLeast(3),
        "Deletes ACL users, and terminates their connections.",
        "O(1) amortized time considering the typical user.",
        "username...",
    ),
    Command {
        since: "7.0.0",
        ..sub(
            ADMIN,
            "dryrun",
            Arity::AtLeast(4),
            "Simulates the execution of a command by a user, without executing the command.",
            "O(1).",
            "username command arg...?",
        )
    },
    sub(
        BASE,
        "genpass",
        Arity::AtLeast(2),
        "Generates a pseudorandom, secure password that can be used to identify ACL users.",
        "O(1)",
        "bits:int?",
    ),
    sub(
        ADMIN,
        "getuser",
        Arity::Exactly(3),
        "Lists the ACL rules of a user.",
        "O(N). Where N is the number of password, command and pattern rules that the user has.",
        "username",
    ),
    sub(BASE, "help", Arity::Exactly(2), "Returns helpful text about the different subcommands.", "O(1)", ""),
    sub(
        ADMIN,
        "list",
        Arity::Exactly(2),
        "Dumps the effective rules in ACL file format.",
        "O(N). Where N is the number of configured users.",
        "",
    ),
    sub(
        ADMIN,
        "load",
        Arity::Exactly(2),
        "Reloads the rules from the configured ACL file.",
        "O(N). Where N is the number of configured users.",
        "",
    ),
    sub(
        ADMIN,
        "log",
        Arity::AtLeast(2),
        "Lists recent security events generated due to ACL rules.",
        "O(N) with N being the number of entries shown.",
        "operation(count:int | RESET)?",
    ),
    sub(
        ADMIN,
        "save",
        Arity::Exactly(2),
        "Saves the effective ACL rules in the configured ACL file.",
        "O(N). Where N is the number of configured users.",
        "",
    ),
    sub(
        ADMIN,
        "setuser",
        Arity::AtLeast(3),
        "Creates and modifies an ACL user and its rules.",
        "O(N). Where N is the number of rules provided.",
        "username rule...?",
    ),
    sub(
        ADMIN,
        "users",
        Arity::Exactly(2),
        "Lists all ACL users.",
        "O(N). Where N is the number of configured users.",
        "",
    ),
    sub(
        BASE,
        "whoami",
        Arity::Exactly(2),
        "Returns the authenticated username of the current connection.",
        "O(1)",
        "",
    ),
];

/// ACL.
async fn perform(
    server: &Server,
    session: &mut Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        b"setuser" => set_user(server, session, args).await.map(|()| out.ok()),
        b"deluser" => delete_users(server, session, args).await.map(|count| out.count(count)),
        b"getuser" => {
            get_user(&server.acl, args[2], out);
            Ok(())
        }
        b"list" => {
            let all = server.acl.all();
            out.array(all.len());
            for account in all {
                let rules = account.user().show(server.acl.commands());
                out.bulk(&[b"user ", account.name(), b" ", &rules].concat());
            }
            Ok(())
        }
        b"users" => {
            let all = server.acl.all();
            out.array(all.len());
            all.iter().for_each(|account| out.bulk(account.name()));
            Ok(())
        }
        b"whoami" => {
            out.bulk(session.account.name());
            Ok(())
        }
        b"cat" => cat(&server.acl, args, out),
        b"dryrun" => dry_run(server, args, out),
        b"genpass" => generate(args, out),
        b"log" => reply_log(&server.acl, args, out),
        b"load" => load(server, session).await.map(|()| out.ok()),
        b"save" => save(server).map(|()| out.ok()),
        _ => {
            help(out);
            Ok(())
        }
    }
}

async fn set_user(server: &Server, session: &mut Session, args: Args<'_>) -> Result<(), CommandError> {
    let name = args[2];
    if has_spaces(name) {
        return Err(CommandError::new("ERR Usernames can't contain spaces or null characters"));
    }
    let _script_permit = server.scripting.loading.lock().await;
    let user = server.acl.planned(name, args.rest(3).iter().copied())?;
    if keeps_users(&server.config) {
        let rules = user.show(server.acl.commands());
        server.store.put_record(records::USER, name, &rules).await?;
        server.acl.is_news(name, &rules);
    }
    let account = server.acl.put(name, user);
    end_forbidden(&server.sessions, Some(session), &account);
    Ok(())
}

async fn delete_users(server: &Server, session: &mut Session, args: Args<'_>) -> Result<usize, CommandError> {
    if args.rest(2).contains(&DEFAULT) {
        return Err(CommandError::new("ERR The 'default' user cannot be removed"));
    }
    let _script_permit = server.scripting.loading.lock().await;
    if keeps_users(&server.config) {
        let gone = args.rest(2).iter().map(|name| name.to_vec()).collect();
        server.store.change_records(records::USER, Vec::new(), gone).await?;
    }
    let gone: Vec<_> = args.rest(2).iter().filter_map(|name| server.acl.remove(name)).collect();
    gone.iter().for_each(|account| end_forbidden(&server.sessions, Some(session), account));
    Ok(gone.len())
}

/// Whether users are records beside the data, and not lines of a file.
fn keeps_users(config: &Config) -> bool {
    config.aclfile.get().is_none()
}

/// Ends the connections of a user that is gone, and those that hear what it may not hear any more; one's own after the
/// reply.
fn end_forbidden(sessions: &Sessions, session: Option<&mut Session>, account: &Arc<Account>) {
    let is_its = |client: &ClientInfo| Arc::ptr_eq(&client.account.lock(), account);
    let ended = if account.is_gone() {
        let clients = sessions.clients.lock();
        clients.values().filter(|client| is_its(client)).cloned().collect()
    } else {
        let user = account.user();
        let Some(allowed) = user.channels() else { return };
        sessions.pubsub.listening(|client, kind, name| {
            is_its(client)
                && !allows_channel(allowed.iter().copied(), name, kind == SubscriptionKind::Pattern)
        })
    };
    let own = session.as_ref().map(|session| session.client.id);
    ended.iter().filter(|client| Some(client.id) != own).for_each(|client| client.kill());
    if let Some(session) = session {
        session.closing |= ended.iter().any(|client| client.id == session.client.id);
    }
}

fn get_user(acl: &Acl, name: &[u8], out: &mut Reply) {
    let Some(account) = acl.find(name) else { return out.null() };
    let (user, commands) = (account.user(), acl.commands());
    let (own, others) = user.selectors().split_first().expect("a user has rules of its own");
    let rules = |selector: &Selector, out: &mut Reply| {
        for (field, value) in [
            ("commands", selector.show_commands(commands)),
            ("keys", selector.show_keys()),
            ("channels", selector.show_channels()),
        ] {
            out.bulk(field.as_bytes());
            out.bulk(&value);
        }
    };
    // Without limits it is what Redis says.
    let limits: Vec<String> = user.limits().rules().collect();
    out.map(if limits.is_empty() { 6 } else { 7 });
    out.bulk(b"flags");
    let flags = user.flags();
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"passwords");
    let passwords = user.passwords();
    out.array(passwords.len());
    passwords.for_each(|password| out.bulk(password.as_bytes()));
    rules(own, out);
    out.bulk(b"selectors");
    out.array(others.len());
    for other in others {
        out.map(3);
        rules(other, out);
    }
    if !limits.is_empty() {
        out.bulk(b"limits");
        out.bulk(limits.join(" ").as_bytes());
    }
}

fn cat(acl: &Acl, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match args.rest(2) {
        [] => {
            out.array(CATEGORIES.len());
            CATEGORIES.iter().for_each(|name| out.bulk(name.as_bytes()));
        }
        [name] => {
            let category = category(name).ok_or_else(|| {
                let name = String::from_utf8_lossy(name).into_owned();
                CommandError::owned(format!("ERR Unknown category '{name}'"))
            })?;
            let commands = acl.commands();
            let ids = commands.of_category(category).iter();
            let names: Vec<_> = ids.map(|id| &commands.entry(*id).name).collect();
            out.array(names.len());
            names.iter().for_each(|name| out.bulk(name.as_bytes()));
        }
        _ => return Err(wrong_subcommand(args)),
    }
    Ok(())
}

fn wrong_subcommand(args: Args<'_>) -> CommandError {
    let word = String::from_utf8_lossy(args[1]).into_owned();
    CommandError::owned(format!(
        "ERR unknown subcommand or wrong number of arguments for '{word}'. Try ACL HELP."
    ))
}

fn dry_run(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let account = server.acl.find(args[2]);
    let account =
        account.ok_or_else(|| CommandError::owned(format!("ERR User '{}' not found", shown(args[2]))))?;
    let call = Args::new(args.rest(3));
    let row = server.registry.lookup(call.name());
    let row = row.map(|row| server.registry.inner(row, call).map_or(row, |(row, _)| row).spec());
    let unknown = || CommandError::owned(format!("ERR Command '{}' not found", shown(call.name())));
    let (row, spec) = row.and_then(|row| Some((row, resolve(row, call)?))).ok_or_else(unknown)?;
    if !spec.arity.allows(call.len()) {
        return Err(error::wrong_arity(&full_name(row, spec)));
    }
    let object = |at: usize, kind: &str| {
        format!("This user has no permissions to access the '{}' {kind}", shown(call[at]))
    };
    let refused = match server.acl.check(&account, row, spec, call) {
        Ok(()) => {
            out.ok();
            return Ok(());
        }
        Err(Refused::Denied(Denied::Key(at))) => object(at, "key"),
        Err(Refused::Denied(Denied::Channel(at))) => object(at, "channel"),
        Err(Refused::Denied(Denied::Command) | Refused::Gone) => {
            format!("This user has no permissions to run the '{}' command", full_name(row, spec))
        }
    };
    out.bulk(refused.as_bytes());
    Ok(())
}

/// Most bits of a generated password.
const MOST_BITS: i64 = 4096;

fn generate(args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let bits = match args.len() {
        2 => 256,
        3 => args.integer(2).map_err(|_| error::NOT_AN_INTEGER)?,
        _ => return Err(wrong_subcommand(args)),
    };
    if !(1..=MOST_BITS).contains(&bits) {
        return Err(CommandError::new(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut bytes).map_err(|error| {
        CommandError::owned(format!(
            "ERR internal error: cannot generate random numbers: \
                                                      {error}"
        ))
    })?;
    out.bulk(&hex(&bytes).as_bytes()[..digits]);
    Ok(())
}

/// How many refusals ACL LOG shows without a count.
const USUAL: usize = 10;

fn reply_log(acl: &Acl, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let count = match args.rest(2) {
        [] => USUAL,
        [word] if word.eq_ignore_ascii_case(b"reset") => {
            acl.log.clear();
            out.ok();
            return Ok(());
        }
        [_] => {
            let count = args.integer(2).map_err(|_| error::NOT_AN_INTEGER)?;
            usize::try_from(count).unwrap_or(0)
        }
        _ => return Err(wrong_subcommand(args)),
    };
    let (now_ms, newest) = (unix_ms(), acl.log.newest(count));
    out.array(newest.len());
    for AclLogEntry { count, reason, context, object, user, at_ms, client } in newest {
        out.map(7);
        out.bulk(b"count");
        out.integer(i64::try_from(count).unwrap_or(i64::MAX));
        for (field, value) in [
            ("reason", reason.word().as_bytes()),
            ("context", context.word().as_bytes()),
            ("object", &object),
            ("username", &user),
        ] {
            out.bulk(field.as_bytes());
            out.bulk(value);
        }
        out.bulk(b"age-seconds");
        out.double(now_ms.saturating_sub(at_ms) as f64 / 1000.0);
        out.bulk(b"client-info");
        out.bulk(client.trim_end().as_bytes());
    }
    Ok(())
}

const NO_FILE: CommandError = CommandError::new(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER \
     command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store \
     users in the Redis configuration.",
);

async fn load(server: &Server, session: &mut Session) -> Result<(), CommandError> {
    let path = server.config.aclfile.get().ok_or(NO_FILE)?;
    let _script_permit = server.scripting.loading.lock().await;
    let users = server.acl.load(&path).map_err(|why| CommandError::owned(format!("ERR {why}")))?;
    for account in server.acl.replace(users) {
        end_forbidden(&server.sessions, Some(session), &account);
    }
    Ok(())
}

fn save(server: &Server) -> Result<(), CommandError> {
    let path = server.config.aclfile.get().ok_or(NO_FILE)?;
    server.acl.save(&path).map_err(|error| {
        info!("cannot save users to {}: {error}", path.display());
        CommandError::new(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        )
    })
}

/// Makes the users known that are kept beside the data, and forgets others. Rules that this version refuses let no client
/// in, and are named in the log.
pub async fn reload_users(server: &Server) -> Result<(), CommandError> {
    if !keeps_users(&server.config) {
        return Ok(());
    }
    let records = server.store.records(records::USER).await;
    let records = records.inspect_err(|error| server.acl.set_why_unknown(error))?;
    let known = server.acl.known();
    for account in server.acl.all() {
        let is_kept = |(name, _): &(Vec<u8>, Vec<u8>)| **name == *account.name();
        if !records.iter().any(is_kept)
            && let Some(account) = server.acl.remove(account.name())
        {
            end_forbidden(&server.sessions, None, &account);
        }
    }
    for (name, rules) in records {
        if !server.acl.is_news(&name, &rules) {
            continue;
        }
        let user = parse_rules(rules.split(|byte| *byte == b' '), known).unwrap_or_else(|why| {
            let name = String::from_utf8_lossy(&name);
            info!("the user {name} is disabled because its rules cannot be parsed: {why}");
            User::new(known)
        });
        let account = server.acl.put(&name, user);
        end_forbidden(&server.sessions, None, &account);
    }
    server.acl.know();
    Ok(())
}

fn help(out: &mut Reply) {
    reply::help(out, "ACL", HELP);
}
