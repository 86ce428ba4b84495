//! Servers in this process: with an empty store in memory, without listeners, and with nothing left behind.

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use ::script::{AnyHost, Runtime, RuntimeConfig};
use store::client::PeerCredentials;
use tokio::runtime::Handle;

use super::error::ToolError;
use crate::config::{self, Config, Sources};
use crate::net::request::Work;
use crate::process::certificates::Certificates;
use crate::process::io::IoThreads;
use crate::process::persistence::Storage;
use crate::process::{Process, threads};
use crate::scripts::Scripting;
use crate::server::{Registry, Server};

/// The compiled sandbox, which servers share.
pub struct Engine {
    runtime: Arc<Runtime<AnyHost>>,
    concurrency: usize,
}

impl Engine {
    /// Compiles the sandbox, for servers with the default settings.
    pub async fn start() -> Result<Engine, ToolError> {
        let config = config()?;
        let concurrency = config.script_concurrency.get_usize();
        let runtime = Runtime::new(RuntimeConfig {
            instances: config.script_instances.get(),
            concurrency,
            max_memory_bytes: config.script_memory_max.get_usize(),
            compile: config.script_compile.get(),
        });
        let failed =
            |error: &dyn Display| ToolError::new(format_args!("cannot start the script engine: {error:#}"));
        let runtime = runtime.await.map_err(|error| failed(&error))?;
        if let Some(compiler) = runtime.take_compiler() {
            threads::spawn("script-compiler", || compiler.run()).map_err(|error| failed(&error))?;
        }
        Ok(Engine { runtime: Arc::new(runtime), concurrency })
    }

    /// How many scripts may run at the same time.
    pub fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// A new server with an empty store and settings of its own, for use within a runtime of tokio.
    pub fn server(&self) -> Result<Arc<Server>, ToolError> {
        let config = Arc::new(config()?);
        let compute = Handle::current();
        let storage = Storage::open(&config, PeerCredentials::default(), false).map_err(ToolError::new)?;
        let io = IoThreads::new(vec![compute.clone()], compute.clone());
        let process = Process::new(Certificates::default(), io, nowhere(), String::new());
        let scripting = Scripting::new(&config, self.runtime.clone(), compute);
        Ok(Server::new(config, storage.store(), registry(), scripting, process))
    }
}

/// The default settings, but without a data directory and an audit log.
fn config() -> Result<Config, ToolError> {
    let sources = Sources {
        file: None,
        read_file: &|_: &Path| Err(std::io::ErrorKind::NotFound.into()),
        environment: &|_| None,
        variables: &[],
        flags: ["data-dir", "audit-log"].map(|name| (name, "none".to_owned())).to_vec(),
    };
    config::load(&sources).map_err(ToolError::new)
}

/// All commands.
pub fn registry() -> Registry {
    Registry::new(crate::commands::table::FAMILIES)
}

/// A client of such a server.
pub fn client(server: &Arc<Server>) -> Work {
    let account = server.acl.default_account().clone();
    let address = nowhere().to_string();
    Work::new(server, server.sessions.new_client(address.clone(), address, account))
}

/// The address of what does not listen.
fn nowhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}
