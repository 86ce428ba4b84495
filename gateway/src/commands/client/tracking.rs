//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use store_engine::{Args, CommandError, Reply, error};

use crate::admission::Admitted;
use crate::server::Server;
use crate::session::tracking::{Follows, Reader, reads};
use crate::session::{Session, Sessions, prefix_bytes};

/// Prefixes that one connection can follow: each time some are added, all of them are copied.
const MOST_PREFIXES: usize = 10_000;

/// CLIENT TRACKING.
pub(super) fn tracking(server: &Server, session: &mut Session, args: Args<'_>) -> Result<(), CommandError> {
    let mut options = Follows::default();
    let mut prefixes: Vec<&[u8]> = Vec::new();
    let mut cursor = args.cursor(3);
    while let Some(option) = cursor.peek() {
        let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        if is("REDIRECT") && cursor.remaining() > 1 {
            cursor.bytes()?;
            if options.redirect.is_some() {
                return Err(CommandError::new("ERR A client can only redirect to a single other client"));
            }
            let number = cursor.integer()?;
            let id = u64::try_from(number).unwrap_or_default();
            let target = server.sessions.clients.lock().get(&id).map(Arc::downgrade);
            let target =
                target.ok_or(CommandError::new("ERR The client ID you want redirect to does not exist"))?;
            options.redirect = Some((id, target));
        } else if is("PREFIX") && cursor.remaining() > 1 {
            cursor.bytes()?;
            prefixes.push(cursor.bytes()?);
        } else {
            match &*cursor.bytes()?.to_ascii_lowercase() {
                b"bcast" => options.broadcast = true,
                b"optin" => options.opt_in = true,
                b"optout" => options.opt_out = true,
                b"noloop" => options.no_loop = true,
                _ => return Err(error::SYNTAX),
            }
        }
    }
    match &*args[2].to_ascii_lowercase() {
        b"on" => {
            if !session.hears {
                return Err(CommandError::new(
                    "ERR CLIENT TRACKING isn't allowed for a DENY BLOCKING client",
                ));
            }
            let before = session.tracking.as_deref();
            let count = before.map_or(0, |before| before.prefixes.len()).saturating_add(prefixes.len());
            if count > MOST_PREFIXES {
                return Err(CommandError::owned(format!(
                    "ERR a connection may follow {MOST_PREFIXES} prefixes at the same time"
                )));
            }
            refuse(before, &options, &prefixes)?;
            let bytes = prefix_bytes(prefixes.iter().copied());
            session.client.held.refuse_more(bytes)?;
            if options.broadcast {
                options.prefixes = before.map(|before| before.prefixes.clone()).unwrap_or_default();
                options.prefixes.extend(prefixes.iter().map(|prefix| Box::from(*prefix)));
                if prefixes.is_empty() {
                    options.prefixes.insert(Box::default());
                }
            }
            if let Some(before) = before {
                (options.caching, options.was_client) = (before.caching, before.was_client);
            }
            server.sessions.tracking.enter(&server.store, &session.client, &options);
            session.tracking = Some(Box::new(options));
        }
        b"off" => leave(server, session),
        _ => return Err(error::SYNTAX),
    }
    Ok(())
}

