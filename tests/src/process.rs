//! The server under test and the Redis it is compared with, as processes.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, mpsc};

use resp::Value;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store_engine::Protocol;

use crate::client::{Client, encode};
use crate::http::Http;
use crate::ports::fixed_port;
use crate::{TIMEOUT, wait_until};

/// The server's program.
///
/// # Panics
/// When it was not built.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("MOONSHARD_BIN") {
        return path.into();
    }
    // target/<profile>/deps/<test> → target/<profile>/moonshard
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("a folder of the build");
    let path = profile.join("moonshard");
    assert!(
        path.is_file(),
        "{} is not there: run `cargo build --package gateway` (with the same profile) first, \
         or name the program in MOONSHARD_BIN",
        path.display()
    );
    path
}

/// Tells the server where to fail, see `store/src/journal/fail_point.rs`.
const FAIL_POINTS: &str = "FAIL_POINTS";

/// Where a server with debug assertions finds its guest compiled, see `gateway/script/src/compiled.rs`.
const COMPILED_GUEST: &str = "COMPILED_GUEST";

/// A command that starts the server with these flags only, whatever the environment says. Without a flag that says
/// otherwise its data is in memory only.
pub fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if ["MOONSHARD_", "OTEL_"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.env_remove(FAIL_POINTS).env("MOONSHARD_DATA_DIR", "none");
    command.env(COMPILED_GUEST, binary().with_file_name("guest"));
    // The server refuses a limit above its maximum: a test that raises one means both.
    for (flag, most) in [
        ("--script-fuel", "MOONSHARD_SCRIPT_FUEL_MAX"),
        ("--script-timeout-ms", "MOONSHARD_SCRIPT_TIMEOUT_MAX_MS"),
    ] {
        let at = flags.iter().position(|known| *known == flag);
        if let Some(Ok(value)) = at.and_then(|at| Some(flags.get(at + 1)?.parse::<u64>())) {
            let usual = if flag == "--script-fuel" { 200_000_000_000 } else { 60_000 };
            command.env(most, value.max(usual).to_string());
        }
    }
    command.args(flags).stdin(Stdio::null());
    command
}

/// Runs the server with flags that it is expected to refuse.
pub fn refused(flags: &[&str]) -> Output {
    command(flags).output().expect("the server starts")
}

/// Raises this process' limit of open files: a test may be a thousand clients.
fn may_open_many_files() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // Where it is refused, most tests need no more than there is.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    });
}

/// A running server. It is killed when dropped.
pub struct TestServer {
    child: Child,
    address: SocketAddr,
    http: Option<SocketAddr>,
    grpc: Option<SocketAddr>,
    log: Arc<Mutex<String>>,
    /// Those that have its data, if it does not have it itself.
    stores: Vec<TestServer>,
}

/// These flags, after those for free ports that they do not give themselves.
fn with_own<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let own = [["--resp", "127.0.0.1:0"], ["--http", "off"], ["--grpc", "off"]];
    own.into_iter().filter(|own| !flags.contains(&own[0])).flatten().chain(flags.iter().copied()).collect()
}

impl TestServer {
    /// Starts a server on a free port and waits until it says that it is ready.
    pub fn start(flags: &[&str]) -> TestServer {
        TestServer::start_failing(flags, "")
    }

    /// The same with places where its journal is to fail. Only a server with debug assertions does that.
    pub fn start_failing(flags: &[&str], fail_points: &str) -> TestServer {
        TestServer::try_start(flags, fail_points)
            .unwrap_or_else(|log| panic!("instead of a ready line: {log}"))
    }

    /// The same with more variables in its environment instead.
    pub fn start_with(variables: &[(&str, String)], flags: &[&str]) -> TestServer {
        let started = TestServer::spawn_in(variables, &with_own(flags), "", "resp=");
        started.unwrap_or_else(|log| panic!("instead of a ready line: {log}"))
    }

    /// The same as [`TestServer::start_failing`]. If it ends instead of getting ready, what it wrote to standard error.
    pub fn try_start(flags: &[&str], fail_points: &str) -> Result<TestServer, String> {
        TestServer::spawn(&with_own(flags), fail_points, "resp=")
    }

    /// Starts a server whose data is on these store nodes, which end with it.
    pub fn start_over(stores: Vec<TestServer>, flags: &[&str]) -> TestServer {
        let addresses: Vec<String> = stores.iter().map(|store| store.address.to_string()).collect();
        let addresses = addresses.join(",");
        let flags = [&["--stores", &addresses], flags].concat();
        let started = TestServer::spawn(&with_own(&flags), "", "resp=");
        let mut server = started.unwrap_or_else(|log| panic!("instead of a ready line: {log}"));
        server.wait_for_stores();
        server.stores = stores;
        server
    }

