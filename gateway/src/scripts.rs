//! Which scripts and functions are known, what they ask for in their header, and which of them run.

pub mod cache;
pub mod functions;
pub mod header;
pub mod options;
pub mod running;

use std::sync::Arc;

use script::{AnyHost, Runtime};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use self::cache::Scripts;
use self::functions::Functions;
use self::running::Runs;
use crate::config::Config;

/// What runs scripts and functions, and which there are.
pub struct Scripting {
    /// Runs scripts. The hosts are those of `scripting`, which is above this module: hence their type is hidden.
    pub runtime: Arc<Runtime<AnyHost>>,
    /// Where runs go on that outlast their first slice of fuel, so that no connection's thread is held.
    pub compute: Handle,
    /// Known scripts.
    pub cache: Scripts,
    /// Loaded libraries.
    pub functions: Functions,
    /// Held while scripts or libraries are changed together with their records.
    pub loading: Mutex<()>,
    /// Scripts and functions that run or wait.
    pub runs: Runs,
}

impl Scripting {
    /// Nothing is loaded yet.
    pub fn new(config: &Arc<Config>, runtime: Arc<Runtime<AnyHost>>, compute: Handle) -> Scripting {
        Scripting {
            runtime,
            compute,
            cache: Scripts::new(config.clone()),
            functions: Functions::default(),
            loading: Mutex::default(),
            runs: Runs::default(),
        }
    }
}
