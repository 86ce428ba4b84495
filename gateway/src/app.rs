//! Builds the parts bottom-up, serves, and drains top-down.

mod background;
mod errors;
mod peers;
mod replicas;
mod report;
pub mod store;
mod telemetry;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use script::{Runtime, RuntimeConfig};
use tls::Wire;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tracing::info;

pub use self::errors::StartError;
use crate::commands::reload::reload;
use crate::config::{Address, Config, SettingError};
use crate::follow;
use crate::net::{self, acceptor};
use crate::process::certificates::Certificates;
use crate::process::io::IoThreads;
use crate::process::persistence::Storage;
use crate::process::{Process, Stop, descriptors, service_manager, threads};
use crate::scripts::Scripting;
use crate::scripts::cache::{sha_of, spelled};
use crate::server::{Registry, Server, gateways};
use crate::telemetry::counters::{Listener, give_back_memory, unix_time};
use crate::telemetry::log;

/// How long connections may take to finish what they are doing when the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until SIGTERM or SIGINT.
///
/// Connections live on `threads` threads with a runtime each, which costs less per request than one runtime
/// whose threads steal each other's work. Whatever takes longer than a slice of fuel, and everything that is no
/// connection, runs on a work-stealing runtime of as many threads.
///
/// With `accept_loss` it does so although data is lost.
pub fn serve(config: Config, accept_loss: bool) -> Result<(), StartError> {
    let config = Arc::new(config);
    log::follow(&config);
    descriptors::raise_limit();
    descriptors::fit_clients(&config);
    let count = config.threads.get_usize();
    let failed = |what| move |error| StartError::System(what, error);
    let compute = Builder::new_multi_thread()
        .worker_threads(count)
        .thread_name("compute")
        .on_thread_start(threads::give_way)
        .enable_all()
        .build()
        .map_err(failed("start threads"))?;
    let (stop_io, io_stopped) = watch::channel(false);
    let mut io = Vec::new();
    let mut io_threads = Vec::new();
    for number in 0..count {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(failed("start an I/O thread"))?;
        io.push(runtime.handle().clone());
        let mut stopped = io_stopped.clone();
        let thread = std::thread::Builder::new()
            .name(format!("io-{number}"))
            .spawn(move || runtime.block_on(async { stopped.wait_for(|stop| *stop).await.map(drop) }));
        io_threads.push(thread.map_err(failed("start an I/O thread"))?);
    }
    let result = compute.block_on(run(config, accept_loss, compute.handle().clone(), io));
    let _ = stop_io.send(true);
    for thread in io_threads {
        let _ = thread.join();
    }
    compute.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run(
    config: Arc<Config>,
    accept_loss: bool,
    compute: Handle,
    io: Vec<Handle>,
) -> Result<(), StartError> {
    let mut signals = Signals::new()?;
    let certificates = Certificates::load(&config)?;
    let storage = {
        // Streams to nodes elsewhere live where most connections do: what these ask is then sent together.
        let _on_first_thread = io.first().map(Handle::enter);
        let peer_credentials = certificates.peer_credentials(&config)?;
        Storage::open(&config, peer_credentials, accept_loss)?
    };
    let resp = config.resp.get().ok_or(SettingError::new("resp", "no address is set"))?;
    let (resp_listener, resp_addr) = listen("resp", &resp, &config)?;
    // The host stays as it was given, for CONFIG REWRITE.
    config.resp.set(Some(Address { port: resp_addr.port(), ..resp }));
    let http = config.http.get().map(|address| listen("http", &address, &config)).transpose()?;
    let grpc = config.grpc.get().map(|address| listen("grpc", &address, &config)).transpose()?;

    let runtime = Runtime::new(RuntimeConfig {
        instances: config.script_instances.get(),
        concurrency: config.script_concurrency.get_usize(),
        max_memory_bytes: config.script_memory.get_usize().max(config.script_memory_max.get_usize()),
        compile: config.script_compile.get(),
    });
    let runtime = runtime.await.map_err(|error| StartError::ScriptEngine(format!("{error:#}")))?;
    if let Some(compiler) = runtime.take_compiler() {
        threads::spawn("script-compiler", || compiler.run())
            .map_err(|error| StartError::System("start a thread that compiles scripts", error))?;
    }
    give_back_memory();
    let io = IoThreads::new(io, compute.clone());
    let run_id = spelled(&sha_of(format!("{:?}{}", unix_time(), std::process::id()).as_bytes()));
    let process = Process::new(certificates, io.clone(), resp_addr, run_id);
    let scripting = Scripting::new(&config, Arc::new(runtime), compute);
    let registry = Registry::new(crate::commands::table::FAMILIES);
    let server = Server::new(config, storage.store(), registry, scripting, process);

    let weak = Arc::downgrade(&server);
    server.store.set_invalidation_listener(Box::new(move |origin, changed| {
        if let Some(server) = weak.upgrade() {
            server.sessions.tracking.changed(&server.sessions.pubsub, origin.client, &changed);
        }
    }));
    hear_of_events(&server);
    let collector = telemetry::open(&server.config, &server.process.run_id, &server.telemetry.spans);
    if let Some(node) = server.store.node() {
        server.config.apply_settings_of_data(node);
        let _ = reload(&server).await;
    }
    follow::begin(&server);
    open_doors(&server).await?;
    if server.store.cluster().is_some() {
        // Whoever hears that it is ready may call what others have loaded. Nodes may not be there yet.
        let _ = tokio::time::timeout(CATALOG_KNOWN, reload(&server)).await;
    }
    let (set_ready, ready) = watch::channel(true);
    let addresses = [("http", &http), ("grpc", &grpc)].map(|(name, listener)| match listener {
        Some((_, address)) => format!(" {name}={address}"),
        None => String::new(),
    });
    let address_of = |listener: &Option<(_, SocketAddr)>| listener.as_ref().map(|(_, address)| *address);
    let listeners = report::Listeners { resp: resp_addr, http: address_of(&http), grpc: address_of(&grpc) };
    report::of_server(&server, &listeners);
    // Ends with the process: until then it reports that the process is about to end.
    if let Some((listener, _)) = http {
        tokio::spawn(net::http::serve(server.clone(), listener, ready.clone()));
    }
    let grpc =
        grpc.map(|(listener, _)| tokio::spawn(net::grpc::serve(server.clone(), listener, ready.clone())));
    let (stop_exporting, exporting) = watch::channel(true);
    let balancing = tokio::spawn(io.clone().balance());
    let accepting = tokio::spawn(accept(server.clone(), resp_listener, io, ready));
    let background = tokio::spawn(background::run(server.clone()));
    let following = tokio::spawn(follow::run(server.clone()));
    let exporting = tokio::spawn(telemetry::of_server(server.clone(), collector, exporting));
    service_manager::ready(&format!("moonshard ready resp={resp_addr}{}", addresses.concat()));

    let mut stop = server.process.stop.subscribe();
    let gives_notice = tokio::select! {
        gives_notice = signals.any() => gives_notice,
        _ = stop.wait_for(|stop| *stop != Stop::Never) => false,
    };
    service_manager::stopping();
    info!("shutting down: new connections are refused, pending requests are completed");
    accepting.abort();
    background.abort();
    following.abort();
    balancing.abort();
    if gives_notice {
        server.sessions.announce_stop(&server.config.client_output_buffer_limit.pubsub);
    }
    let _ = set_ready.send(false);
    let drained = async {
        while server.telemetry.counters.connections.load(Ordering::Relaxed) > 0 {
            // They wait for others, who are not served any more.
            server
                .sessions
                .clients
                .lock()
                .values()
                .filter(|client| client.is_blocked() && !client.maintenance.is_moving())
                .for_each(|client| client.kill());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if let Some(grpc) = grpc {
            let _ = grpc.await;
        }
    };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        info!("shutting down: connections with pending requests were closed after the grace period");
    }
    // It ends when it has sent what was left.
    let _ = stop_exporting.send(false);
    let _ = exporting.await;
    let abandon = *server.process.stop.borrow() == Stop::Abandoning;
    Ok(storage.close(abandon)?)
}

/// How long a start waits until store nodes have sent the users, and then the scripts and libraries. Until they
/// have sent the users, every client is refused.
const CATALOG_KNOWN: Duration = Duration::from_secs(1);

/// Makes known who may be let in: the users of the file or those that are kept, then `requirepass`.
async fn open_doors(server: &Server) -> Result<(), StartError> {
    let config = &server.config;
    match config.aclfile.get() {
        Some(path) => {
            let users = server.acl.load(&path).map_err(StartError::Users)?;
            server.acl.replace(users);
        }
        // Nodes elsewhere may not be there yet.
        None if server.store.node().is_none() => {
            server.acl.wait_for_users();
            let _ = tokio::time::timeout(CATALOG_KNOWN, crate::commands::acl::reload_users(server)).await;
        }
        None => {}
    }
    let password = match config.requirepass_file.get() {
        Some(path) => {
            let text = std::fs::read_to_string(&path).map_err(|error| {
                SettingError::new("requirepass-file", format_args!("cannot read {}: {error}", path.display()))
            })?;
            text.lines().next().unwrap_or_default().to_owned()
        }
        None => config.requirepass.get(),
    };
    server.acl.begin_with(password);
    Ok(())
}

/// SIGTERM and SIGINT.
struct Signals {
    term: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals, StartError> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(|error| StartError::System("listen for signals", error));
        Ok(Signals { term: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for one. Whether clients are to have time to move: who presses Ctrl-C does not want to wait.
    async fn any(&mut self) -> bool {
        tokio::select! {
            _ = self.term.recv() => true,
            _ = self.interrupt.recv() => false,
        }
    }
}

/// Lets clients hear of what happens to keys, and other gateways ask. Before any client is there, so that it misses
/// nothing.
fn hear_of_events(server: &Arc<Server>) {
    let weak = Arc::downgrade(server);
    match &server.store {
        ::store::Store::Local(node) => node.set_audience(Box::new(move |classes, events| {
            if let Some(server) = weak.upgrade() {
                server.sessions.pubsub.announce(classes, &events);
            }
        })),
        ::store::Store::Distributed(cluster) => {
            cluster.respond(gateways::query_handler(server));
            cluster.set_audience(Box::new(move |classes, events| {
                let Some(server) = weak.upgrade() else { return };
                if events.is_empty() {
                    // All gateways of a cluster show the same.
                    server.config.notify_keyspace_events.set(classes.into());
                } else {
                    server.sessions.pubsub.announce(classes, &events);
                }
            }));
        }
    }
}

/// Opens a listening socket.
fn listen(
    name: &'static str,
    address: &Address,
    config: &Config,
) -> Result<(TcpListener, SocketAddr), SettingError> {
    let open = || -> std::io::Result<(TcpListener, SocketAddr)> {
        let at = address.resolve()?;
        let socket = socket2::Socket::new(socket2::Domain::for_address(at), socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&at.into())?;
        socket.listen(i32::try_from(config.tcp_backlog.get()).unwrap_or(i32::MAX))?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from_std(socket.into())?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    open().map_err(|error| SettingError::new(name, format_args!("cannot listen on {address}: {error}")))
}

/// Accepts RESP connections and hands each to an I/O thread.
async fn accept(
    server: Arc<Server>,
    listener: TcpListener,
    io: Arc<IoThreads>,
    ready: watch::Receiver<bool>,
) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: connections that end will free some.
                info!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let refused = |why: &str| format!("-{why}\r\n").into_bytes();
        let full = b"-ERR max number of clients reached\r\n";
        if !acceptor::lets_in(&server, Listener::Resp, &stream, peer.ip(), full, refused) {
            continue;
        }
        set_socket_options(&stream, &server.config);
        let own = stream.local_addr().unwrap_or(server.process.resp_addr);
        let account = server.acl.default_account().clone();
        let client = server.sessions.new_client(peer.to_string(), own.to_string(), account);
        match server.process.certificates.wire(stream, Listener::Resp).and_then(Wire::detach) {
            Ok(stream) => net::resp::serve(&server, stream, client, &ready, io.slot()),
            Err(_) => {
                server.telemetry.counters.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

fn set_socket_options(stream: &TcpStream, config: &Config) {
    // A socket that refuses these still works.
    let _ = stream.set_nodelay(true);
    let seconds = config.tcp_keepalive.get();
    if seconds > 0 {
        let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(seconds));
        let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}
