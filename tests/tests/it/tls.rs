//! TLS on every face and between the parts of a cluster. Clients that do not speak it go through a tunnel; what comes
//! out of that is the same as without.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tests::certificates::{Authority, Tunnel};
use tests::process::refused;
use tests::{Client, Http, TestServer, Value, notation, wait_until};
use tls::Protocol::{Http as OverHttp, Resp};
use tls::{Files, Tls, Wire};

const HOST: &str = "localhost";

fn start(flags: &[String], more: &[&str]) -> TestServer {
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    TestServer::start(&flags)
}

fn client(tunnel: &Tunnel) -> Client {
    Client::connect(tunnel.address(), tests::Protocol::Resp2)
}

/// Whether nothing that was asked through this is answered.
fn leads_nowhere(tunnel: &Tunnel) -> bool {
    let mut client = client(tunnel);
    let _ = client.send_raw(b"PING\r\n");
    !matches!(client.try_read(), Ok(Some(_)))
}

#[test]
fn redis_clients_are_served() {
    let authority = Authority::new();
    let server = start(&authority.flags("server", &[HOST]), &["--tls-auth-clients", "no", "--threads", "2"]);
    let tunnel = Tunnel::new(server.address(), Resp, HOST, &authority.root(), None);
    let mut client = client(&tunnel);
    assert_eq!(notation::reply(&client.run("PING")), "+PONG");
    // More than a record, and more than is taken at once.
    let large = vec![b'x'; 3 << 20];
    client.call([&b"SET"[..], b"large", &large]);
    assert_eq!(client.call(["GET", "large"]).text(), Some(&large[..]));
    let requests: Vec<Vec<Vec<u8>>> =
        (0..5000).map(|n| vec![b"ECHO".to_vec(), format!("{n}").into()]).collect();
    for (n, reply) in client.pipeline(&requests).into_iter().enumerate() {
        assert_eq!(reply.text(), Some(n.to_string().as_bytes()));
    }
    // What is told unasked, while nothing and while something is waited for.
    let mut listener = self::client(&tunnel);
    listener.run("SUBSCRIBE news");
    assert_eq!(client.run("PUBLISH news one"), Value::Integer(1));
    assert_eq!(notation::reply(&listener.read()), "[\"message\", \"news\", \"one\"]");
    client.call([&b"PUBLISH"[..], b"news", &large]);
    assert!(matches!(listener.read(), Value::Array(message) if message[2].text() == Some(&large[..])));
    let mut waiting = self::client(&tunnel);
    waiting.send(["BLPOP", "list", "0"]);
    wait_until("it waits", || notation::reply(&client.run("INFO clients")).contains("blocked_clients:1"));
    client.run("RPUSH list x");
    assert_eq!(notation::reply(&waiting.read()), "[\"list\", \"x\"]");
}

#[test]
fn strangers_are_not_let_in() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = start(&ours.flags("server", &[HOST]), &[]);
    let known = Some(ours.certificate("client", &["client"]));
    let tunnel = Tunnel::new(server.address(), Resp, HOST, &ours.root(), known.clone());
    let mut client = client(&tunnel);
    assert_eq!(notation::reply(&client.run("PING")), "+PONG");
    let to = |host, root: &str, own| Tunnel::new(server.address(), Resp, host, root, own);
    assert!(leads_nowhere(&to(HOST, &ours.root(), None)), "it has no certificate");
    let foreign = Some(theirs.certificate("client", &["client"]));
    assert!(leads_nowhere(&to(HOST, &ours.root(), foreign)), "nobody knows who has signed it");
    assert!(leads_nowhere(&to(HOST, &theirs.root(), known.clone())), "the client does not know the server");
    assert!(leads_nowhere(&to("elsewhere", &ours.root(), known)), "the server is called something else");
    let mut plain = Client::connect(server.address(), tests::Protocol::Resp2);
    let _ = plain.send_raw(b"PING\r\n");
    // An alert, if anything, and then the end.
    assert!(!matches!(plain.try_read(), Ok(Some(_))));
    assert_eq!(notation::reply(&client.run("PING")), "+PONG", "the others notice nothing");
}

