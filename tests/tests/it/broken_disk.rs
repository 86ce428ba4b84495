//! A disk that cannot be written: changes are refused, reads go on, and what was acknowledged is there whenever it can
//! be read again.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use tests::generate::Chance;
use tests::temp_dir::TempDir;
use tests::{Client, TestServer, notation, wait_until};

fn text(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn start(dir: &TempDir, durability: &str, fail_points: &str) -> TestServer {
    TestServer::start_failing(&["--data-dir", dir.text(), "--durability", durability], fail_points)
}

/// Whether SET is acknowledged.
fn set(server: &TestServer, key: &str, value: &str) -> Result<(), String> {
    match notation::reply(&server.client().call(["SET", key, value])) {
        ok if ok == "+OK" => Ok(()),
        error => Err(error),
    }
}

/// Sets keys until one is refused; all that were acknowledged go to `kept`.
fn set_until_refused(
    server: &TestServer,
    kept: &mut BTreeMap<String, String>,
    value: impl Fn(usize) -> String,
) {
    let mut refusal = String::new();
    wait_until("a change is refused", || {
        let number = kept.len();
        let (key, value) = (format!("key{number}"), value(number));
        match set(server, &key, &value) {
            Ok(()) => drop(kept.insert(key, value)),
            Err(error) => refusal = error,
        }
        !refusal.is_empty()
    });
    assert!(refusal.starts_with("-MISCONF Errors writing to the journal: "), "{refusal}");
}

/// Every way to change something is refused, and reading is not.
fn check_refusing(server: &TestServer) {
    wait_until("it is known", || server.info_text("aof_last_write_status") == "err");
    let changes = [
        "SET key0 other",
        "DEL key0",
        "RPUSH list 1",
        "FLUSHALL",
        "SWAPDB 0 1",
        "EVAL \"return redis.call('SET', KEYS[1], 'other')\" 1 key0",
        "FUNCTION LOAD \"#!lua name=new\\nredis.register_function('f', function() end)\"",
    ];
    for line in changes {
        let reply = text(&mut server.client(), line);
        assert!(reply.contains("MISCONF "), "{line}: {reply}");
    }
    let mut client = server.client();
    text(&mut client, "MULTI");
    text(&mut client, "SET key0 other");
    let reply = text(&mut client, "EXEC");
    assert!(reply.contains("MISCONF ") || reply.starts_with("-EXECABORT"), "{reply}");
    let mut client = server.client();
    let before = text(&mut client, "GET key0");
    assert!(before.len() > 2 && before != "\"other\"", "{before}");
    assert_eq!(text(&mut client, "EXISTS key0 list"), "1");
    assert_eq!(text(&mut client, "PING"), "+PONG");
}

fn check_kept(server: &TestServer, kept: &BTreeMap<String, String>) {
    let mut client = server.client();
    for (key, value) in kept {
        let found = client.call(["GET", key]);
        assert_eq!(found.text(), Some(value.as_bytes()), "{key}");
    }
}

fn fail_at(fail_point: &str, durability: &str) {
    let (dir, errors) = (TempDir::new("broken"), TempDir::new("trouble"));
    let file = errors.text();
    let server = start(&dir, durability, &format!("{fail_point}={file},opening={file},journal-bytes=1000"));
    let mut kept = BTreeMap::new();
    for number in 0..20 {
        let (key, value) = (format!("key{number}"), format!("{number}").repeat(100));
        set(&server, &key, &value).expect("the disk works");
        kept.insert(key, value);
    }
    fs::write(file, "").expect("a place for files");
    if durability == "sync" {
        // The connection stays, with an error for each command.
        let mut client = server.client();
        let replies = client.pipeline(
            &["SET unkept 1", "PING", "GET unkept"]
                .map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect()),
        );
        for reply in replies {
            let refusal = notation::reply(&reply);
            assert!(refusal.starts_with("-MISCONF Errors writing to the journal: "), "{refusal}");
            assert!(!refusal.contains('/') && !refusal.contains(fail_point), "{refusal}");
        }
        assert_eq!(text(&mut client, "PING"), "+PONG");
        let logged = format!("changes are refused: a test makes it fail: {fail_point}");
        wait_until("the reason is logged", || server.log().contains(&logged));
    }
    set_until_refused(&server, &mut kept, |number| format!("value {number}"));
    check_refusing(&server);
    fs::remove_file(file).expect("it is there");
    wait_until("the disk works again", || set(&server, "again", "1").is_ok());
    kept.insert("again".to_owned(), "1".to_owned());
    assert_eq!(server.info_text("aof_last_write_status"), "ok");
    set_kept_and_check(server, &dir, &mut kept);
}

/// Another change, a crash, and a look at what is there.
fn set_kept_and_check(server: TestServer, dir: &TempDir, kept: &mut BTreeMap<String, String>) {
    set(&server, "last", "1").expect("the disk works");
    kept.insert("last".to_owned(), "1".to_owned());
    check_kept(&server, kept);
    let unkept = text(&mut server.client(), "GET unkept");
    wait_until("all is kept", || server.info("journal_durable") == server.info("journal_newest"));
    server.kill();
    let server = TestServer::start(&["--data-dir", dir.text()]);
    check_kept(&server, kept);
    assert_eq!(text(&mut server.client(), "GET unkept"), unkept, "what was seen stays");
}

