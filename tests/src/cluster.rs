//! Store nodes and gateways as processes that can be killed and started again, each where it was.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use resp::Value;
use store_engine::slot;

use crate::ports::{fixed_listener, fixed_port};
use crate::process::command;
use crate::proxy::Proxy;
use crate::temp_dir::TempDir;
use crate::{Client, TIMEOUT, TestServer, wait_until};

/// Store nodes behind proxies, and their gateways.
pub struct TestCluster {
    /// The store nodes.
    pub stores: Vec<Member>,
    /// Their gateways.
    pub gateways: Vec<Member>,
    /// The wire to each store node.
    pub wires: Vec<Proxy>,
}

/// A store node or a gateway, whether it runs or not.
pub struct Member {
    flags: Vec<String>,
    port: u16,
    endpoint: &'static str,
    server: Option<TestServer>,
    /// Times of the product that are shorter than usual.
    times: &'static str,
    /// Its data, if it keeps some.
    pub dir: Option<TempDir>,
    controls: Option<Controls>,
    probes: Option<SocketAddr>,
}

/// What a test does to the disk and the clock of a running process: it looks at files in this directory.
struct Controls(TempDir);

/// Changes the clock that a process sees. Its package is named `faketime` on Debian.
const LIBFAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

impl Controls {
    fn new() -> Controls {
        let controls = Controls(TempDir::made("controls"));
        controls.set("taking", true);
        controls.set_clock(0);
        controls
    }

    /// Makes a file, or removes it.
    fn set(&self, file: &str, is_there: bool) {
        let path = self.0.path().join(file);
        match is_there {
            true => std::fs::write(path, "").expect("it can be written"),
            false => drop(std::fs::remove_file(path)),
        }
    }

    fn set_clock(&self, ahead_seconds: i64) {
        // Renamed, so that it is never read by half.
        let (file, new) = (self.0.path().join("clock"), self.0.path().join("clock.new"));
        std::fs::write(&new, format!("{ahead_seconds:+}\n")).expect("it can be written");
        std::fs::rename(new, file).expect("it can be renamed");
    }