#[test]
fn those_who_are_killed_in_the_middle_harm_nobody() {
    let authority = Authority::new();
    let server = start(&authority.flags("server", &[HOST]), &["--tls-auth-clients", "no"]);
    let tunnel = Tunnel::new(server.address(), Resp, HOST, &authority.root(), None);
    let mut client = client(&tunnel);
    client.call([&b"SET"[..], b"large", &vec![b'x'; 8 << 20]]);
    let mut begun = TcpStream::connect(server.address()).expect("a connection");
    // The head of a record with a greeting of 512 bytes, most of which never comes.
    begun.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).expect("it is taken");
    // One that does not read its replies.
    let mut deaf = self::client(&tunnel);
    for _ in 0..20 {
        deaf.send(["GET", "large"]);
    }
    wait_until("all are there", || {
        client.run("CLIENT LIST").text().expect("text").split(|b| *b == b'\n').count() == 4
    });
    assert_eq!(client.run("CLIENT KILL TYPE normal SKIPME yes"), Value::Integer(2));
    wait_until("they are gone", || {
        client.run("CLIENT LIST").text().expect("text").split(|b| *b == b'\n').count() == 2
    });
    // A farewell, if anything, and then the end.
    let mut reported = Vec::new();
    let _ = begun.read_to_end(&mut reported);
    assert!(reported.len() < 64, "{}", reported.escape_ascii());
    assert_eq!(client.call(["STRLEN", "large"]), Value::Integer(8 << 20));
}

/// The certificate that a server shows, and what it agrees to speak.
fn shown(address: SocketAddr, root: &str, protocols: &[&[u8]]) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(root).expect("PEM")).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(HOST).expect("a name");
    let tls = ClientConnection::new(Arc::new(config), name).expect("good settings");
    let mut stream = StreamOwned::new(tls, TcpStream::connect(address).expect("a connection"));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).expect("it agrees");
    }
    let certificate = stream.conn.peer_certificates().expect("it has shown one")[0].to_vec();
    (certificate, stream.conn.alpn_protocol().map(<[u8]>::to_vec))
}

/// A greeting of a client, the first that it says.
fn greeting(authority: &Authority) -> Vec<u8> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.root()).expect("PEM")).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(HOST).expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("good settings");
    let mut greeting = Vec::new();
    tls.write_tls(&mut greeting).expect("memory takes everything");
    greeting
}

/// Connections of clients that have sent these bytes, and the other ends of these.
fn greeted(tls: &Tls, count: usize, greeting: &[u8], leaves: bool) -> Vec<(TcpStream, Wire)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let connect = |_| {
        let mut client = TcpStream::connect(address).expect("a connection");
        client.write_all(greeting).expect("it is taken");
        if leaves {
            client.shutdown(Shutdown::Write).expect("it is connected");
        }
        client.set_nonblocking(true).expect("a socket option");
        let (server, _) = listener.accept().expect("it was made");
        server.set_nonblocking(true).expect("a socket option");
        let server = tokio::net::TcpStream::from_std(server).expect("a runtime");
        (client, tls.accept(server, Resp).expect("good settings"))
    };
    (0..count).map(connect).collect()
}

fn settings(authority: &Authority) -> Tls {
    let (certificate, key) = authority.certificate("server", &[HOST]);
    let own = Some((certificate.into(), key.into()));
    Tls::load(Files { own, ..Files::default() }).expect("good certificates")
}

#[test]
fn handshakes_do_not_hold_up_what_else_a_thread_does() {
    const CLIENTS: usize = 100;
    let authority = Authority::new();
    let (tls, greeting) = (settings(&authority), greeting(&authority));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let turns = runtime.block_on(async {
        let mut clients = Vec::new();
        for (client, wire) in greeted(&tls, CLIENTS, &greeting, false) {
            clients.push(client);
            tokio::spawn(async move { wire.agreed().await });
        }
        let mut turns = 0;
        while !clients.iter().all(|client| client.peek(&mut [0]).is_ok()) {
            turns += 1;
            tokio::task::yield_now().await;
        }
        turns
    });
    assert!(turns > CLIENTS / 10, "{turns} turns while {CLIENTS} clients were answered");
}

