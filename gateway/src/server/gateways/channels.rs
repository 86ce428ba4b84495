//! The replies of PUBSUB: which channels have subscribers, at all gateways together.

use store_engine::{Args, CommandError, Reply};

use super::{listeners, names};
use crate::server::Server;
use crate::session::pubsub::SubscriptionKind;

/// Answers a call of PUBSUB, but for its HELP.
pub async fn reply_channels(server: &Server, args: Args<'_>, out: &mut Reply) {
    if let Err(error) = answer(server, args, out).await {
        out.error(&error);
    }
}

async fn answer(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        word @ (b"channels" | b"shardchannels") if args.len() <= 3 => {
            let kind = if word == b"channels" { SubscriptionKind::Channel } else { SubscriptionKind::Shard };
            let names = names(server, kind, args.get(2)).await?;
            out.array(names.len());
            names.iter().for_each(|name| out.bulk(name));
        }
        b"numpat" => out.count(names(server, SubscriptionKind::Pattern, None).await?.len()),
        word @ (b"numsub" | b"shardnumsub") => {
            let kind = if word == b"numsub" { SubscriptionKind::Channel } else { SubscriptionKind::Shard };
            let counts = listeners(server, kind, args.rest(2)).await?;
            out.array(2 * counts.len());
            for (name, count) in args.rest(2).iter().zip(counts) {
                out.bulk(name);
                out.count(count);
            }
        }
        _ => {
            let word = String::from_utf8_lossy(args[1]);
            return Err(CommandError::owned(format!(
                "ERR unknown subcommand or wrong number of arguments for '{word}'. Try PUBSUB HELP."
            )));
        }
    }
    Ok(())
}
