//! Store nodes and gateways as processes that can be killed and started again, each where it was.

use std::net::{Ipv4Addr, SocketAddr};

use resp::Value;
use store_engine::slot;

use crate::ports::{fixed_listener, fixed_port};
use crate::proxy::Proxy;
use crate::temp_dir::TempDir;
use crate::{Client, TestServer, wait_until};

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
}

impl Member {
    fn new(role: &str, endpoint: &'static str, flags: &[&str]) -> Member {
        let port = fixed_port();
        let own = [role.to_owned(), format!("--{endpoint}"), format!("127.0.0.1:{port}")];
        let flags = own.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
        Member { flags, port, endpoint, server: None, times: "", dir: None }
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

    /// Starts it, and waits until it is ready.
    pub fn start(&mut self) {
        self.start_failing("");
    }

    /// The same with places where it is to fail.
    pub fn start_failing(&mut self, fail_points: &str) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let points = [self.times, fail_points].join(",");
        // A killed one may hold its port for a moment.
        wait_until("it starts", || {
            match TestServer::spawn(&flags, &points, &format!("{}=", self.endpoint)) {
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
        TestCluster::start_timed(stores, gateways, durability, flags, "")
    }

    /// The same where nodes soon ask what became of a transaction, and are soon in doubt: for tests in which no answer comes.
    pub fn start_hurried(stores: usize, gateways: usize, durability: Option<&str>) -> TestCluster {
        let times = "outcome-ms=1000,in-doubt-ms=1000,ask-after-ms=500";
        TestCluster::start_timed(stores, gateways, durability, &[], times)
    }

    fn start_timed(
        stores: usize,
        gateways: usize,
        durability: Option<&str>,
        flags: &[&str],
        times: &'static str,
    ) -> TestCluster {
        let timed = |member: Member| Member { times, ..member };
        let mut stores: Vec<Member> = (0..stores).map(|_| timed(Member::store(durability, &[]))).collect();
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

/// A key with this name that the given one of so many stores has.
pub fn key_on(store: usize, stores: usize, name: &str) -> String {
    let on = |key: &String| usize::from(slot::slot(key.as_bytes())) * stores / 16_384 == store;
    let key = (0..).map(|number| format!("{name}:{number}")).find(on);
    key.expect("one of many names is there")
}