/// Fail points are in builds with debug assertions only.
#[cfg(debug_assertions)]
#[test]
fn a_failing_disk_stops_changes_until_it_works_again() {
    let fail_points = [
        ("folded", "sync"),
        ("collected", "periodic"),
        ("applied", "sync"),
        ("flushed", "periodic"),
        ("flushed", "sync"),
    ];
    // Most of the time is waiting for the writer to try again.
    std::thread::scope(|scope| {
        for (fail_point, durability) in fail_points {
            scope.spawn(move || fail_at(fail_point, durability));
        }
    });
}

/// A small file system in memory. It is gone when dropped.
struct Small(TempDir);

impl Small {
    fn mount() -> Option<Small> {
        let dir = TempDir::new("small");
        fs::create_dir_all(dir.path()).expect("a new folder");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "none", dir.text()]).output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Small(dir));
        }
        let _ = fs::remove_dir(dir.path());
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", self.0.text()]).output();
    }
}

/// Text that does not become shorter when it is packed.
fn noise(number: usize) -> String {
    let mut chance = Chance::new(number as u64);
    (0..15_000).map(|_| char::from(33 + chance.below(90) as u8)).collect()
}

/// Writes as much to a file, or as fits.
fn fill(ballast: &Path, megabytes: usize) {
    let mut file = fs::File::create(ballast).expect("a new file");
    let block = [1; 4096];
    for _ in 0..megabytes << 8 {
        if file.write_all(&block).is_err() {
            return;
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let Some(small) = Small::mount() else {
        // Not through print!, which the test harness would keep for itself.
        let line = b"\n***** no file system can be mounted here: the test of a full disk is SKIPPED *****\n";
        let _ = std::io::stderr().write_all(line);
        return;
    };
    let ballast = small.0.path().join("ballast");
    fill(&ballast, 8);
    let data = small.0.path().join("data");
    let flags = ["--data-dir", data.to_str().expect("letters"), "--durability", "sync"];
    let server = TestServer::start(&flags);
    let mut kept = BTreeMap::new();
    set_until_refused(&server, &mut kept, noise);
    assert!(kept.len() > 100, "only {} fitted", kept.len());
    check_refusing(&server);
    check_kept(&server, &kept);
    fs::remove_file(&ballast).expect("it is there");
    wait_until("it works again by itself", || match set(&server, "again", "1") {
        Ok(()) => true,
        Err(refusal) => {
            assert!(refusal.contains("No space left on device"), "{refusal}");
            false
        }
    });
    server.kill();
    let server = TestServer::start(&flags);
    check_kept(&server, &kept);
    set(&server, "again", "1").expect("there is room");
    server.kill();
    fill(&ballast, usize::MAX >> 8);
    // It may need room to start; if it does not, it has everything.
    match TestServer::try_start(&flags, "") {
        Ok(server) => {
            check_kept(&server, &kept);
            if let Err(error) = set(&server, "again", "2") {
                assert!(error.starts_with("-MISCONF "), "{error}");
            }
            server.kill();
        }
        Err(log) => assert!(log.contains(small.0.text()), "{log}"),
    }
    fs::remove_file(&ballast).expect("it is there");
    let server = TestServer::start(&flags);
    check_kept(&server, &kept);
    set(&server, "again", "3").expect("there is room");
}

/// A disk that fails while a script runs that has changed something: the script is done as a whole.
#[cfg(debug_assertions)]
#[test]
fn a_script_that_has_changed_something_is_not_refused_the_rest() {
    let (dir, errors) = (TempDir::new("broken"), TempDir::new("trouble"));
    let file = errors.text();
    let server = start(&dir, "periodic", &format!("flushed={file},opening={file},journal-bytes=1000"));
    let script = "redis.call('SET', KEYS[1], ARGV[1])
        local sum = 0
        for i = 1, 1e8 do sum = sum + i end
        return redis.call('SET', KEYS[2], ARGV[1])";
    let (keys, mut turn) = (["first", "second"], 0);
    wait_until("the disk fails while the script runs", || {
        turn += 1;
        let value = turn.to_string();
        std::thread::scope(|scope| {
            let script = scope.spawn(|| server.client().eval(script, &keys, &[&value]));
            fs::write(file, "").expect("a place for files");
            wait_until("it is known", || {
                drop(set(&server, "other", &value));
                server.info_text("aof_last_write_status") == "err"
            });
            let runs = !script.is_finished();
            drop(script.join());
            fs::remove_file(file).expect("it is there");
            wait_until("the disk works again", || set(&server, "other", "1").is_ok());
            let both = keys.map(|key| server.client().call(["GET", key]));
            assert_eq!(both[0], both[1], "half of the script is done");
            // It was refused in the end, and had begun before.
            assert!(!runs || both[0].text() == Some(value.as_bytes()), "{both:?}");
            runs
        })
    });
}