#[test]
fn a_greeting_whose_client_has_left_is_not_answered() {
    let authority = Authority::new();
    let (tls, greeting) = (settings(&authority), greeting(&authority));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (mut client, wire) = greeted(&tls, 1, &greeting, true).pop().expect("one");
        let ended = wire.agreed().await.map_err(|error| error.kind());
        assert_eq!(ended, Err(ErrorKind::UnexpectedEof));
        drop(wire);
        client.set_nonblocking(false).expect("a socket option");
        let mut reported = Vec::new();
        let _ = client.read_to_end(&mut reported);
        assert_eq!(reported.len(), 0);
    });
}

#[test]
fn all_faces_agree_on_what_is_spoken() {
    let authority = Authority::new();
    let faces = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--tls-auth-clients", "no"];
    let server = start(&authority.flags("server", &[HOST]), &faces);
    let said = |address, protocols: &[&[u8]]| shown(address, &authority.root(), protocols).1;
    assert_eq!(said(server.address(), &[]), None);
    assert_eq!(said(server.http_address(), &[b"h2", b"http/1.1"]).as_deref(), Some(&b"http/1.1"[..]));
    assert_eq!(said(server.grpc_address(), &[b"h2", b"http/1.1"]).as_deref(), Some(&b"h2"[..]));
    let tunnel = Tunnel::new(server.http_address(), OverHttp, HOST, &authority.root(), None);
    assert_eq!(Http::connect(tunnel.address()).get("/healthz").status, 200);
    let part = start(&authority.flags("part", &[HOST]), &[&faces[..], &["--tls-listeners", "grpc"]].concat());
    assert_eq!(notation::reply(&part.client().run("PING")), "+PONG");
    assert_eq!(part.http().get("/healthz").status, 200);
    assert_eq!(said(part.grpc_address(), &[b"h2"]).as_deref(), Some(&b"h2"[..]));
}

#[test]
fn a_new_certificate_is_taken_up() {
    let authority = Authority::new();
    let server = start(&authority.flags("server", &[HOST]), &["--tls-auth-clients", "no"]);
    let tunnel = Tunnel::new(server.address(), Resp, HOST, &authority.root(), None);
    let mut client = client(&tunnel);
    assert_eq!(notation::reply(&client.run("PING")), "+PONG");
    let before = shown(server.address(), &authority.root(), &[]).0;
    let (file, _) = authority.certificate("server", &[HOST]);
    wait_until("it is shown", || shown(server.address(), &authority.root(), &[]).0 != before);
    let good = shown(server.address(), &authority.root(), &[]).0;
    std::fs::write(&file, "no certificate").expect("a small file");
    let complaint = format!("certificates not reloaded, the old ones stay in use: {file}: ");
    wait_until("the log says so", || server.log().contains(&complaint));
    assert_eq!(shown(server.address(), &authority.root(), &[]).0, good);
    assert_eq!(notation::reply(&client.run("PING")), "+PONG", "who is there stays");
}

