//! Loading a library: its chunk runs once, with nothing of the store in reach.

use std::pin::pin;
use std::sync::Arc;

use script::{AnyHost, CallFlags, Finishing, Host, HostCall, Limit, LogLevel, Outcome, Script};
use store_engine::CommandError;

use super::limits::Burning;
use crate::acl::Account;
use crate::functions::{Library, Outline};
use crate::gate;
use crate::options::Options;
use crate::server::Server;

/// What the chunk of a library meets.
struct Loading;

impl Host for Loading {
    /// `redis.call` is not there yet: whoever gets here is not the guest we built.
    fn call(&mut self, _: &[&[u8]], _: CallFlags, _: &mut Vec<u8>) -> HostCall {
        HostCall::Stop
    }

    fn finish<'a>(&'a mut self, _: &'a mut Vec<u8>) -> Finishing<'a> {
        Box::pin(std::future::ready(None))
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        crate::log::script(level, text, None);
    }
}

/// Makes a library of its text, in a sandbox of its own and within the budget of a script: of this user if there is something
/// that it may not do.
pub async fn load_library(
    server: &Server,
    account: Option<Arc<Account>>,
    outline: &Outline<'_>,
) -> Result<Library, CommandError> {
    let script = Script::new(outline.body);
    let (mut budget, mut burning, mut _turn) = (server.budget(), None, None);
    if let Some(account) = account {
        budget = server.budget_for(&Options::default(), account.user().limits())?;
        _turn = gate::turn(server, &account).await?;
        burning = Burning::of_user(server, &account, budget.fuel);
    }
    let _permit = server.runtime.admit(false).await;
    let outcome = {
        let load = pin!(server.runtime.load(&script, &budget, AnyHost::new(Box::new(Loading))));
        match burning {
            None => load.await,
            Some(burning) => burning.watch(load, |_| None).await,
        }
    };
    match outcome {
        Outcome::Reply(reply) => Library::new(outline, script, &reply),
        Outcome::Limit(Limit::Fuel | Limit::Time) => {
            Err(CommandError::new("ERR Error registering functions: ERR FUNCTION LOAD timeout"))
        }
        Outcome::Limit(limit) => Err(CommandError::owned(format!(
            "SCRIPTLIMIT {}: used up while the library was loaded",
            limit.name()
        ))),
        other => Err(CommandError::owned(format!("SCRIPTTRAP the library could not be loaded: {other:?}"))),
    }
}
