//! Compiling of scripts that are loaded or checked, and loading of libraries: the chunk of one runs once, with nothing of the
//! store in reach.

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use script::{
    AnyHost, Budget, CallFlags, Finishing, Host, HostCall, Limit, LogLevel, Outcome, ResourceUsage, Script,
};
use store_engine::CommandError;

use super::errors::compile_error;
use super::fuel_meter::FuelMeter;
use super::limits::Reached;
use crate::acl::Account;
use crate::admission;
use crate::scripts::functions::{Library, Outline};
use crate::scripts::options::Options;
use crate::server::Server;
use crate::session::Session;

/// Whoever compiles: within the budget of a script. If there is something that its user may not do, then within that of
/// this user, whose fuel it burns and whose turn it takes, unless EXEC has it.
struct Compiling<'a> {
    server: &'a Server,
    account: Option<Arc<Account>>,
    has_permit: bool,
    budget: Budget,
}

impl<'a> Compiling<'a> {
    fn of(server: &'a Server, session: Option<&Session>) -> Result<Compiling<'a>, CommandError> {
        let account = session.and_then(Session::limited_account);
        let budget = match &account {
            None => server.config.budget(),
            Some(account) => server.acl.budget_for(&Options::default(), account.user().limits())?,
        };
        Ok(Compiling { server, account, has_permit: session.is_some_and(|session| session.in_exec), budget })
    }

    /// Waits for the turn and does `work`, which keeps to the budget.
    async fn drive<T>(&self, work: impl Future<Output = (T, ResourceUsage)>) -> Result<T, CommandError> {
        let (mut fuel_meter, mut _script_permit) = (None, None);
        if let Some(account) = &self.account {
            if !self.has_permit {
                _script_permit = admission::script_permit(&self.server.acl, account).await?;
            }
            fuel_meter = FuelMeter::of(account, &self.budget, None);
        }
        let _permit = self.server.scripting.runtime.admit(false).await;
        let work = pin!(work);
        let (done, _) = match fuel_meter {
            None => work.await,
            Some(fuel_meter) => fuel_meter.watch(work, |(_, usage)| usage.total_fuel()).await,
        };
        Ok(done)
    }

    /// Counts the limit that ended the work on `what`.
    fn reached(&self, limit: Limit, what: impl Display) -> CommandError {
        let reached = Reached::of(&self.server.acl, self.account.as_ref(), &self.budget, limit);
        CommandError::owned(reached.error(what))
    }
}

/// Compiles a script, which keeps the image of it.
pub async fn compile(
    server: &Server,
    session: Option<&Session>,
    script: &Script,
) -> Result<(), CommandError> {
    let compiling = Compiling::of(server, session)?;
    let compiled = compiling.drive(server.scripting.runtime.compile(script, &compiling.budget)).await?;
    compiled.map_err(|outcome| match outcome {
        Outcome::CompileError(message) => compile_error(&message),
        Outcome::Limit(limit) => compiling.reached(limit, "while the script was compiled"),
        other => CommandError::owned(format!("SCRIPTTRAP the script could not be compiled: {other:?}")),
    })
}

/// What the chunk of a library meets.
struct Loading;

impl Host for Loading {
    /// `redis.call` is not there yet: the guest that we built does not get here.
    fn call(&mut self, _: &[&[u8]], _: CallFlags, _: &mut Vec<u8>) -> HostCall {
        HostCall::Stop
    }

    fn finish<'a>(&'a mut self, _: &'a mut Vec<u8>) -> Finishing<'a> {
        Box::pin(std::future::ready(HostCall::Stop))
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        crate::telemetry::log::script(level, text, None);
    }
}

/// Makes a library of its text, in a sandbox of its own.
pub async fn load_library(
    server: &Server,
    session: Option<&Session>,
    outline: &Outline<'_>,
) -> Result<Library, CommandError> {
    let script = Script::new(outline.body);
    let compiling = Compiling::of(server, session)?;
    let load = server.scripting.runtime.load(&script, &compiling.budget, AnyHost::new(Box::new(Loading)));
    match compiling.drive(load).await? {
        Outcome::Reply(reply) => {
            let (held, most) = (script.image_bytes(), server.config.library_memory_max.get_usize());
            // One that was loaded before a change of the limit is loaded again when the server starts.
            if held > most && session.is_some() {
                return Err(CommandError::owned(format!(
                    "SCRIPTLIMIT memory: the library {} occupies {held} bytes once it is loaded; \
                     the limit of {most} bytes is set by library-memory-max",
                    outline.name
                )));
            }
            Library::new(outline, script, &reply)
        }
        Outcome::Limit(limit) => {
            let error = compiling.reached(limit, "while the library was loaded");
            Err(match limit {
                Limit::Fuel | Limit::Time => {
                    CommandError::new("ERR Error registering functions: ERR FUNCTION LOAD timeout")
                }
                Limit::Memory | Limit::Reply => error,
            })
        }
        other => Err(CommandError::owned(format!("SCRIPTTRAP the library could not be loaded: {other:?}"))),
    }
}