    fn wait_for_stores(&self) {
        let mut client = self.client();
        wait_until("all store nodes are reached", || matches!(client.run("DBSIZE"), Value::Integer(_)));
    }

    /// Starts a store node on a free port and waits until it says that it is ready.
    pub fn store(flags: &[&str]) -> TestServer {
        let own = ["store", "--grpc", "127.0.0.1:0"];
        let started = TestServer::spawn(&[&own, flags].concat(), "", "grpc=");
        started.unwrap_or_else(|log| panic!("instead of a ready line: {log}"))
    }

    /// Starts a gateway of these store nodes on a free port and waits until it says that it is ready.
    pub fn gateway(stores: &[SocketAddr], flags: &[&str]) -> TestServer {
        let addresses: Vec<String> = stores.iter().map(SocketAddr::to_string).collect();
        let addresses = addresses.join(",");
        let own =
            ["gateway", "--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off", "--stores", &addresses];
        let started = TestServer::spawn(&[&own, flags].concat(), "", "resp=");
        let server = started.unwrap_or_else(|log| panic!("instead of a ready line: {log}"));
        server.wait_for_stores();
        server
    }

    /// Starts a process that says at which `endpoint` it is ready.
    pub(crate) fn spawn(flags: &[&str], fail_points: &str, endpoint: &str) -> Result<TestServer, String> {
        TestServer::spawn_in(&[], flags, fail_points, endpoint)
    }

    /// The same with more variables in its environment.
    pub(crate) fn spawn_in(
        variables: &[(&str, String)],
        flags: &[&str],
        fail_points: &str,
        endpoint: &str,
    ) -> Result<TestServer, String> {
        let mut command = command(flags);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.env(FAIL_POINTS, fail_points);
        // How long a script takes is the machine's matter, unless a test says something else.
        command.env("MOONSHARD_SCRIPT_TIMEOUT_MS", TIMEOUT.as_millis().to_string());
        TestServer::run(command, endpoint)
    }

    /// Starts a server under a limit that the shell's `ulimit` knows, such as `-n 200`.
    pub fn start_under(limit: &str, flags: &[&str]) -> TestServer {
        let server = command(&[&["--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off"], flags].concat());
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"]).arg(server.get_program());
        limited.args(server.get_args()).env("MOONSHARD_DATA_DIR", "none").stdin(Stdio::null());
        let started = TestServer::run(limited, "resp=");
        started.unwrap_or_else(|log| panic!("instead of a ready line: {log}"))
    }

    fn run(mut command: Command, endpoint: &str) -> Result<TestServer, String> {
        may_open_many_files();
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the server starts");
        let log = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().expect("a pipe");
        let sink = log.clone();
        let listener = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = sink.lock().expect("no panic");
                log.push_str(&line);
                log.push('\n');
            }
        });
        let stdout = child.stdout.take().expect("a pipe");
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = send.send(line);
            // The pipe stays open as long as the server lives.
            let _ = stdout.read_to_end(&mut Vec::new());
        });
        let line = lines.recv_timeout(TIMEOUT).unwrap_or_default();
        let said = |name: &str| {
            let words = line.strip_prefix("moonshard ")?.split_whitespace();
            words.filter_map(|word| word.strip_prefix(name)).next()?.parse().ok()
        };
        let Some(address) = said(endpoint) else {
            let _ = child.kill();
            let _ = child.wait();
            listener.join().expect("no panic");
            return Err(log.lock().expect("no panic").clone());
        };
        let (http, grpc) = (said("http="), said("grpc="));
        Ok(TestServer { child, address, http, grpc, log, stores: Vec::new() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new RESP2 connection.
    pub fn client(&self) -> Client {
        Client::connect(self.address, Protocol::Resp2)
    }

    /// Where it serves HTTP.
    ///
    /// # Panics
    /// When it was not started with `--http`.
    pub fn http_address(&self) -> SocketAddr {
        self.http.expect("it was started with --http")
    }

    /// A new HTTP connection.
    pub fn http(&self) -> Http {
        Http::connect(self.http_address())
    }

    /// Where it serves gRPC.
    ///
    /// # Panics
    /// When it was not started with `--grpc`.
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc.expect("it was started with --grpc")
    }

    /// What it wrote to standard error so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("no panic").clone()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Nanoseconds of CPU time that it has used.
    pub fn cpu_nanos(&self) -> u64 {
        let pid = i32::try_from(self.pid()).expect("a process number");
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: both write where they are told, to variables of the type that they want.
        let reported = unsafe {
            libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0
        };
        assert!(reported, "it runs");
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Bytes of its own that it has in RAM: how much of its program is there is up to the system.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("RssAnon:")
    }

    /// The most bytes of memory it ever had in RAM.
    pub fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("such a line");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes * 1024
    }

    /// A field of INFO.
    pub fn info(&self, field: &str) -> u64 {
        let value = self.info_text(field);
        value.parse().unwrap_or_else(|_| panic!("INFO says {field}:{value}"))
    }

    /// A field of INFO that is no number.
    pub fn info_text(&self, field: &str) -> String {
        let reply = self.client().run("INFO");
        let text = String::from_utf8_lossy(reply.text().expect("a string")).into_owned();
        let start = format!("{field}:");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("INFO has no {field}")).to_owned()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.pid()).expect("a process number");
        // SAFETY: sends a signal to our own child, which has not been waited for yet: its number is still its.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "the signal was not sent");
    }

    /// Ends it without a word, as a crash would.
    pub fn kill(mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("a child");
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        wait_until("the server is shutting down", || !self.is_running());
        self.child.wait().expect("a child")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}", self.log());
        }
    }
}