#[test]
fn parts_of_a_cluster_know_each_other_by_certificates() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let node = |authority: &Authority, name| {
        let flags = authority.flags(name, &["127.0.0.1"]);
        TestServer::store(&flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let stores = [node(&ours, "one"), node(&ours, "two")];
    let addresses = [0, 1].map(|node: usize| stores[node].address());
    let flags = [ours.flags("gateway", &["gateway"]), vec!["--tls-stores".into(), "yes".into()]].concat();
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--tls-listeners", ""]).collect();
    let gateway = TestServer::gateway(&addresses, &flags);
    let mut client = gateway.client();
    let script = "for i = 1, 100 do redis.call('SET', 'key:' .. i, ARGV[1]) end return redis.call('DBSIZE')";
    assert_eq!(client.eval(script, &[], &["x"]), Value::Integer(100));
    let refused = [
        (
            vec!["--tls-stores".into(), "yes".into(), "--tls-ca-cert-file".into(), ours.root()],
            "CertificateRequired",
        ),
        (
            [theirs.flags("gateway", &["gateway"]), vec!["--tls-stores".into(), "yes".into()]].concat(),
            "UnknownIssuer",
        ),
        (Vec::new(), "cannot be used: "),
    ];
    for (flags, why) in refused {
        let addresses = addresses.map(|address| address.to_string()).join(",");
        let own = ["--stores", &addresses, "--tls-listeners", "grpc"];
        let foreign = start(&flags, &own);
        wait_until("the log says why", || foreign.log().contains(why));
    }
    assert_eq!(client.run("DBSIZE"), Value::Integer(100));
}

#[test]
fn what_is_missing_is_named() {
    let authority = Authority::new();
    let (certificate, key) = authority.certificate("server", &[HOST]);
    let complaint = |flags: &[&str]| {
        let log = TestServer::try_start(flags, "").err().expect("it does not start");
        log.trim().to_owned()
    };
    let (cert_flags, key_flags) = (["--tls-cert-file", &*certificate], ["--tls-key-file", &*key]);
    assert_eq!(complaint(&cert_flags), "moonshard: tls-cert-file: requires tls-key-file");
    assert_eq!(complaint(&key_flags), "moonshard: tls-key-file: requires tls-cert-file");
    let known = [&cert_flags[..], &key_flags, &["--tls-auth-clients", "yes"]].concat();
    assert_eq!(
        complaint(&known),
        "moonshard: tls-auth-clients: tls-ca-cert-file is required to verify client certificates"
    );
    let swapped = complaint(&["--tls-cert-file", &key, "--tls-key-file", &certificate]);
    assert!(swapped.starts_with(&format!("moonshard: tls: {certificate}: ")), "{swapped}");
    let missing = complaint(&["--tls-cert-file", "/nowhere/cert.pem", "--tls-key-file", &key]);
    assert!(missing.starts_with("moonshard: tls: /nowhere/cert.pem: No such file"), "{missing}");
}

#[test]
fn probes_of_store_nodes_need_no_certificate() {
    let authority = Authority::new();
    let flags = authority.flags("node", &["127.0.0.1", HOST]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--http", "127.0.0.1:0"]).collect();
    let node = TestServer::store(&flags);
    let tunnel = Tunnel::new(node.http_address(), OverHttp, HOST, &authority.root(), None);
    let mut http = Http::connect(tunnel.address());
    for path in ["/readyz", "/metrics"] {
        assert_eq!(http.get(path).status, 200, "{path}");
    }
    let plain = TestServer::store(&[&flags[..], &["--tls-listeners", "grpc"]].concat());
    assert_eq!(plain.http().get("/readyz").status, 200);
}

#[test]
fn health_is_asked_over_tls() {
    let authority = Authority::new();
    let flags = authority.flags("server", &[HOST]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let node = TestServer::store(&[&flags[..], &["--http", "127.0.0.1:0"]].concat());
    let (certificate, key) = authority.certificate("prober", &["prober"]);
    let (http, grpc, root) =
        (node.http_address().to_string(), node.grpc_address().to_string(), authority.root());
    let own = ["--tls-cert-file", &*certificate, "--tls-key-file", &*key];
    let asked = |flags: &[&str]| {
        let known = ["health", "--tls-ca-cert-file", &*root];
        let output = refused(&[&known[..], flags].concat());
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text")).concat();
        (output.status.code().expect("it ends"), said)
    };
    for (flags, code, says) in [
        (&["--http", &*http, "--name", HOST][..], 0, "accepts requests"),
        (&["--http", &*http], 1, "not valid for name"),
        (&["--grpc", &*grpc, "--name", HOST], 1, "does not accept requests"),
        (&[&["--grpc", &*grpc, "--name", HOST], &own[..]].concat(), 0, "accepts requests"),
    ] {
        let is_so = || {
            let (given, said) = asked(flags);
            given == code && said.contains(says)
        };
        // Whoever asks gives up after some seconds, which may pass without a turn on the processor.
        wait_until(&format!("{flags:?} gives {code}, {says}"), is_so);
    }
}
