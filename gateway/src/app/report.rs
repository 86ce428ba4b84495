//! What a server logs when it starts: what it is, where its data is, what it allows, and what an operator should know.

use std::net::SocketAddr;

use tracing::{info, warn};

use crate::config::{self, Choice, Config};
use crate::process::version;
use crate::server::Server;
use crate::telemetry::counters::Listener;

/// The addresses that a server is bound to.
pub struct Listeners {
    pub resp: SocketAddr,
    pub http: Option<SocketAddr>,
    pub grpc: Option<SocketAddr>,
}

/// Logs the start of a server, a line for each subject.
pub fn of_server(server: &Server, listeners: &Listeners) {
    let config = &server.config;
    info!("moonshard {}, process {}", version::full(), std::process::id());
    info!("data: {}", data(config));
    info!("limits: {}", limits(config));
    info!("listeners: {}", addresses(listeners));
    if let Some(http) = listeners.http {
        info!(
            "web console: http{}://{}/",
            if server.process.certificates.of(Listener::Http).is_some() { "s" } else { "" },
            reachable(http)
        );
    }
    warn_if_open(server, listeners);
    warn_of_unknown_variables();
    warn_if_memory_is_not_overcommitted();
}

/// Logs the start of a store node.
pub fn of_store(config: &Config, bound: SocketAddr) {
    info!("moonshard {}, process {}, a store node", version::full(), std::process::id());
    info!("data: {}", kept(config));
    info!("limits: {}", memory(config));
    let http = config.http.get().map_or(String::new(), |address| format!(", HTTP {address}"));
    info!("listeners: store protocol {bound}{http}");
    warn_of_unknown_variables();
    warn_if_memory_is_not_overcommitted();
}

/// Where the data is.
fn data(config: &Config) -> String {
    let stores: Vec<String> = config.stores.get().iter().map(ToString::to_string).collect();
    if stores.is_empty() { kept(config) } else { format!("on store nodes, {}", stores.join(", ")) }
}

/// Where the data of this process is.
fn kept(config: &Config) -> String {
    match config.data_dir.get() {
        None => "in memory only, as data-dir is none".to_owned(),
        Some(directory) => {
            let directory = std::path::absolute(&directory).unwrap_or(directory);
            let durability = config.durability.get().word();
            format!("in the directory {}, durability {durability}", directory.display())
        }
    }
}

fn memory(config: &Config) -> String {
    match config.maxmemory.get() {
        0 => "no limit of memory".to_owned(),
        bytes => format!("maxmemory {bytes} bytes"),
    }
}

fn limits(config: &Config) -> String {
    format!(
        "{}, {} clients; a script has {} ms, {} bytes and {} units of fuel",
        memory(config),
        config.maxclients.get(),
        config.script_timeout_ms.get(),
        config.script_memory.get(),
        config.script_fuel.get(),
    )
}

fn addresses(listeners: &Listeners) -> String {
    let others = [("HTTP", listeners.http), ("gRPC", listeners.grpc)];
    let others = others.iter().filter_map(|(name, address)| Some(format!(", {name} {}", (*address)?)));
    format!("RESP {}{}", listeners.resp, others.collect::<String>())
}

/// An address that a browser on the same machine can open.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}

/// Warns of a server that other machines can reach and that needs no password.
fn warn_if_open(server: &Server, listeners: &Listeners) {
    let bound = [Some(listeners.resp), listeners.http, listeners.grpc];
    let is_reachable = bound.into_iter().flatten().any(|address| !address.ip().to_canonical().is_loopback());
    if !is_reachable || !server.acl.default_account().user().takes_any_password() {
        return;
    }
    match server.config.protected_mode.get() {
        true => warn!(
            "no password is set: clients on other machines are refused (protected-mode); set requirepass-file, or \
             users with ACL SETUSER"
        ),
        false => warn!(
            "no password is set and protected-mode is off: every machine that reaches this server has access to all \
             data"
        ),
    }
}

/// Warns of variables that look like settings.
fn warn_of_unknown_variables() {
    let variables: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    for variable in config::unknown_variables(&variables) {
        warn!("environment variable {variable} has no effect: `moonshard config` lists all parameters");
    }
}

/// Warns of a kernel that refuses to reserve memory which is not used: each sandbox reserves address space.
fn warn_if_memory_is_not_overcommitted() {
    let setting = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if setting.trim() == "2" {
        warn!(
            "vm.overcommit_memory is 2: sandboxes reserve more address space than they use, so scripts may fail; set \
             it to 0 or 1"
        );
    }
}