/// A running redis-server of the version whose behaviour we follow. It is killed when dropped.
pub struct Oracle {
    child: Child,
    address: SocketAddr,
}

/// The version that the texts in `cases/` were taken from.
const ORACLE_VERSION: &str = "7.0.15";

impl Oracle {
    /// Starts one on a free port. `None`, and one loud line for each test program, where it is not installed.
    pub fn start() -> Option<Oracle> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("moonshard-oracle-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder for redis-server");
        let oracle = Oracle::start_in(&dir);
        let _ = std::fs::remove_dir(&dir);
        oracle
    }

    /// The same in a folder, from which it loads `dump.rdb` if that is there, and where SAVE puts it.
    pub fn start_in(dir: &Path) -> Option<Oracle> {
        Oracle::start_with(dir, &[])
    }

    /// The same with more flags.
    pub fn start_with(dir: &Path, flags: &[&str]) -> Option<Oracle> {
        static WARNED: Once = Once::new();
        let skip = |why: String| {
            WARNED.call_once(|| {
                // Not through print!, which the test harness would keep for itself.
                let line = format!("\n***** {why}: comparison with Redis is SKIPPED *****\n");
                let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
            });
            None
        };
        let version = match Command::new("redis-server").arg("--version").output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(_) => return skip("redis-server is not installed".to_owned()),
        };
        if !version.contains(&format!("v={ORACLE_VERSION} ")) {
            return skip(format!("redis-server is not {ORACLE_VERSION} ({})", version.trim()));
        }
        // Somebody else may take the port between our asking and its binding: then the next one.
        for _ in 0..5 {
            if let Some(oracle) = Oracle::start_on(fixed_port(), dir, flags) {
                return Some(oracle);
            }
        }
        panic!("redis-server does not start");
    }

    /// Ends it without a word, as a crash would, and starts it again where it was.
    pub fn restart_in(mut self, dir: &Path) -> Oracle {
        self.child.kill().expect("our own child");
        self.child.wait().expect("a child");
        let port = self.address.port();
        Oracle::start_on(port, dir, &[]).expect("its port is free")
    }

    fn start_on(port: u16, dir: &Path, flags_of_test: &[&str]) -> Option<Oracle> {
        let port_text = port.to_string();
        let flags = ["--port", &port_text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let more = [OsStr::new("--dir"), dir.as_os_str(), OsStr::new("--enable-debug-command")];
        let mut command = Command::new("redis-server");
        command
            .args(flags)
            .args(more)
            .arg("yes")
            .args(flags_of_test)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut child = command.stderr(Stdio::null()).spawn().expect("redis-server starts");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut ended = false;
        wait_until("redis-server serves", || {
            ended = child.try_wait().expect("a child").is_some();
            ended || Oracle::serves(address, child.id())
        });
        (!ended).then_some(Oracle { child, address })
    }

    /// Whether it is this process that answers there, with all that its folder has.
    fn serves(address: SocketAddr, pid: u32) -> bool {
        let reported = Client::try_connect(address).and_then(|mut client| {
            client.send_raw(&encode(["INFO"]))?;
            client.try_read()
        });
        let Ok(Some(Value::Bulk(text))) = reported else { return false };
        let text = String::from_utf8_lossy(&text);
        [format!("process_id:{pid}"), "loading:0".to_owned()]
            .iter()
            .all(|line| text.lines().any(|is| is == line))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new RESP2 connection.
    pub fn client(&self) -> Client {
        Client::connect(self.address, Protocol::Resp2)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
