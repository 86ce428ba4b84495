//! Where a call comes from, and what its checks look at and answer.

use std::sync::Arc;

use store::ParsedCall;
use store_engine::keys::KeyAt;
use store_engine::{Args, Command, CommandError};

use crate::acl::Account;
use crate::server::Row;
use crate::session::Session;

/// Where a call comes from.
#[derive(Clone, Copy)]
pub enum Origin<'o> {
    /// The client of a session, over RESP, HTTP or gRPC. Within MULTI the call will be queued.
    Client(&'o Session),
    /// EXEC makes the call, which was queued.
    Exec(&'o Session),
    /// A script.
    Script(&'o ScriptOrigin<'o>),
}

impl Origin<'_> {
    /// Whether its calls are no use of their keys.
    pub fn no_touch(self) -> bool {
        match self {
            Origin::Client(session) | Origin::Exec(session) => session.client.no_touch(),
            Origin::Script(script) => script.caller.no_touch,
        }
    }
}

/// A script that makes a call.
pub struct ScriptOrigin<'o> {
    /// Who runs the script.
    pub caller: &'o Caller,
    /// The only keys that the script may touch, where that is the rule.
    pub declared: Option<&'o Declared>,
    /// The script may not write: EVAL_RO, or the flag `no-writes`.
    pub read_only: bool,
    /// The database that the script has selected.
    pub db: usize,
    /// Whether there is memory for the script.
    pub memory: ScriptMemory,
}

/// Who runs a script.
pub struct Caller {
    /// The number of the connection.
    pub client: u64,
    /// Its calls are no use of their keys: CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// The user, if there is something that the user may not do.
    pub account: Option<Arc<Account>>,
}

/// What is looked at before a script changes something: whether there is memory, and whether the script may still be refused that.
#[derive(Clone, Copy)]
pub enum ScriptMemory {
    /// As it was when the script began.
    Fixed {
        /// There was none.
        full: bool,
        /// The script has changed something: a part of it must not be refused.
        wrote: bool,
    },
    /// As it is when the call is made.
    Present {
        /// Bytes by which the data may exceed `maxmemory`.
        slack_bytes: usize,
    },
}

/// Why a call is not made.
#[derive(Debug)]
pub enum NotAdmitted {
    /// The rules of its user deny the call.
    Denied(CommandError),
    /// Any other check.
    Rejected(CommandError),
}

impl NotAdmitted {
    /// The reply to the call.
    pub fn error(&self) -> &CommandError {
        let (NotAdmitted::Denied(error) | NotAdmitted::Rejected(error)) = self;
        error
    }
}

impl From<CommandError> for NotAdmitted {
    fn from(error: CommandError) -> NotAdmitted {
        NotAdmitted::Rejected(error)
    }
}

impl From<NotAdmitted> for CommandError {
    fn from(why: NotAdmitted) -> CommandError {
        let (NotAdmitted::Denied(error) | NotAdmitted::Rejected(error)) = why;
        error
    }
}

/// What a check looks at.
pub(super) struct Checked<'c, 'a> {
    /// The row that was called.
    pub row: Row,
    pub call: &'c ParsedCall<'a>,
}

impl<'a> Checked<'_, 'a> {
    /// The facts of the command; of a container the subcommand's.
    pub fn spec(&self) -> &'static Command {
        self.call.command()
    }

    /// Name and arguments.
    pub fn args(&self) -> Args<'a> {
        self.call.args()
    }

    /// The positions of the keys among the arguments, with what is done to each.
    pub fn keys(&self) -> &[KeyAt] {
        self.call.keys()
    }
}

/// The keys that a script declared.
pub struct Declared {
    /// The database in which the script was called.
    pub db: usize,
    /// The keys.
    pub keys: Vec<Box<[u8]>>,
    /// The name of the script or function, for errors.
    pub name: String,
    /// What refuses other keys.
    pub by: Refuser,
}

/// What refuses other keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refuser {
    /// A limit of the user: no flag helps.
    User,
    /// The script's header, or what SCRIPT FLAGS said.
    Script,
    /// The configuration.
    Server,
}