    fn fail_points(&self) -> String {
        let dir = self.0.text();
        format!(",applied=until:{dir}/taking,log=until:{dir}/taking,flushed={dir}/full,log={dir}/full")
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        if !can_change_clocks() {
            return Vec::new();
        }
        vec![
            ("LD_PRELOAD", LIBFAKETIME.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", format!("{}/clock", self.0.text())),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            // Of the one name in newer versions, of the other one in older ones.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

/// Whether the clock of a process can be changed on this machine.
pub fn can_change_clocks() -> bool {
    std::path::Path::new(LIBFAKETIME).exists()
}

impl Member {
    fn new(role: &str, endpoint: &'static str, flags: &[&str]) -> Member {
        let port = fixed_port();
        let own = [role.to_owned(), format!("--{endpoint}"), format!("127.0.0.1:{port}")];
        let flags = own.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
        Member { flags, port, endpoint, server: None, times: "", dir: None, controls: None, probes: None }
    }

    /// A store node. With a `durability` it has a folder for its data.
    pub fn store(durability: Option<&str>, flags: &[&str]) -> Member {
        let mut member = Member::new("store", "grpc", flags);
        if let Some(durability) = durability {
            let dir = TempDir::new("cluster");
            let more = ["--data-dir", dir.text(), "--durability", durability];
            member.flags.extend(more.map(str::to_owned));
            member.dir = Some(dir);
        }
        member
    }

    /// The same with a listener for probes.
    pub fn with_probes(mut self) -> Member {
        let port = fixed_port();
        self.flags.extend(["--http".to_owned(), format!("127.0.0.1:{port}")]);
        self.probes = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        self
    }

    /// A store node that is to belong to a cluster with replicas, with a listener for probes.
    pub fn replicated_store() -> Member {
        Member::store(Some("sync"), &["--replicated", "yes"]).with_probes()
    }

    /// Where probes ask a member that was made `with_probes`.
    pub fn probes(&self) -> SocketAddr {
        self.probes.expect("it has such a listener")
    }

    /// What a member with probes says to those who ask whether it is ready; empty if it does not answer.
    pub fn readiness(&self) -> String {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.probes())?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            write!(stream, "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().unwrap_or_default();
        answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
    }

    /// A gateway of the stores at these addresses.
    pub fn gateway(stores: &[SocketAddr], flags: &[&str]) -> Member {
        let stores: Vec<String> = stores.iter().map(SocketAddr::to_string).collect();
        let own = ["--http", "off", "--grpc", "off", "--stores", &stores.join(",")];
        Member::new("gateway", "resp", &[&own, flags].concat())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The directory of its data.
    pub fn data_dir(&self) -> &Path {
        self.dir.as_ref().expect("it has one").path()
    }

    /// Starts it, and waits until it is ready.
    pub fn start(&mut self) {
        self.start_failing("");
    }

    /// The same with places where it is to fail.
    pub fn start_failing(&mut self, fail_points: &str) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let mut points = [self.times, fail_points].join(",");
        let mut variables = Vec::new();
        if let Some(controls) = &self.controls {
            points.push_str(&controls.fail_points());
            variables = controls.variables();
        }
        // A killed one may hold its port for a moment.
        wait_until("it starts", || {
            match TestServer::spawn_in(&variables, &flags, &points, &format!("{}=", self.endpoint)) {
                Ok(server) => {
                    self.server = Some(server);
                    true
                }
                Err(log) => {
                    let in_use = log.contains("Address already in use");
                    // One that is to fail may have done so before it said that it is ready.
                    assert!(in_use || !fail_points.is_empty(), "instead of a ready line: {log}");
                    !in_use
                }
            }
        });
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    /// Ends it as an operator does, and waits until it has finished what it does then.
    pub fn stop(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.signal(libc::SIGTERM);
        let status = server.wait();
        assert!(status.success(), "it ended with {status}: {}", server.log());
    }

    /// Whether it runs. One that has ended by itself does not any more.
    pub fn is_running(&mut self) -> bool {
        let ended = self.server.as_mut().is_some_and(|server| !server.is_running());
        if ended {
            self.server = None;
        }
        self.server.is_some()
    }

    /// The running process.
    pub fn server(&self) -> &TestServer {
        self.server.as_ref().expect("it runs")
    }

    /// A connection to a gateway.
    pub fn client(&self) -> Client {
        self.server().client()
    }

    /// Whether its disk takes anything; else the disk makes it wait. Only of a cluster with controls.
    pub fn set_disk_stalled(&self, is_stalled: bool) {
        self.controls().set("taking", !is_stalled);
    }

    /// Whether its disk refuses everything, as a full one does. Only of a cluster with controls.
    pub fn set_disk_full(&self, is_full: bool) {
        self.controls().set("full", is_full);
    }

    /// Sets its clock so many seconds ahead, or back if it is negative. Seen within a second. Only of a cluster with
    /// controls, where [`can_change_clocks`].
    pub fn set_clock(&self, ahead_seconds: i64) {
        self.controls().set_clock(ahead_seconds);
    }

    fn controls(&self) -> &Controls {
        self.controls.as_ref().expect("it was started with controls")
    }

    /// Stops it, or lets it go on.
    pub fn freeze(&self, stop: bool) {
        self.server().signal(if stop { libc::SIGSTOP } else { libc::SIGCONT });
    }
}

impl TestCluster {
    /// So many stores and gateways, all running and connected.
    pub fn start(stores: usize, gateways: usize, durability: Option<&str>) -> TestCluster {
        TestCluster::start_with(stores, gateways, durability, &[])
    }

    /// The same with flags for the gateways.
    pub fn start_with(
        stores: usize,
        gateways: usize,
        durability: Option<&str>,
        flags: &[&str],
    ) -> TestCluster {
        TestCluster::start_timed(stores, gateways, durability, flags, "", false)
    }

    /// The same with controls for the disks and clocks of the stores.
    pub fn start_controlled(
        stores: usize,
        gateways: usize,
        durability: Option<&str>,
        flags: &[&str],
    ) -> TestCluster {
        TestCluster::start_timed(stores, gateways, durability, flags, "", true)
    }

    /// The same where nodes soon ask what became of a transaction, and are soon in doubt: for tests in which no answer comes.
    pub fn start_hurried(stores: usize, gateways: usize, durability: Option<&str>) -> TestCluster {
        let times = "outcome-ms=1000,in-doubt-ms=1000,ask-after-ms=500";
        TestCluster::start_timed(stores, gateways, durability, &[], times, false)
    }

    fn start_timed(
        stores: usize,
        gateways: usize,
        durability: Option<&str>,
        flags: &[&str],
        times: &'static str,
        with_controls: bool,
    ) -> TestCluster {
        let timed = |member: Member| Member { times, ..member };
        let controls = || with_controls.then(Controls::new);
        let store = |_| Member { controls: controls(), ..timed(Member::store(durability, &[])) };
        let mut stores: Vec<Member> = (0..stores).map(store).collect();
        stores.iter_mut().for_each(Member::start);
        let wires: Vec<Proxy> =
            stores.iter().map(|store| Proxy::start(fixed_listener(), store.address())).collect();
        let addresses: Vec<SocketAddr> = wires.iter().map(Proxy::address).collect();
        let mut gateways: Vec<Member> =
            (0..gateways).map(|_| timed(Member::gateway(&addresses, flags))).collect();
        gateways.iter_mut().for_each(Member::start);
        let cluster = TestCluster { stores, gateways, wires };
        cluster.wait();
        cluster
    }

    /// So many stores with a group each, of which all groups have three replicas, and gateways.
    pub fn start_replicated(stores: usize, gateways: usize) -> TestCluster {
        TestCluster::start_founded(stores, gateways, "3")
    }

    /// The same with another number of replicas.
    pub fn start_founded(stores: usize, gateways: usize, replicas: &str) -> TestCluster {
        let stores = (0..stores).map(|_| Member::replicated_store()).collect();
        let mut cluster = TestCluster::of_stores(stores, replicas);
        cluster.add_gateways(gateways, &[]);
        cluster
    }

    /// So many stores of groups with three replicas, and gateways with these flags; with controls for the disks and clocks of the
    /// stores, or without.
    pub fn start_replicated_with(
        stores: usize,
        gateways: usize,
        flags: &[&str],
        with_controls: bool,
    ) -> TestCluster {
        let controls = || with_controls.then(Controls::new);
        let store = |_| Member { controls: controls(), ..Member::replicated_store() };
        let mut cluster = TestCluster::of_stores((0..stores).map(store).collect(), "3");
        cluster.add_gateways(gateways, flags);
        cluster
    }

    /// So many stores as in `start_replicated`, whose times are these, without gateways.
    pub fn start_replicated_timed(stores: usize, times: &'static str) -> TestCluster {
        let store = |_| Member { times, ..Member::replicated_store() };
        TestCluster::of_stores((0..stores).map(store).collect(), "3")
    }

    fn add_gateways(&mut self, gateways: usize, flags: &[&str]) {
        let addresses: Vec<SocketAddr> = self.wires.iter().map(Proxy::address).collect();
        self.gateways = (0..gateways).map(|_| Member::gateway(&addresses, flags)).collect();
        self.gateways.iter_mut().for_each(Member::start);
        self.wait();
    }

    /// These stores, which are started, without gateways.
    pub fn of_stores(mut stores: Vec<Member>, replicas: &str) -> TestCluster {
        stores.iter_mut().for_each(Member::start);
        let wires: Vec<Proxy> =
            stores.iter().map(|store| Proxy::start(fixed_listener(), store.address())).collect();
        let addresses: Vec<SocketAddr> = wires.iter().map(Proxy::address).collect();
        let (code, text) = found(&addresses, replicas);
        assert_eq!(code, Some(0), "{text}");
        TestCluster { stores, gateways: Vec::new(), wires }
    }

    /// Waits until every gateway reaches all stores.
    pub fn wait(&self) {
        for gateway in &self.gateways {
            let mut client = gateway.client();
            wait_until("all stores are reached", || matches!(client.run("DBSIZE"), Value::Integer(_)));
        }
    }

    /// A connection to a gateway.
    pub fn client(&self, gateway: usize) -> Client {
        self.gateways[gateway].client()
    }

    /// A key with this name on a store.
    pub fn key(&self, store: usize, name: &str) -> String {
        key_on(store, self.stores.len(), name)
    }
}

impl TestCluster {
    /// Starts a store without data; its address for the others.
    pub fn add_store(&mut self) -> SocketAddr {
        let mut store = Member::replicated_store();
        store.start();
        let wire = Proxy::start(fixed_listener(), store.address());
        let address = wire.address();
        self.stores.push(store);
        self.wires.push(wire);
        address
    }

    /// The groups as `moonshard topology groups --json` shows them.
    pub fn groups(&self) -> serde_json::Value {
        let (code, text) = self.topology(&["groups", "--json"]);
        assert_eq!(code, Some(0), "{text}");
        serde_json::from_str(&text).expect("it is JSON")
    }

    /// Which store leads this group.
    pub fn leader(&self, group: &str) -> usize {
        let mut leader = None;
        wait_until("it has a leader", || {
            let groups = self.groups();
            let all = groups["groups"].as_array().expect("a list");
            let of = all.iter().find(|known| known["name"] == *group).expect("it is one of them");
            let replicas = of["replicas"].as_array().expect("a list");
            let leads = replicas.iter().find(|replica| replica["role"] == "leader");
            let address = leads.and_then(|replica| replica["address"].as_str());
            leader = self.wires.iter().position(|wire| Some(&*wire.address().to_string()) == address);
            leader.is_some()
        });
        leader.expect("it was found")
    }

    /// Does `moonshard topology` with these arguments; what it exits with, and what it says.
    pub fn topology(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let stores: Vec<String> = self.wires.iter().map(|wire| wire.address().to_string()).collect();
        topology(&stores, arguments)
    }
}

fn topology(stores: &[String], arguments: &[&str]) -> (Option<i32>, String) {
    let stores = stores.join(",");
    let line = [&["topology"], arguments, &["--stores", &stores]].concat();
    let output = command(&line).output().expect("it starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Makes a cluster of processes; what `moonshard topology found` exits with, and what it says.
pub fn found(addresses: &[SocketAddr], replicas: &str) -> (Option<i32>, String) {
    let stores: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    topology(&stores, &["found", "--replicas", replicas])
}

/// A key with this name that the given one of so many stores has.
pub fn key_on(store: usize, stores: usize, name: &str) -> String {
    let on = |key: &String| usize::from(slot::slot(key.as_bytes())) * stores / 16_384 == store;
    let key = (0..).map(|number| format!("{name}:{number}")).find(on);
    key.expect("one of many names is there")
}