/// Redis' refusals of what does not fit together, or to what was asked for before.
fn refuse(before: Option<&Follows>, options: &Follows, prefixes: &[&[u8]]) -> Result<(), CommandError> {
    const SWITCHES: CommandError = CommandError::new(
        "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
         with a different mode.",
    );
    let Follows { broadcast, opt_in, opt_out, .. } = *options;
    if !broadcast && !prefixes.is_empty() {
        return Err(CommandError::new("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if before.is_some_and(|before| before.broadcast != broadcast) {
        return Err(SWITCHES);
    }
    if broadcast && (opt_in || opt_out) {
        return Err(CommandError::new("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if opt_in && opt_out {
        return Err(CommandError::new("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    if before.is_some_and(|before| (opt_in && before.opt_out) || (opt_out && before.opt_in)) {
        return Err(CommandError::new(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling \
             it with a different mode.",
        ));
    }
    let refusal = |prefix: &[u8], what: &str, other: &[u8]| {
        CommandError::owned(format!(
            "ERR Prefix '{}' overlaps with {what} prefix '{}'. Prefixes for a single client must not overlap.",
            String::from_utf8_lossy(prefix),
            String::from_utf8_lossy(other)
        ))
    };
    let none = BTreeSet::new();
    let held = before.map_or(&none, |before| &before.prefixes);
    let mut given: BTreeSet<Box<[u8]>> = BTreeSet::new();
    for prefix in prefixes {
        if let Some(other) = overlapping(held, prefix) {
            return Err(refusal(prefix, "an existing", other));
        }
        if let Some(other) = overlapping(&given, prefix) {
            return Err(refusal(other, "another provided", prefix));
        }
        given.insert((*prefix).into());
    }
    Ok(())
}

/// The one of these prefixes, of which none is a prefix of another, that this one overlaps with: it is beside it.
fn overlapping<'a>(prefixes: &'a BTreeSet<Box<[u8]>>, prefix: &[u8]) -> Option<&'a [u8]> {
    let before = prefixes.range::<[u8], _>((Bound::Unbounded, Bound::Included(prefix))).next_back();
    let behind = prefixes.range::<[u8], _>((Bound::Excluded(prefix), Bound::Unbounded)).next();
    let before = before.filter(|before| prefix.starts_with(before));
    before.or(behind.filter(|behind| behind.starts_with(prefix))).map(|found| &**found)
}

/// CLIENT CACHING.
pub(super) fn caching(session: &mut Session, word: &[u8]) -> Result<(), CommandError> {
    let follows = session.tracking.as_deref_mut().ok_or(CommandError::new(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
    ))?;
    match &*word.to_ascii_lowercase() {
        b"yes" if follows.opt_in => follows.caching = true,
        b"yes" => {
            return Err(CommandError::new(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        b"no" if follows.opt_out => follows.caching = true,
        b"no" => {
            return Err(CommandError::new(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        _ => return Err(error::SYNTAX),
    }
    Ok(())
}

/// CLIENT GETREDIR.
pub(super) fn redirection(session: &Session) -> i64 {
    session.client.details.lock().redirect.map_or(-1, |id| id as i64)
}

/// CLIENT TRACKINGINFO.
pub(super) fn info(session: &Session, out: &mut Reply) {
    let none = Follows::default();
    let follows = session.tracking.as_deref().unwrap_or(&none);
    let is_broken = session.client.details.lock().redirect_broken;
    let flags: Vec<&str> = [
        (session.tracking.is_none(), "off"),
        (session.tracking.is_some(), "on"),
        (follows.broadcast, "bcast"),
        (follows.opt_in, "optin"),
        (follows.opt_in && follows.caching, "caching-yes"),
        (follows.opt_out, "optout"),
        (follows.opt_out && follows.caching, "caching-no"),
        (follows.no_loop, "noloop"),
        (is_broken, "broken_redirect"),
    ]
    .into_iter()
    .filter_map(|(is, flag)| is.then_some(flag))
    .collect();
    out.map(3);
    out.bulk(b"flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"redirect");
    out.integer(redirection(session));
    out.bulk(b"prefixes");
    out.array(follows.prefixes.len());
    follows.prefixes.iter().for_each(|prefix| out.bulk(prefix));
}

/// The session follows nothing any more.
pub fn leave(server: &Server, session: &mut Session) {
    if session.tracking.take().is_some() {
        server.sessions.tracking.leave(&server.store, &session.client);
    }
}

/// Notes the keys that a command is about to read.
pub fn note(sessions: &Sessions, session: &Session, admitted: &Admitted<'_>) {
    if let Some(follows) = &session.tracking
        && follows.notes()
        && reads(admitted.spec())
    {
        let keys = admitted.keys().iter().map(|(at, _)| admitted.args()[*at]);
        sessions.tracking.read(&sessions.pubsub, session.client.id, keys);
    }
}

/// The client that is notified when what a script reads changes.
pub fn reader(session: &Session, keys: &[&[u8]]) -> Option<Reader> {
    let notes = session.tracking.as_ref().is_some_and(|follows| follows.notes());
    notes.then(|| Reader { client: session.client.id, keys: keys.iter().map(|key| (*key).into()).collect() })
}
