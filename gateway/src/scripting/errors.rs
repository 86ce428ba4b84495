//! Why a script has no reply of its own, and the error that takes its place.

use resp::ReplyError;
use store::{LimitReached, TransactionError};
use store_engine::CommandError;

use super::call::ScriptCall;
use super::limits::Reached;
use crate::config::Config;
use crate::scripts::options::Flags;
use crate::scripts::running::Who;
use crate::server::Server;

/// Why a script has no reply of its own.
pub(super) enum ScriptError {
    /// It does not compile, as Lua says.
    Compile(String),
    /// It would be a dry run, and could not be undone.
    DryRun,
    /// Its user may not run it now.
    Turn(CommandError),
    /// SCRIPT KILL or FUNCTION KILL ended it.
    Killed,
    /// It reached a limit of its budget.
    Limit(Reached),
    /// The data reached `maxmemory`.
    DataMemory,
    /// Rolling it back would require too much memory.
    UndoMemory(Reached),
    /// Rolling back the transaction that it is part of would require more than so many bytes.
    TransactionMemory(u64),
    /// The sandbox returned what is no reply.
    InvalidReply(ReplyError),
    /// Its host ended it.
    Stopped,
    /// The sandbox ended it.
    Trap(String),
    /// The sandbox was lost, and the transaction with it.
    SandboxLost,
    /// A collected call failed, whose result it does not use.
    UnusedCall(CommandError),
    /// A node that has part of its data was lost, or refused to go on.
    NodeLost(CommandError),
    /// Its locks could not be acquired.
    Locks(TransactionError),
}

impl From<TransactionError> for ScriptError {
    fn from(error: TransactionError) -> ScriptError {
        match error {
            TransactionError::Lost(error) | TransactionError::LeaderLost(error) => {
                ScriptError::NodeLost(error)
            }
            other => ScriptError::Locks(other),
        }
    }
}

impl ScriptError {
    /// Memory ended an atomic script.
    pub fn memory(server: &Server, call: &ScriptCall<'_>, limit: LimitReached) -> ScriptError {
        match limit {
            LimitReached::Data => ScriptError::DataMemory,
            LimitReached::Undo if call.in_exec => {
                ScriptError::TransactionMemory(server.config.transaction_memory_max.get())
            }
            LimitReached::Undo => ScriptError::UndoMemory(Reached::when_undone(&server.acl, call)),
        }
    }

    /// The reply to the call that it ended.
    pub fn reply(self, call: &ScriptCall<'_>) -> CommandError {
        let (program, fate) = (&call.program, fate(call));
        CommandError::owned(match self {
            ScriptError::Compile(message) => return compile_error(&message),
            ScriptError::DryRun => format!(
                "ERR {program} does not support dry runs, because it runs without atomicity and its writes are \
                 visible immediately"
            ),
            ScriptError::Turn(error) | ScriptError::NodeLost(error) => return error,
            ScriptError::Killed => {
                let command = program.kind().to_uppercase();
                format!("KILLED {program} was stopped by {command} KILL; {fate}")
            }
            ScriptError::Limit(reached) => reached.error(format_args!("by {program}; {fate}")),
            ScriptError::DataMemory => {
                format!("{DATA_LIMIT}: {program} was stopped; its writes were rolled back")
            }
            ScriptError::UndoMemory(reached) => {
                reached.error(format_args!("after the writes of {program}, which were rolled back"))
            }
            ScriptError::TransactionMemory(most) => return transaction_memory_error(most),
            ScriptError::InvalidReply(error) => {
                format!("SCRIPTTRAP the sandbox returned no valid reply: {error}; {fate}")
            }
            ScriptError::Stopped => format!("SCRIPTTRAP {program} was stopped; {fate}"),
            ScriptError::Trap(what) => {
                format!("SCRIPTTRAP the sandbox stopped {program}: {what}; {fate}")
            }
            ScriptError::SandboxLost => {
                return CommandError::new(
                    "SCRIPTTRAP the sandbox failed and its transaction was rolled back",
                );
            }
            ScriptError::UnusedCall(error) => {
                format!("{error} script: {}, by a call whose result it does not use.", program.name())
            }
            ScriptError::Locks(error) => {
                format!("ERR internal error: locks were not acquired: {error:?}")
            }
        })
    }
}

/// What became of the writes of a script that was ended.
fn fate(call: &ScriptCall<'_>) -> &'static str {
    match call.options.flags.has(Flags::DISABLE_ATOMICITY) {
        true => "its writes were not rolled back, because it is not atomic",
        false => "its writes were rolled back",
    }
}

/// A transaction was killed that was still waiting for its keys, or its user's turn.
pub(super) fn never_run_error(who: &Who) -> CommandError {
    let kind = if who.function.is_some() { "function" } else { "script" };
    CommandError::owned(format!(
        "KILLED {kind} {} was stopped by {} KILL before its transaction executed a command",
        who.name,
        kind.to_uppercase()
    ))
}

/// Memory ended a MULTI transaction.
pub(super) fn exec_memory_error(config: &Config, limit: LimitReached) -> CommandError {
    match limit {
        LimitReached::Data => CommandError::owned(format!("{DATA_LIMIT}: the transaction was rolled back")),
        LimitReached::Undo => transaction_memory_error(config.transaction_memory_max.get()),
    }
}

fn transaction_memory_error(most: u64) -> CommandError {
    CommandError::owned(format!(
        "TXNLIMIT memory: rolling back requires more than {most} bytes; the transaction was rolled back; the \
         limit is set by transaction-memory-max"
    ))
}

/// Redis' words for commands that need memory.
const DATA_LIMIT: &str = "OOM command not allowed when used memory > 'maxmemory'";

/// Redis' words for what does not compile.
pub(super) fn compile_error(message: &str) -> CommandError {
    CommandError::owned(format!("ERR Error compiling script (new function): {message}"))
}
