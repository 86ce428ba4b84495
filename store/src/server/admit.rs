//! Commands as they come from other processes: checked like those of the gateway's own clients.

use smallvec::SmallVec;
use store_engine::codec::Input;
use store_engine::keys::{Keys, keys_of};
use store_engine::spec::flags;
use store_engine::{Args, Command, CommandError, Protocol, Reply, command};

use crate::call::Call;
use crate::node::Node;
use crate::txn::FULL;
use proto::store::v1 as wire;

/// A call that may be run.
pub(crate) struct Admitted<'a> {
    pub items: SmallVec<[&'a [u8]; 8]>,
    pub command: &'static Command,
    pub keys: Keys,
    pub db: usize,
    pub protocol: Protocol,
    no_touch: bool,
}

/// Most bytes of a reply, whatever a gateway takes: it travels in one message.
const MOST_REPLY_BYTES: u64 = 1 << 30;

impl<'a> Admitted<'a> {
    /// Checks the form of a call. An error is a mistake of the peer, which has checked all that before.
    pub fn new(call: &'a wire::Call) -> Result<Admitted<'a>, &'static str> {
        let mut items: SmallVec<[&[u8]; 8]> = SmallVec::new();
        let mut input = Input(&call.args);
        while !input.is_empty() {
            items.push(input.bytes().map_err(|_| "malformed arguments")?);
        }
        let name = items.first().ok_or("a call without a name")?;
        let name: SmallVec<[u8; 16]> = name.iter().map(u8::to_ascii_lowercase).collect();
        let args = Args::new(&items);
        let row = command::lookup(&name).ok_or("an unknown command")?;
        let command = command::resolve(row, args).ok_or("an unknown subcommand")?;
        if !command.arity.allows(args.len()) {
            return Err("a wrong number of arguments");
        }
        let keys = keys_of(command, args).unwrap_or_default();
        let db = call.db as usize;
        if db >= store_engine::DATABASES {
            return Err("an unknown database");
        }
        let protocol = if call.resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        Ok(Admitted { items, command, keys, db, protocol, no_touch: call.no_touch })
    }

    /// What the call's reply is written to, which may take so many bytes if that is not 0.
    pub fn reply(&self, most_bytes: u64) -> Reply {
        let wanted = if most_bytes == 0 { MOST_REPLY_BYTES } else { most_bytes };
        let mut out = Reply::new(self.protocol);
        // No more than the constant, which fits.
        out.set_limit(wanted.min(MOST_REPLY_BYTES) as usize);
        out
    }

    /// The call at this time.
    pub fn call(&self, now_ms: u64) -> Call<'_> {
        let Admitted { command, ref items, ref keys, db, no_touch, .. } = *self;
        Call { command, args: Args::new(items), keys, db, now_ms, no_touch }
    }

    /// The bytes of its keys.
    pub fn key_bytes(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.keys.iter().map(|(at, _)| self.items[*at])
    }

    /// Refuses what memory or the disk do not allow, in Redis' words.
    pub fn allowed(&self, node: &Node, now_ms: u64) -> Result<(), CommandError> {
        if self.command.has(flags::DENY_OOM) && node.is_full(now_ms) {
            return Err(FULL);
        }
        if self.command.is_write() {
            node.refuse_while_failing()?;
        }
        Ok(())
    }
}
